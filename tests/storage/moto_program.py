"""`python moto_program.py PORT`: moto's server, which by itself does not look and write in one step where a write is
conditional."""

from __future__ import annotations

import signal
import sys
import threading
from io import BytesIO
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class OneAtATime:
    """Requests are served one after the other, once their bodies are there: who sends slowly keeps nobody waiting."""

    def __init__(self, application: DomainDispatcherApplication | None = None) -> None:
        self._application = application or DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        length = environ.get("CONTENT_LENGTH")
        if length:
            environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(int(length)))
        with self._lock:
            return list(self._application(environ, start_response))


def serve(application: OneAtATime, port: int) -> None:
    """Until it is asked to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    serve(OneAtATime(), int(sys.argv[1]))

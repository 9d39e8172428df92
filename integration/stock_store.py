"""An S3 server for Pulsar's own offloader: moto, since versitygw refuses how that one's S3 library signs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class OnlyS3(DomainDispatcherApplication):
    """The library signs in the old way, and moto would take a part of a signature that has four slashes for another
    service's name."""

    def infer_service_region_host(self, environ: dict[str, Any], path: str) -> str | None:
        return "s3.us-east-1.amazonaws.com"


@contextmanager
def stock_store() -> Iterator[str]:
    """Its endpoint. All of them in one process have the same buckets."""
    server = make_server("127.0.0.1", 0, OnlyS3(create_backend_app), threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

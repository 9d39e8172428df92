"""`python -m integration.bridge.moto_program PORT`: moto for Pulsar's own offloader and for us at once."""

from __future__ import annotations

import sys

from moto.moto_server.werkzeug_app import create_backend_app

from integration.stock_store import OnlyS3
from tests.storage.moto_program import OneAtATime, serve

if __name__ == "__main__":
    serve(OneAtATime(OnlyS3(create_backend_app)), int(sys.argv[1]))

"""fake-gcs-server, an emulator of Google Cloud Storage: built once with Go into the user's cache, started per test
session. It keeps all in memory.

It composes whatever the generation of the target, and deletes whatever the generation: `tests/storage/gcs_server.py`
stands for these. It says 500 of a source that is not there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from integration.programs import built
from offloader.storage.settings import StoreSettings
from tests.storage.servers import free_port, serving

VERSION = "v1.56.1"
MODULE = f"github.com/fsouza/fake-gcs-server@{VERSION}"
BUCKET = "bucket"

_names = itertools.count()


@dataclass(frozen=True)
class GoogleServer:
    """A server that speaks as Google Cloud Storage does, and has a bucket."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def fresh_root(self) -> str:
        """A prefix that nobody uses."""
        return f"gs://{BUCKET}/root-{next(_names)}"

    def settings(self, root: str, *, endpoint: str | None = None, **options: str) -> StoreSettings:
        return StoreSettings(root, endpoint or self.url, options=tuple(options.items()))

    def create_bucket(self, name: str = BUCKET) -> None:
        httpx.post(f"{self.url}/storage/v1/b?project=test", json={"name": name}).raise_for_status()


@contextmanager
def running(folder: Path) -> Iterator[GoogleServer]:
    """A server with a bucket; its log is in `folder`."""
    port = free_port()
    command = [str(built("fake-gcs-server", MODULE, VERSION)), "-scheme", "http", "-backend", "memory"]
    command += ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}", "-log-level", "warn"]
    with serving(["env", "TZ=UTC", *command], port, folder / "log", bucket=False):
        server = GoogleServer("127.0.0.1", port)
        server.create_bucket()
        yield server

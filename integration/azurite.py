"""Azurite, an emulator of Azure Blob Storage: fetched once with npm into the user's cache, started per test session."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from azure.storage.blob import BlobServiceClient

from integration.programs import fetched
from offloader.storage.settings import StoreSettings
from tests.storage.servers import free_port, serving

VERSION = "3.37.0"
ACCOUNT, CONTAINER = "devaccount", "container"
KEY = base64.b64encode(b"a key of tests alone").decode()

_names = itertools.count()


@dataclass(frozen=True)
class AzuriteServer:
    """A server that has a container."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The account's."""
        return f"http://{self.host}:{self.port}/{ACCOUNT}"

    def fresh_root(self) -> str:
        """A prefix that nobody uses."""
        return f"az://{CONTAINER}/root-{next(_names)}"

    def settings(self, root: str, *, endpoint: str | None = None, **options: str) -> StoreSettings:
        """`endpoint`: of a proxy before the server, without the account."""
        url = f"{endpoint}/{ACCOUNT}" if endpoint else self.url
        given = {"account_name": ACCOUNT, "account_key": KEY, **options}
        return StoreSettings(root, url, options=tuple(given.items()))

    def service(self) -> BlobServiceClient:
        """The client of the SDK; whoever asks for it closes it."""
        return BlobServiceClient(self.url, {"account_name": ACCOUNT, "account_key": KEY})

    def create_container(self, name: str = CONTAINER) -> None:
        with self.service() as service:
            service.create_container(name)

    def container_beside(self) -> StoreSettings:
        """Another container, without a prefix, that nobody uses."""
        name = f"beside-{next(_names)}"
        self.create_container(name)
        return self.settings(f"az://{name}")


@contextmanager
def running(folder: Path) -> Iterator[AzuriteServer]:
    """A server whose blobs are in `folder`."""
    port = free_port()
    data = folder / "data"
    data.mkdir(parents=True)
    program = fetched("azurite", VERSION) / "dist" / "src" / "blob" / "main.js"
    # Without the check: the service's version that the client asks for is newer than Azurite.
    command = ["env", f"AZURITE_ACCOUNTS={ACCOUNT}:{KEY}", "node", str(program), "--skipApiVersionCheck"]
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(data)]
    with serving([*command, *place, "--silent", "--disableTelemetry"], port, folder / "log", bucket=False):
        server = AzuriteServer("127.0.0.1", port)
        server.create_container()
        yield server

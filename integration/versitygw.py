"""versitygw, an S3 server over a folder: built once with Go into the user's cache, started per test session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.programs import built
from tests.storage.servers import ACCESS_KEY, SECRET_KEY, S3Server, free_port, serving

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"


def binary() -> Path:
    """The server's program. Fails the test where it is not there and cannot be built."""
    return built("versitygw", MODULE, VERSION)


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """A server whose buckets are in `folder`."""
    port = free_port()
    data = folder / "data"
    data.mkdir(parents=True)
    command = [str(binary()), "--port", f"127.0.0.1:{port}", "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet"]
    with serving([*command, "posix", str(data)], port, folder / "log") as server:
        yield server

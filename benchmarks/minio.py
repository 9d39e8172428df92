"""minio, an S3 server that both Pulsar's own offloader and ours speak to: built once with Go into the user's cache.

versitygw refuses what the stock offloader sends ("a valid Date or x-amz-date header" is missing), moto's server is
slower than what is measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.programs import built
from tests.storage.servers import ACCESS_KEY, SECRET_KEY, S3Server, free_port, serving

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
MODULE = f"github.com/minio/minio@{VERSION}"


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """A server whose buckets are in `folder`."""
    program = built("minio", MODULE, VERSION)
    port, console = free_port(), free_port()
    data = folder / "data"
    data.mkdir(parents=True)
    os.environ.update(
        MINIO_ROOT_USER=ACCESS_KEY, MINIO_ROOT_PASSWORD=SECRET_KEY, MINIO_UPDATE="off", MINIO_BROWSER="off"
    )
    command = [
        str(program),
        "server",
        "--quiet",
        "--address",
        f"127.0.0.1:{port}",
        "--console-address",
        f"127.0.0.1:{console}",
    ]
    with serving([*command, str(data)], port, folder / "log") as server:
        yield server

"""Which version is installed. It stands in pyproject.toml alone."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGE = "pulsar-streaming-offloader"


@cache
def installed() -> str:
    """The version that is installed here, empty where that is not known."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


def named() -> str:
    """How the product introduces itself to brokers and servers: `pulsar-streaming-offloader/1.2.3`."""
    return f"{PACKAGE}/{installed()}".rstrip("/")

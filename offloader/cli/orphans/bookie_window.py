"""How often a bookie collects garbage, in its own words, where it has its HTTP end point on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException

from google.protobuf.message import DecodeError

from offloader._proto.bookie_service_pb2 import BookieServiceInfoFormat
from offloader.bookkeeper.metadata import MetadataTree
from offloader.errors import OffloadError
from offloader.json_text import parse_json

SETTINGS = "/api/v1/config/server_config"
WAIT = "gcWaitTime"  # ms
TIMEOUT = 3.0
MOST = 1 << 20


def window_of(tree: MetadataTree) -> Callable[[str], int | None]:
    """Asks a bookie, by its id. None: it does not say."""

    def asked(bookie: str) -> int | None:
        for host, port in _endpoints(tree, bookie):
            found = ask_window(host, port)
            if found is not None:
                return found
        return None

    return asked


def ask_window(host: str, port: int) -> int | None:
    """Milliseconds. None: no such answer."""
    connection = HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", SETTINGS)
        answer = connection.getresponse()
        text = answer.read(MOST)
        if answer.status != 200:
            return None
        said = parse_json(text)
        value = said.get(WAIT) if isinstance(said, dict) else None
        return int(value) if isinstance(value, (str, int)) and str(value).isdecimal() else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _endpoints(tree: MetadataTree, bookie: str) -> list[tuple[str, int]]:
    found = []
    for folder in ("", "/readonly"):
        with suppress(OffloadError, DecodeError):
            node = tree.nodes.get(f"{tree.uri.root}/available{folder}/{bookie}")
            info = BookieServiceInfoFormat.FromString(node.value if node is not None else b"")
            found += [(one.host, one.port) for one in info.endpoints if one.protocol in ("http", "https")]
    return [(host, port) for host, port in found if host and 0 < port < 2**16]

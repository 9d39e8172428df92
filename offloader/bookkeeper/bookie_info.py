"""Where a bookie listens: from its registration, or from its id where that is the older `host:port`. Pure."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from offloader._proto.bookie_service_pb2 import BookieServiceInfoFormat
from offloader.bookkeeper.api import BookieAddress
from offloader.errors import BookieUnavailableError, DamagedRecordError

PROTOCOL = "bookie-rpc"
HTTP = ("http", "https")


def decode_address(bookie: str, data: bytes) -> BookieAddress:
    """From the value of a bookie's registration, which older bookies leave empty.

    Raises DamagedRecordError, and BookieUnavailableError where it publishes no end point for clients.
    """
    if not data:
        return _of_id(bookie)
    try:
        info = BookieServiceInfoFormat.FromString(data)
    except DecodeError as error:
        raise DamagedRecordError(f"the registration of the bookie {bookie} cannot be read: {error}") from error
    for endpoint in info.endpoints:
        if endpoint.protocol == PROTOCOL:
            if not endpoint.host or not 0 < endpoint.port < 2**16:
                raise DamagedRecordError(f"the bookie {bookie} listens at {endpoint.host!r}, port {endpoint.port}")
            return BookieAddress(endpoint.host, endpoint.port)
    raise BookieUnavailableError(f"the bookie {bookie} publishes no end point {PROTOCOL}")


def decode_http_url(bookie: str, data: bytes) -> str | None:
    """Where its HTTP server is, from the same value; None: it says nothing of one. A server that listens on all
    interfaces, or on the bookie's own, is asked at the bookie's address. Raises DamagedRecordError."""
    try:
        info = BookieServiceInfoFormat.FromString(data)
    except DecodeError as error:
        raise DamagedRecordError(f"the registration of the bookie {bookie} cannot be read: {error}") from error
    found = next((one for one in info.endpoints if one.protocol in HTTP and 0 < one.port < 2**16), None)
    if found is None:
        return None
    host = next((one.host for one in info.endpoints if one.protocol == PROTOCOL and one.host), "")
    if found.host not in ("", "0.0.0.0", "::"):  # noqa: S104 (compared, not listened on)
        host = found.host
    return f"{found.protocol}://{f'[{host}]' if ':' in host else host}:{found.port}" if host else None


def encode_address(address: BookieAddress) -> bytes:
    """The value of the registration of a bookie that listens there."""
    info = BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", protocol=PROTOCOL, host=address.host, port=address.port)
    return info.SerializeToString()


def _of_id(bookie: str) -> BookieAddress:
    host, _, port = bookie.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and len(port) <= 5) or not 0 < int(port) < 2**16:
        raise BookieUnavailableError(f"the bookie {bookie} does not publish where it listens")
    return BookieAddress(host.strip("[]"), int(port))

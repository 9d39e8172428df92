"""Where a bookie listens: from its registration, or from its id where that is the older `host:port`. Pure."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from offloader._proto.bookie_service_pb2 import BookieServiceInfoFormat
from offloader.bookkeeper.api import BookieAddress
from offloader.errors import BookieUnavailableError, DamagedRecordError

PROTOCOL = "bookie-rpc"


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

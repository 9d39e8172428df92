"""Where a bookie says it listens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.bookie_service_pb2 import BookieServiceInfoFormat
from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.metadata import decode_address, encode_address
from offloader.errors import BookieUnavailableError, DamagedRecordError

from .damage import damaged, refusal

ADDRESSES = st.builds(BookieAddress, st.text(st.characters(codec="utf-8"), min_size=1), st.integers(1, 2**16 - 1))


@given(ADDRESSES)
def test_an_address_is_read_back(address):
    assert decode_address("b-1", encode_address(address)) == address


def test_the_end_point_for_clients_counts():
    info = BookieServiceInfoFormat(properties={"version": "4.17"})
    info.endpoints.add(id="httpserver", protocol="http", host="h", port=8000)
    info.endpoints.add(id="bookie", protocol="bookie-rpc", host="h", port=3181, auth=["x"], extensions=["tls"])
    assert decode_address("b-1", info.SerializeToString()) == ("h", 3181)


@pytest.mark.parametrize(
    ("bookie", "address"),
    [("h.example:3181", ("h.example", 3181)), ("10.0.0.1:3181", ("10.0.0.1", 3181)), ("[::1]:3181", ("::1", 3181))],
)
def test_an_older_bookie_is_where_its_id_says(bookie, address):
    assert decode_address(bookie, b"") == address


@pytest.mark.parametrize("bookie", ["b-1", "h:", ":3181", "h:0", "h:65536", "h:x", "h:٣", "h:-1"])
def test_an_id_that_is_no_address_says_nothing(bookie):
    with pytest.raises(BookieUnavailableError, match="does not publish where it listens"):
        decode_address(bookie, b"")


def test_a_bookie_without_an_end_point_for_clients():
    info = BookieServiceInfoFormat(properties={"a": "b"})
    info.endpoints.add(id="httpserver", protocol="http", host="h", port=8000)
    with pytest.raises(BookieUnavailableError, match="b-1 publishes no end point bookie-rpc"):
        decode_address("b-1", info.SerializeToString())


@pytest.mark.parametrize(
    "address", [BookieAddress("", 3181), BookieAddress("h", 0), BookieAddress("h", 2**16), BookieAddress("h", -1)]
)
def test_nobody_can_listen_there(address):
    with pytest.raises(DamagedRecordError, match="b-1"):
        decode_address("b-1", encode_address(address))


@given(damaged(encode_address(BookieAddress("host.example", 3181))))
def test_damage_is_a_typed_error(data):
    text = refusal(lambda: decode_address("b-1", data), DamagedRecordError, BookieUnavailableError)
    assert text is None or "b-1" in text

"""Keys are hashed as brokers hash them, or a key's messages would go to another consumer than with Pulsar."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.gateway.core.hashing import murmur3_32, range_slot, ring_slot, sticky_hash, sticky_hashes
from offloader.gateway.entries.delivered import sticky_key

NO_KEY = b"NONE_KEY"

# Those of Pulsar's own test, of which it keeps 31 bits, and some that are published for the algorithm.
VECTORS = {
    b"key1": 462881061,
    b"key2": 1936800180,
    b"": 0,
    b"hello": 0x248BFA47,
    b"hello, world": 0x149BBB7F,
    b"19 Jan 2038 at 3:14:07 AM": 0xE31E8A70,
    b"The quick brown fox jumps over the lazy dog.": 0xD5C48BFC,
}


def test_the_hash_is_murmur3() -> None:
    assert [hashed & 0x7FFF_FFFF for hashed in map(murmur3_32, VECTORS)] == [
        hashed & 0x7FFF_FFFF for hashed in VECTORS.values()
    ]


def test_no_key_is_at_zero_which_brokers_keep_for_themselves() -> None:
    assert sticky_hashes([b"", b"key1"]).tolist() == [0, 462881061] == [sticky_hash(b""), sticky_hash(b"key1")]
    assert (ring_slot(0), range_slot(0)) == (1, 1)


def test_a_ring_has_one_slot_less_than_ranges_as_in_brokers() -> None:
    """PIP-379 took 0 from the ring alone: a key's slots differ, and so would its consumer."""
    assert (ring_slot(65_535), range_slot(65_535)) == (1, 65_535)
    assert (ring_slot(462881061), range_slot(462881061)) == (462881061 % 65535 + 1, 462881061 % 65536)


@given(st.lists(st.binary(max_size=80) | st.binary(min_size=60, max_size=200), max_size=20))
def test_many_keys_at_once_hash_as_each_alone(keys: list[bytes]) -> None:
    assert sticky_hashes(keys).tolist() == [sticky_hash(key) for key in keys]


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(producer_name="p-1", sequence_id=2**64 - 5, publish_time=1, **fields)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (metadata(), b"p-1--5"),
        (metadata(partition_key="ä"), "ä".encode()),
        (metadata(partition_key=""), b""),
        (metadata(partition_key="ä", ordering_key=b"o"), b"o"),
        (metadata(ordering_key=b"", partition_key="k"), b""),
        (
            metadata(partition_key=base64.b64encode(b"\0\xff\1\2").decode(), partition_key_b64_encoded=True),
            b"\0\xff\1\2",
        ),
        (metadata(partition_key="AP8BAg", partition_key_b64_encoded=True), b"\0\xff\1\2"),
        (metadata(partition_key="no base64!", partition_key_b64_encoded=True), NO_KEY),
    ],
)
def test_the_key_is_the_ordering_key_else_the_key_else_of_the_producer(said: MessageMetadata, key: bytes) -> None:
    assert sticky_key(said) == key

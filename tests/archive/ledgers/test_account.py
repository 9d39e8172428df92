"""Every byte of a ledger's data object is accounted for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedObjectError
from offloader.format.blocks import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    HEADER_SIZE,
    BlockHeader,
    entries,
    padding,
    read_blocks,
)
from offloader.format.index import IndexEntry
from offloader.format.ledger_account import account_ledger
from offloader.format.v1 import LedgerIndex, decode_ledger_index
from tests.format.support import v1_one_block, v1_tiny_blocks

from .support import any_entries, messages, metadata, objects

FIXTURES = pytest.mark.parametrize(
    ("fixture", "ledger"), [(v1_one_block(), 7), (v1_tiny_blocks(), 9)], ids=["one", "tiny"]
)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@FIXTURES
def test_what_pulsar_wrote(fixture, ledger) -> None:
    index = decode_ledger_index(fixture.index, ledger)
    account = account_ledger([fixture.data], ledger, index)
    said = index.ledger_metadata
    assert (account.entries - 1, account.payload, account.damaged) == (said.lastEntryId, said.length, ())


@given(any_entries(), st.integers(500, 2000), st.integers(1, 700))
def test_whatever_pulsar_writes(held, block_size, piece) -> None:
    data, encoded = objects(4, held, block_size=block_size)
    account = account_ledger(pieces(data, piece), 4, decode_ledger_index(encoded, 4))
    assert (account.entries, account.payload) == (len(held), sum(map(len, held)))


@given(any_entries(), st.integers(500, 2000), st.integers(500, 2000))
def test_the_digest_is_of_the_entries_alone(held, one, another) -> None:
    digests = set()
    for block_size in (one, another):
        data, encoded = objects(4, held, block_size=block_size)
        digests.add(account_ledger([data], 4, decode_ledger_index(encoded, 4)).digest)
    assert len(digests) == 1


@given(any_entries(), st.data())
def test_the_digest_tells_entries_apart(held, data) -> None:
    others = list(held)
    at = data.draw(st.integers(0, len(held) - 1))
    others[at] = data.draw(st.binary(max_size=300).filter(lambda entry: entry != held[at]))
    digests = {
        account_ledger([stored], 4, decode_ledger_index(index, 4)).digest
        for stored, index in (objects(4, held), objects(4, others))
    }
    assert len(digests) == 2


def test_a_finer_index() -> None:
    data, encoded = objects(4, messages(4, 30))
    index = decode_ledger_index(encoded, 4)
    places = [
        IndexEntry(4, found.entry, number, found.offset - HEADER_SIZE)
        for number, block in enumerate(read_blocks(data), 1)
        for found in entries(block)
    ]
    assert account_ledger([data], 4, replace(index, entries=tuple(places))).entries == 30
    wrong = replace(places[3], offset=places[3].offset + 1)
    with pytest.raises(DamagedObjectError, match=f"offset {wrong.offset + HEADER_SIZE}: "):
        account_ledger([data], 4, replace(index, entries=(*places[:3], wrong, *places[4:])))


def test_an_index_entry_behind_the_last_entry() -> None:
    data, encoded = objects(4, [b"one"])
    index = decode_ledger_index(encoded, 4)
    behind = IndexEntry(4, 1, 1, len(data) - HEADER_SIZE)
    with pytest.raises(DamagedObjectError, match="no entry begins where"):
        account_ledger([data], 4, replace(index, entries=(*index.entries, behind)))


def test_an_index_of_a_longer_object() -> None:
    data, encoded = objects(4, [b"one"])
    longer = replace(decode_ledger_index(encoded, 4), data_length=len(data) + 1)
    with pytest.raises(DamagedObjectError, match=f"offset {len(data)}: the object ends here"):
        account_ledger([data], 4, longer)


def test_a_block_without_entries() -> None:
    """What Pulsar's offloader writes where an entry is larger than its blocks."""
    data, encoded = objects(4, [b"one"])
    index = decode_ledger_index(encoded, 4)
    both = data + BlockHeader(1, HEADER_SIZE + 50, 1, None).encode() + padding(50)
    of_both = LedgerIndex(len(both), index.metadata, (*index.entries, IndexEntry(4, 1, 2, len(data))))
    with pytest.raises(DamagedObjectError, match=f"offset {len(data)}: the block holds no entry"):
        account_ledger([both], 4, of_both)


def test_the_digest_tells_where_entries_end() -> None:
    accounts = [
        account_ledger([data], 4, decode_ledger_index(encoded, 4))
        for data, encoded in (objects(4, [b"ab", b"c"]), objects(4, [b"a", b"bc"]))
    ]
    assert accounts[0].digest != accounts[1].digest


def bridge(ledger: int, in_block: int) -> tuple[bytes, LedgerIndex]:
    """A ledger's V2 blocks as a V1 object: its readers skip the headers."""
    held = messages(4, 2)
    size = HEADER_SIZE + sum(ENTRY_HEADER_SIZE + len(entry) for entry in held) + in_block
    packed = [ENTRY_HEADER.pack(len(entry), number) + entry for number, entry in enumerate(held)]
    data = b"".join([BlockHeader(2, size, 0, ledger).encode(), *packed, padding(in_block)])
    return data, LedgerIndex(len(data), metadata(held, None).SerializeToString(), (IndexEntry(4, 0, 1, 0),))


def test_blocks_of_our_own_format_are_accepted() -> None:
    data, index = bridge(4, 4)
    assert account_ledger([data], 4, index).entries == 2


def test_blocks_of_another_ledger_are_not() -> None:
    data, index = bridge(5, 4)
    with pytest.raises(DamagedObjectError, match="offset 0: a block of ledger 5"):
        account_ledger([data], 4, index)


@FIXTURES
def test_any_truncation_is_found(fixture, ledger) -> None:
    index = decode_ledger_index(fixture.index, ledger)
    random = Random(1)
    for length in [0, 1, len(fixture.data) - 1, *(random.randrange(len(fixture.data)) for _ in range(100))]:
        with pytest.raises(DamagedObjectError, match=r"offset \d+: "):
            account_ledger([fixture.data[:length]], ledger, index)


def test_more_bytes_than_the_index_says_are_found() -> None:
    fixture = v1_tiny_blocks()
    index = decode_ledger_index(fixture.index, 9)
    with pytest.raises(DamagedObjectError, match="offset 11355"):
        account_ledger([fixture.data, b"\0"], 9, index)
    with pytest.raises(DamagedObjectError, match="offset 11355: a block from entry 0 on"):
        account_ledger([fixture.data, fixture.data[:1536]], 9, index)


def test_any_flipped_bit_is_found_or_changes_the_digest() -> None:
    """Entries without a checksum of their own can be told apart only by the digest."""
    fixture = v1_tiny_blocks()
    index = decode_ledger_index(fixture.index, 9)
    sound = account_ledger([fixture.data], 9, index)
    for at in range(len(fixture.data)):
        damaged = bytearray(fixture.data)
        damaged[at] ^= 1 << at % 8
        with suppress(DamagedObjectError):
            assert account_ledger([bytes(damaged)], 9, index).digest != sound.digest


def test_a_flipped_bit_of_a_message_is_found_by_its_own_checksum() -> None:
    held = messages(4, 5)
    data, encoded = objects(4, held)
    at = data.index(held[3]) + 40
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    account = account_ledger([damaged], 4, decode_ledger_index(encoded, 4))
    assert account.damaged == ((3, data.index(held[3]) - ENTRY_HEADER_SIZE),)

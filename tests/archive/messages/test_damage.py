"""Bytes that are no messages give one kind of error, or one row where damage is to be kept; never another exception."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.messages.columns import entry_batches, message_batches
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.message import MessageLimits
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.unpack import Unpacker
from offloader.errors import DamagedObjectError, MessageTooLargeError
from tests.archive.messages.encoder import TOPIC, Encoded, Producer, Sent, batch, chunked, run_of, single
from tests.archive.messages.rows import COLUMNS, by_columns, by_messages, pruned
from tests.archive.messages.streams import streams

GOOD = single(Producer(), Sent(b"good"))


@st.composite
def garbled(draw: st.DrawFn) -> list[bytes]:
    """Entries of which some are cut short, have other bytes in them, or are anything."""
    entries = [entry.data for entry in draw(streams(max_size=6))]
    random = Random(draw(st.integers(0, 2**64)))
    for _ in range(random.randint(1, 4) if entries else 0):
        at = random.randrange(len(entries))
        entries[at] = _garbled(random, entries[at])
    return entries


def _garbled(random: Random, entry: bytes) -> bytes:
    place = random.randint(0, max(0, min(len(entry) - 1, 150)))
    other = random.choice([random.randbytes(random.randint(1, 3)), bytes([random.choice(b"\0\x01\x7f\x80\xff")])])
    return random.choice([
        entry[: random.randint(0, len(entry))],
        entry[:place] + other + entry[place + len(other) :],
        entry[:place] + other + entry[place + len(other) :],
        random.randbytes(random.randint(0, 60)),
        b"",
    ])  # fmt: skip


@given(garbled(), st.sampled_from([None, [], ["__publishTime"], ["__key"], ["value"]]))
def test_only_the_typed_error_is_raised(entries: list[bytes], columns: list[str] | None) -> None:
    run = run_of(entries)
    with contextlib.suppress(DamagedObjectError):
        list(Unpacker().messages(run))
    with contextlib.suppress(DamagedObjectError):
        list(message_batches([run], TOPIC, columns))
    assert sum(found.num_rows for found in entry_batches([run], TOPIC)) == len(entries)


@given(garbled())
def test_columns_and_messages_find_the_same_damage(entries: list[bytes]) -> None:
    """Also what both take as sound is the same, although one parses with protobuf and the other with numpy."""
    options, run = UnpackOptions(keep_damaged=True), run_of(entries)
    assert by_columns([run], options) == by_messages([run], options)


def _broken() -> dict[str, Encoded]:
    pair = batch(Producer(), [Sent(b"one"), Sent(b"two")])
    packed = single(Producer(compression=3), Sent(b"x" * 100))
    unknown = single(Producer(), Sent(b"x"))
    unknown.metadata.compression = 9
    large = single(Producer(compression=1), Sent(b"x"))
    large.metadata.uncompressed_size = 2**31
    last = chunked(Producer(), Sent(b"x" * 9), 3, "u")[2]
    last.metadata.chunk_id = 3
    return {
        "message 1 of 2 does not lie in its batch": Encoded(pair.metadata, pair.payload[:-1]),
        "metadata of message 1 of 2 cannot be parsed": Encoded(
            pair.metadata, pair.payload.replace(b"\x18\x03", b"\x1b\x03", 2)[:]
        ),
        "cannot be decompressed": Encoded(packed.metadata, packed.payload[:-3]),
        "compression 9 is unknown": unknown,
        "more than the limit": large,
        "chunk 3 of 3": last,
    }


@pytest.mark.parametrize(
    "message", ["message 1 of 2 does not lie", "cannot be decompressed", "9 is unknown", "the limit", "chunk 3 of 3"]
)
def test_the_error_says_where_and_what(message: str) -> None:
    (broken,) = [entry for said, entry in _broken().items() if message in said]
    run = run_of([GOOD.data, broken.data], 5)
    where = rf"77:6 \(offset {1000 + run.bounds[2]}\): .*{message}"
    with pytest.raises(DamagedObjectError, match=where):
        list(Unpacker().messages(run))
    with pytest.raises(DamagedObjectError, match=where):
        list(message_batches([run], TOPIC))


def test_an_entry_without_message_metadata_is_damage() -> None:
    for data in (b"", b"\x0e\x01", b"\x0e\x02\0\0\0\x09x", b"\0\0\0\0payload"):
        with pytest.raises(DamagedObjectError):
            list(Unpacker().messages(run_of([data])))


@st.composite
def lying(draw: st.DrawFn) -> list[bytes]:
    """Entries of which some claim other counts and sizes than they have."""
    found = draw(streams(max_size=6))
    for entry in found:
        if draw(st.booleans()):
            entry.metadata.num_messages_in_batch = draw(st.sampled_from([-1, 0, 1, 2, 3, 100, 3_000_000, 2**31 - 1]))
        if draw(st.booleans()):
            entry.metadata.uncompressed_size = draw(st.sampled_from([0, 1, 12, 100, 18_000_000, 2**32 - 1]))
    return [entry.data for entry in found]


SUBSETS = st.lists(st.sampled_from(COLUMNS), unique=True) | st.sampled_from([[], ["__publishTime"], ["__key"]])


@given(lying() | garbled(), SUBSETS, st.sampled_from([None, Producer().publish_time, Producer().publish_time + 1]))
def test_the_rows_do_not_depend_on_the_columns(entries: list[bytes], columns: list[str], since: int | None) -> None:
    """Damage inside a single message's value is told to whoever asks for the value; it has its row in any case."""
    options, run, wanted = UnpackOptions(keep_damaged=True), run_of(entries), MessageFilter(published_from=since)
    rows = by_messages([run], options, wanted)
    assert by_columns([run], options, COLUMNS, wanted) == rows
    assert not columns or by_columns([run], options, columns, wanted) == pruned(rows, columns)
    assert sum(
        found.num_rows for found in message_batches([run], TOPIC, columns, options=options, wanted=wanted)
    ) == len(rows)


@given(lying())
def test_a_batch_that_lies_is_damage_whatever_is_asked_for(entries: list[bytes]) -> None:
    run, told = run_of(entries), []
    for columns in ([], ["__publishTime"], ["__key"], ["__messageId"]):
        try:
            told.append(sum(found.num_rows for found in message_batches([run], TOPIC, columns)))
        except DamagedObjectError as error:
            told.append(str(error))
    assert len(set(told)) == 1


@pytest.mark.parametrize("columns", [[], ["__publishTime"], None])
@pytest.mark.parametrize("codec", [0, 1, 3])
def test_a_count_is_not_believed(codec: int, columns: list[str] | None) -> None:
    huge = batch(Producer(compression=codec), [Sent(b"one")])
    huge.metadata.num_messages_in_batch, huge.metadata.uncompressed_size = 3_000_000, 18_000_000
    for options in (UnpackOptions(), UnpackOptions(limits=MessageLimits(message=2**31 - 1))):
        with pytest.raises(DamagedObjectError):
            list(message_batches([run_of([huge.data])], TOPIC, columns, options=options))


def test_what_is_larger_than_is_allowed_is_told_apart() -> None:
    bomb = single(Producer(compression=3), Sent(bytes(10_000_000)))
    run = run_of([bomb.data])
    (row,) = by_columns([run], UnpackOptions(keep_damaged=True), ["__publishTime", "value", "__problem"])
    assert row == {"__publishTime": Producer().publish_time * 1000, "value": None, "__problem": "too-large"}
    with pytest.raises(MessageTooLargeError, match=r"77:0 .*10000000 bytes uncompressed"):
        list(message_batches([run], TOPIC))
    assert by_columns([run], UnpackOptions(limits=MessageLimits(message=10_000_000)), ["__problem"]) == [
        {"__problem": None}
    ]


def test_kept_damage_stands_in_its_place() -> None:
    broken = _broken()["cannot be decompressed"]
    rows = by_columns(
        [run_of([GOOD.data, broken.data, GOOD.data])], UnpackOptions(keep_damaged=True), ["value", "__problem"]
    )
    assert [row["__problem"] for row in rows] == [None, "damaged", None]


def test_all_columns_are_there_for_damage() -> None:
    rows = by_columns([run_of([b"nothing"])], UnpackOptions(keep_damaged=True))
    assert list(rows[0]) == COLUMNS

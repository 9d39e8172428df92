"""Chunked messages: put together whatever is between their chunks, told of where they cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import EntryRun
from offloader.archive.messages.chunks import Assembler, Chunk
from offloader.archive.messages.columns import message_batches
from offloader.archive.messages.message import MessageLimits, MessageProblem
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.unpack import Unpacker
from offloader.errors import MessageTooLargeError
from offloader.model import Position
from tests.archive.messages.encoder import LEDGER, TOPIC, Encoded, Producer, Sent, chunked, run_of, single
from tests.archive.messages.rows import by_columns, by_messages, expected
from tests.archive.messages.streams import cut_into_runs, streams

MAX_CHUNKED = 128 * 1024**2

A = chunked(Producer("a"), Sent(b"a" * 30), 3, "a-1")
B = chunked(Producer("b"), Sent(b"b" * 30), 3, "a-1")  # another producer's, with the same uuid
PLAIN = single(Producer(), Sent(b"plain"))


class Before:
    """Entries that can be read back, in small runs, and how many runs were asked for."""

    def __init__(self, entries: Sequence[bytes], size: int = 2) -> None:
        self.entries, self.size, self.asked = entries, size, 0

    def __call__(self, before: Position) -> Iterator[EntryRun]:
        end = before.entry
        while end > 0:
            first = max(0, end - self.size)
            self.asked += 1
            yield run_of(self.entries[first:end], first)
            end = first


def read(
    entries: Sequence[Encoded], options: UnpackOptions | None = None, first: int = 0
) -> list[tuple[int, bytes | None, MessageProblem | None]]:
    """Entry id, value and problem of each message."""
    run = run_of([entry.data for entry in entries], first)
    found = [(m.position.entry, m.value, m.problem) for m in Unpacker(options).messages(run)]
    columns = ["__entryId", "value", "__problem"]
    assert [tuple(row.values()) for row in by_columns([run], options, columns)] == found
    assert sum(b.num_rows for b in message_batches([run], TOPIC, [], options=options)) == len(found)
    return found


@given(st.data(), streams(), st.integers(0, 12))
def test_reading_from_the_middle_gives_the_same_rows(data: st.DataObject, entries: list[Encoded], middle: int) -> None:
    middle = min(middle, len(entries))
    encoded = [entry.data for entry in entries]
    options = UnpackOptions(look_back=Before(encoded, data.draw(st.integers(1, 3))))
    runs = [
        EntryRun(r.ledger, r.first + middle, 0, r.data, r.bounds, 0) for r in data.draw(cut_into_runs(encoded[middle:]))
    ]
    assert by_messages(runs, options) == expected(entries, start=middle)
    assert by_columns(runs, options) == expected(entries, start=middle)


@given(st.lists(st.sampled_from([*A, *B]), max_size=12), st.integers(0, 12))
def test_whatever_chunks_come_the_middle_gives_the_same_rows(entries: list[Encoded], middle: int) -> None:
    """Also with chunks missing and chunks that come again; only why one is missing may be known less well."""
    middle = min(middle, len(entries))
    options = UnpackOptions(look_back=Before([entry.data for entry in entries]))
    whole = [row for row in read(entries, UnpackOptions(look_back=Before([]))) if row[0] >= middle]
    assert read(entries[middle:], options, middle) == whole


def test_producers_interleave() -> None:
    assert read([A[0], B[0], PLAIN, B[1], A[1], B[2], A[2]]) == [
        (2, b"plain", None),
        (5, b"b" * 30, None),
        (6, b"a" * 30, None),
    ]


def test_chunks_that_were_sent_again_are_left_out() -> None:
    """A client that reconnects sends what was not acknowledged once more."""
    assert read([A[0], A[1], A[1], A[2], A[1], A[2]]) == [(3, b"a" * 30, None)]
    assert read([A[0], A[1], A[0], A[1], A[2]]) == [(4, b"a" * 30, None)]


def test_a_name_and_number_that_is_used_again_is_another_message() -> None:
    assert [row[0] for row in read([*A, *A])] == [2, 5]


def test_a_missing_chunk_is_told_of() -> None:
    before = UnpackOptions(look_back=Before([]))
    assert read([A[0], A[2]], before) == [(1, None, MessageProblem.CHUNKS_MISSING)]
    assert read([A[1], A[2]], before) == [(1, None, MessageProblem.CHUNKS_MISSING)]


def test_what_cannot_be_looked_back_at_is_too_far() -> None:
    assert read([A[1], A[2]]) == [(1, None, MessageProblem.CHUNKS_TOO_FAR)]


def test_no_more_is_read_back_than_is_allowed() -> None:
    far = [A[0].data, *[PLAIN.data] * 100]
    before = Before(far)
    options = UnpackOptions(look_back=before, look_back_bytes=10 * len(PLAIN.data))
    found = list(Unpacker(options).messages(run_of([A[1].data, A[2].data], len(far))))
    assert [m.problem for m in found] == [MessageProblem.CHUNKS_TOO_FAR]
    assert before.asked == 5


def test_no_more_is_read_back_than_is_needed() -> None:
    before = Before([PLAIN.data] * 100 + [A[0].data, B[0].data, PLAIN.data])
    run = run_of([entry.data for entry in (A[1], B[1], B[2], A[2])], 103)
    assert [m.value for m in Unpacker(UnpackOptions(look_back=before)).messages(run)] == [b"b" * 30, b"a" * 30]
    assert before.asked == 2  # once for B, then on for A


def test_nothing_is_read_back_where_nothing_is_missing() -> None:
    before = Before([PLAIN.data] * 10)
    list(Unpacker(UnpackOptions(look_back=before)).messages(run_of([e.data for e in (*A, *B)], 10)))
    assert before.asked == 0


LARGE_A = chunked(Producer("a"), Sent(b"a" * 30_000), 3, "a-1")
LARGE_B = chunked(Producer("b"), Sent(b"b" * 30_000), 3, "a-1")


def test_the_oldest_is_given_up_where_too_much_waits() -> None:
    options = UnpackOptions(limits=MessageLimits(chunked=35_000))
    (a, b), first_b = (LARGE_A, LARGE_B), LARGE_B[0]
    rows = read([a[0], first_b, a[1], b[1], a[2], b[2]], options)
    assert rows == [(4, None, MessageProblem.CHUNKS_DROPPED), (5, b"b" * 30_000, None)]


def test_one_message_is_no_larger_than_what_may_wait() -> None:
    options = UnpackOptions(limits=MessageLimits(chunked=25_000), keep_damaged=True)
    rows = read([LARGE_A[0], B[0], LARGE_A[1], LARGE_A[2], B[1], B[2]], options)
    assert rows == [(3, None, MessageProblem.TOO_LARGE), (5, b"b" * 30, None)]
    with pytest.raises(MessageTooLargeError, match=r"77:2 .*more bytes than the limit of 25000"):
        list(
            Unpacker(UnpackOptions(limits=MessageLimits(chunked=25_000))).messages(
                run_of([entry.data for entry in LARGE_A])
            )
        )


def test_what_was_read_back_counts() -> None:
    before = Before([LARGE_A[0].data, LARGE_A[1].data])
    options = UnpackOptions(look_back=before, limits=MessageLimits(chunked=25_000), keep_damaged=True)
    assert read([LARGE_A[2]], options, 2) == [(2, None, MessageProblem.TOO_LARGE)]


def test_a_chunked_message_is_no_larger_in_clear_than_is_allowed() -> None:
    packed = chunked(Producer("a", compression=3), Sent(b"a" * 30_000), 3, "a-1")
    assert read(packed, UnpackOptions(limits=MessageLimits(chunked=30_000))) == [(2, b"a" * 30_000, None)]
    options = UnpackOptions(limits=MessageLimits(chunked=29_999), keep_damaged=True)
    assert read(packed, options) == [(2, None, MessageProblem.TOO_LARGE)]


def test_what_a_chunk_costs_does_not_depend_on_how_many_came_before() -> None:
    """Steps that are counted, not time: each chunk's payload is asked for its length once."""

    class Counted(bytes):
        asked = 0

        def __len__(self) -> int:
            Counted.asked += 1
            return super().__len__()

    assembler = Assembler(lambda _: [], MAX_CHUNKED)
    count = 2000
    found = [assembler.add(Chunk(("p", "u"), n, count, Position(0, 1, n), Counted(b"x"))) for n in range(count)]
    assert found[-1] is not None
    assert found[-1].payload == b"x" * count
    assert Counted.asked <= 3 * count


def test_chunks_without_bytes_take_room_too() -> None:
    heads = [Chunk(("p", str(n)), 0, 2, Position(0, 1, n), b"") for n in range(100)]
    assembler = Assembler(lambda _: [], 2000)
    for head in heads:
        assembler.add(head)
    assert len(assembler._held) <= 10


@pytest.mark.parametrize(
    "unusual",
    [
        lambda metadata: metadata.properties.add(key="k", value="v").MergeFromString(
            b"\x85\x04\0\0\0\0"
        ),  # a field nobody knows
        lambda metadata: setattr(metadata, "num_messages_in_batch", 1),
    ],
)
def test_a_last_chunk_of_unusual_form_ends_its_message(unusual) -> None:
    *begin, last = chunked(Producer("a"), Sent(b"a" * 30), 3, "a-1")
    unusual(last.metadata)
    assert read([*begin, last]) == [(2, b"a" * 30, None)]


def test_memory_stays_bounded_where_messages_are_never_finished() -> None:
    options = UnpackOptions(limits=MessageLimits(chunked=10_000))
    heads = [chunked(Producer("p"), Sent(bytes(2000)), 2, f"p-{n}")[0].data for n in range(200)]
    unpacker = Unpacker(options)
    assert list(unpacker.messages(run_of(heads))) == []
    assert unpacker._payloads._assembler._size <= 10_000


def test_the_first_chunk_is_in_the_message_id() -> None:
    (found,) = Unpacker().messages(run_of([e.data for e in (PLAIN, *A)], 5).part(6, 9))
    assert found.first_chunk == Position(0, LEDGER, 6)

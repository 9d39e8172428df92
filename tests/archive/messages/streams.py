"""Streams of entries for property tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.archive.stored import EntryRun
from tests.archive.messages.encoder import Encoded, Producer, Sent, batch, chunked, marker, run_of, single

_values = st.none() | st.binary(max_size=40) | st.integers(0, 400).map(lambda n: b"some text " * n)
_names = st.text("ab", min_size=1, max_size=2)
_numbers = st.sampled_from([0, 1, 127, 128, 2**31, 2**62])

sents = st.builds(
    Sent,
    value=_values,
    key=st.none() | st.sampled_from([b"", b"k", b"key-1", b"x" * 130]),
    key_is_bytes=st.booleans(),
    properties=st.lists(st.tuples(_names, st.text(max_size=3)), max_size=3).map(tuple),
    event_time=st.sampled_from([0, 1, 1_600_000_000_000]),
    sequence_id=_numbers,
    ordering_key=st.none() | st.binary(max_size=3),
)
compacted = st.builds(replace, sents, compacted_out=st.sampled_from([False, False, False, True]))
producers = st.builds(
    Producer,
    name=st.sampled_from(["p", "standalone-0-12", "größer"]),
    publish_time=st.sampled_from([1, 1_700_000_000_000, 1_700_000_000_500]),
    compression=st.sampled_from([0, 0, *CompressionType.values()]),
    schema_version=st.none() | st.binary(max_size=8),
    replicated_from=st.none() | st.just("west"),
)
_broker = st.none() | st.tuples(st.integers(1, 2**41), st.integers(1000, 2**50))

_plain_entries = st.builds(single, producers, sents)


def _batches(messages: st.SearchStrategy[Sent]) -> st.SearchStrategy[Encoded]:
    return st.builds(batch, producers, st.lists(messages, min_size=1, max_size=8), own_sequence_ids=st.booleans())


@st.composite
def streams(draw: st.DrawFn, *, max_size: int = 12, batched: st.SearchStrategy[Sent] = compacted) -> list[Encoded]:
    """Entries of all kinds, chunks of several messages interleaved."""
    entries = draw(st.lists(_plain_entries | _batches(batched) | st.builds(marker), max_size=max_size))
    for number in range(draw(st.integers(0, 3))):
        entries = _interleaved(draw, entries, _chunks(draw, number))
    entries = [replace(e, broker=draw(_broker), checksum=draw(st.booleans())) for e in entries]
    return [_with_first_chunk(entries, n) for n in range(len(entries))]


@st.composite
def cut_into_runs(draw: st.DrawFn, entries: list[bytes]) -> list[EntryRun]:
    """The entries in runs of any length, as reading gives them."""
    cuts = sorted(draw(st.sets(st.integers(0, len(entries)), max_size=4)) | {0, len(entries)})
    gap = draw(st.sampled_from([b"", bytes(12)]))
    return [run_of(entries[a:b], a, gap=gap) for a, b in pairwise(cuts)]


def _chunks(draw: st.DrawFn, number: int) -> list[Encoded]:
    sent = draw(sents.filter(lambda s: s.value is not None))
    return chunked(draw(producers), sent, draw(st.integers(2, 4)), f"uuid-{number}")


def _interleaved(draw: st.DrawFn, some: list[Encoded], others: list[Encoded]) -> list[Encoded]:
    takes = draw(st.permutations([0] * len(some) + [1] * len(others)))
    sources = (iter(some), iter(others))
    return [next(sources[take]) for take in takes]


def _with_first_chunk(entries: list[Encoded], number: int) -> Encoded:
    entry = entries[number]
    if not entry.rows or not entry.metadata.uuid:
        return entry
    first = next(n for n, e in enumerate(entries) if e.metadata.uuid == entry.metadata.uuid)
    return replace(entry, first_chunk_back=number - first)

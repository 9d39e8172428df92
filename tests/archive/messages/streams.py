"""Streams of entries for property tests: hypothesis says how long and from which seed, or most of the time would go
into its draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.archive.items import EntryRun
from tests.archive.messages.encoder import Encoded, Producer, Sent, batch, chunked, marker, run_of, single

T = TypeVar("T")

_LETTERS = "ab0\x00 \x7f\xe9\u65e5\U0001f642"
_CODECS = [0, 0, *CompressionType.values()]
_NUMBERS = [0, 1, 127, 128, 2**31, 2**62]


@st.composite
def streams(draw: st.DrawFn, *, max_size: int = 12, compacted: bool = True) -> list[Encoded]:
    """Entries of all kinds, chunks of several messages interleaved. `compacted`: messages of batches may be compacted
    out."""
    count, messages, random = (
        draw(st.integers(0, max_size)),
        draw(st.integers(0, 3)),
        Random(draw(st.integers(0, 2**64))),
    )
    entries = [_entry(random, compacted) for _ in range(count)]
    for number in range(messages):
        chunks = chunked(_producer(random), _sent(random, null=False), random.randint(2, 4), f"uuid-{number}")
        entries = _interleaved(random, entries, chunks)
    entries = [replace(entry, broker=_broker(random), checksum=random.random() < 0.5) for entry in entries]
    return [_with_first_chunk(entries, number) for number in range(len(entries))]


@st.composite
def cut_into_runs(draw: st.DrawFn, entries: Sequence[bytes]) -> list[EntryRun]:
    """The entries in runs of any length, as reading gives them."""
    random = Random(draw(st.integers(0, 2**64)))
    cuts = sorted({0, len(entries), *(random.randint(0, len(entries)) for _ in range(random.randint(0, 4)))})
    gap = random.choice([b"", bytes(12)])
    return [run_of(entries[a:b], a, gap=gap) for a, b in pairwise(cuts)]


def _entry(random: Random, compacted: bool) -> Encoded:
    kind = random.choice(["single", "batch", "batch", "marker"])
    if kind == "single":
        return single(_producer(random), _sent(random))
    if kind == "marker":
        return marker()
    sents = [_sent(random) for _ in range(random.randint(1, 8))]
    if compacted:
        sents = [replace(sent, compacted_out=random.random() < 0.25) for sent in sents]
    return batch(_producer(random), sents, own_sequence_ids=random.random() < 0.5)


def _sent(random: Random, *, null: bool = True) -> Sent:
    values = [
        random.randbytes(random.choice([0, 1, random.randint(0, 40)])),
        b"some text " * random.choice([0, 1, random.randint(0, 400)]),
    ]
    properties = [(random.choice(["a", "b", "ab", "bb"]), _text(random)) for _ in range(random.choice([0, 0, 1, 2, 3]))]
    return Sent(
        value=random.choice([*values, None] if null else values),
        key=random.choice([None, b"", b"k", b"key-1", b"x" * 130]),
        key_is_bytes=random.random() < 0.5,
        properties=tuple(properties),
        event_time=random.choice([0, 1, 1_600_000_000_000]),
        sequence_id=random.choice(_NUMBERS),
        ordering_key=random.choice([None, random.randbytes(random.randint(0, 3))]),
    )


def _producer(random: Random) -> Producer:
    return Producer(
        name=random.choice(["p", "standalone-0-12", "größer"]),
        publish_time=random.choice([1, 1_700_000_000_000, 1_700_000_000_500]),
        compression=random.choice(_CODECS),
        schema_version=random.choice([None, random.randbytes(random.randint(0, 8))]),
        replicated_from=random.choice([None, "west"]),
    )


def _broker(random: Random) -> tuple[int, int] | None:
    large = random.randint(1, 2 ** random.randint(1, 41)), random.randint(1000, 2 ** random.randint(10, 50))
    return random.choice([None, large])


def _text(random: Random) -> str:
    return "".join(random.choice(_LETTERS) for _ in range(random.randint(0, 3)))


def _interleaved(random: Random, some: list[T], others: list[T]) -> list[T]:
    takes = [0] * len(some) + [1] * len(others)
    random.shuffle(takes)
    sources = (iter(some), iter(others))
    return [next(sources[take]) for take in takes]


def _with_first_chunk(entries: list[Encoded], number: int) -> Encoded:
    entry = entries[number]
    if not entry.rows or not entry.metadata.uuid:
        return entry
    first = next(n for n, e in enumerate(entries) if e.metadata.uuid == entry.metadata.uuid)
    return replace(entry, first_chunk_back=number - first)

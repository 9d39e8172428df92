"""Entries, objects and fixtures for the tests of the format."""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from random import Random

import crc32c
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageMetadata
from offloader.format.cutter import CutPart, PartCutter
from offloader.format.entry import UNREADABLE
from offloader.format.index import index_of_segment
from offloader.model import GIB, LedgerRange, SegmentLayout, merge_ranges

FIXTURES = Path(__file__).parent.parent / "fixtures"
TIMESTAMP = 1_700_000_000_000


@dataclass(frozen=True)
class Fixture:
    """A pair of objects that Pulsar's classes wrote; `entries` are (entry id, sha256)."""

    data: bytes
    index: bytes
    entries: list[tuple[int, str]]


def fixture(name: str, key: str) -> Fixture:
    folder = FIXTURES / name
    packed = folder / f"{key}.xz"
    data = lzma.decompress(packed.read_bytes()) if packed.exists() else (folder / key).read_bytes()
    listed = json.loads((folder / "entries.json").read_text())
    return Fixture(data, (folder / f"{key}-index").read_bytes(), [(e["entryId"], e["sha256"]) for e in listed])


def v1_one_block() -> Fixture:
    return fixture("v1_one_block", "11111111-1111-1111-1111-111111111111-ledger-7")


def v1_tiny_blocks() -> Fixture:
    return fixture("v1_tiny_blocks", "33333333-3333-3333-3333-333333333333-ledger-9")


def v2_one_ledger_one_block() -> Fixture:
    return fixture("v2_one_ledger_one_block", "44444444-4444-4444-4444-444444444444")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def checksummed(metadata: MessageMetadata, payload: bytes = b"payload") -> bytes:
    body = plain(metadata, payload)
    return b"\x0e\x01" + crc32c.crc32c(body).to_bytes(4, "big") + body


def plain(metadata: MessageMetadata, payload: bytes = b"payload") -> bytes:
    encoded = metadata.SerializeToString()
    return len(encoded).to_bytes(4, "big") + encoded + payload


def broker_metadata(time: int | None = None, index: int | None = None) -> bytes:
    encoded = BrokerEntryMetadata(broker_timestamp=time, index=index).SerializeToString()
    return b"\x0e\x02" + len(encoded).to_bytes(4, "big") + encoded


@dataclass(frozen=True)
class Stored:
    ledger: int
    entry: int
    data: bytes


@st.composite
def streams(draw: st.DrawFn, max_entries: int = 40) -> list[Stored]:
    """A topic's entries in order: several ledgers, gaps, sizes from nothing to several blocks, ids up to 2^53 and
    more."""
    ledger = draw(st.sampled_from([0, 7, 2**53 + 1]))
    entry = draw(st.sampled_from([0, 0, 5, 2**31]))
    random = Random(draw(st.integers(0, 2**32)))
    stream = []
    steps = st.tuples(st.sampled_from("nnnnnngl"), st.one_of(st.integers(0, 60), st.integers(0, 1500)))
    for step, size in draw(st.lists(steps, min_size=1, max_size=max_entries)):
        if step == "l":
            ledger, entry = ledger + random.randint(1, 3), random.choice([0, 0, 4])
        elif step == "g":
            entry += random.randint(1, 3)
        stream.append(Stored(ledger, entry, random.randbytes(size)))
        entry += 1
    return stream


def small_cuts() -> st.SearchStrategy[SegmentLayout]:
    """Cuts that a few entries of `streams` fill."""
    return st.builds(
        SegmentLayout,
        part_size=st.integers(150, 4000),
        block_size=st.integers(140, 1500),
        index_step=st.integers(20, 600),
    )


def cutter(cuts: SegmentLayout, room: int = GIB) -> PartCutter:
    """A cutter at an object's beginning."""
    return PartCutter(cuts, first_part=1, offset=0, first_block=1, room=room)


def cut_all(stream: list[Stored], cuts: SegmentLayout) -> list[CutPart]:
    """A whole segment, cut in one go."""
    working = cutter(cuts)
    parts = [working.offer(s.ledger, s.entry, s.data, UNREADABLE) for s in stream]
    return [p for p in (*parts, working.finish()) if p is not None]


@dataclass(frozen=True)
class Sealed:
    """A segment's two objects."""

    data: bytes
    index: bytes
    ledgers: tuple[LedgerRange, ...]


def sealed(parts: list[CutPart]) -> Sealed:
    data = b"".join(p.data() for p in parts)
    ledgers = merge_ranges(r for p in parts for r in p.ledgers)
    return Sealed(data, index_of_segment([e for p in parts for e in p.index], ledgers, len(data), TIMESTAMP), ledgers)

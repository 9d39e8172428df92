"""Archived topics with entries of every kind, and what consumers get of them: written down without the reader's code.

`expected` holds for each place what is delivered; None: a consumer passes over it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER
from offloader.gateway.entries.archived import ArchivedTopicEntries
from offloader.gateway.entries.missing import OnMissing
from offloader.gateway.entries.reader import KeptReaders
from offloader.model import Place, Position, TopicName
from offloader.ports.object_store import ObjectStore
from tests.archive.messages.encoder import Encoded, Producer, Sent, batch, chunked, single
from tests.archive.support import TOPIC, Archive, gap
from tests.format.support import Stored, small_cuts

START = 1_700_000_000_000
ABORTED, COMMITTED = (0, 7), (1, 9)


class Expected(NamedTuple):
    """What a consumer gets of an entry."""

    data: bytes
    skip: int
    messages: int
    deliver_at: int
    time: int


@dataclass
class Topic:
    """`lost`: the first and the last place of each loss. `ledgers`: see the port."""

    archive: Archive = field(default_factory=Archive)
    expected: dict[Place, Expected | None] = field(default_factory=dict)
    lost: list[tuple[Place, Place]] = field(default_factory=list)
    ledgers: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def delivered(self) -> list[tuple[Place, Expected]]:
        return [(place, each) for place, each in sorted(self.expected.items()) if each is not None]

    @property
    def places(self) -> list[Place]:
        return sorted(self.expected)


def opened(
    store: ObjectStore,
    on_missing: OnMissing = OnMissing.FAIL,
    kept: KeptReaders | None = None,
    name: TopicName = TOPIC,
    *,
    read_size: int = 4096,
    prefetch: int = 0,
) -> ArchivedTopicEntries:
    archive = OpenArchive(Stores.of(store))
    options = ReadOptions(read_size=read_size, prefetch=prefetch)
    return ArchivedTopicEntries(archive, name, kept or KeptReaders(), on_missing=on_missing, options=options)


@st.composite
def topics(draw: st.DrawFn, *, losses: bool = True) -> Topic:
    """One or two incarnations of several ledgers: segments cut anywhere, gaps, losses, copies of stock ledgers."""
    random = Random(draw(st.integers(0, 2**32)))
    cuts = draw(small_cuts())
    topic, ledger = Topic(), 0
    clock = START
    for incarnation in range(draw(st.integers(1, 2))):
        topic.archive.incarnation = incarnation
        ids = [ledger + 1 + 3 * n for n in range(random.randint(1, 4))]
        ledger = ids[-1]
        topic.archive.claim(ids[0], created=incarnation)
        for held in ids:
            entries, clock = _entries(random, clock)
            for number, (_, expected) in enumerate(entries):
                topic.expected[held, number] = expected
            topic.ledgers.append((incarnation, held, len(entries) - 1))
            stored = [Stored(held, number, data) for number, (data, _) in enumerate(entries)]
            if random.random() < 0.3:
                topic.archive.add_copy(stored, block_size=random.choice([2000, 9000]), cuts=cuts)
            else:
                _stream(topic, random, stored, losses=losses, cuts=cuts)
    return with_abort(topic)


def _stream(topic: Topic, random: Random, stored: list[Stored], *, losses: bool, cuts: object) -> None:
    ledger, last = stored[0].ledger, stored[-1].entry
    incarnation = topic.archive.incarnation
    while stored:
        count = random.randint(1, len(stored))
        mine, stored = stored[:count], stored[count:]
        first, after = mine[0].entry, mine[-1].entry
        if losses and random.random() < 0.15:
            topic.archive.lose(Position(incarnation, ledger, first), Position(incarnation, ledger, after))
            topic.lost.append(((ledger, first), (ledger, after)))
            topic.expected |= {(ledger, each.entry): None for each in mine}
            if not stored:
                topic.archive.closed(ledger, last)
            continue
        gone = {each.entry for each in mine if random.random() < 0.1}
        topic.expected |= {(ledger, entry): None for entry in gone}
        held = [each for each in mine if each.entry not in gone]
        topic.archive.add(held, [gap(ledger, n, n) for n in sorted(gone)], closed={ledger: last}, cuts=cuts)


def _entries(random: Random, clock: int) -> tuple[list[tuple[bytes, Expected | None]], int]:
    found: list[tuple[bytes, Expected | None]] = []
    for _ in range(random.choice([1, 5, 30, 150])):
        clock += random.choice([0, 0, 1, 50])
        found += _some(random, clock)
    return found, clock


def _some(random: Random, now: int) -> list[tuple[bytes, Expected | None]]:
    producer = Producer(random.choice(["p", "größer"]), publish_time=now - random.choice([0, 3]))
    kind = random.choice(["single"] * 6 + ["batch"] * 3 + ["chunks", "marker", "aborted", "committed", "odd", "none"])
    broker = None if producer.publish_time == now and random.random() < 0.5 else (now, random.randint(0, 10**6))
    if kind == "none":
        return [(random.randbytes(random.choice([0, 1, 5, 40])), None)]
    if kind == "batch":
        made = [batch(producer, [Sent(b"v%d" % n, key=b"k") for n in range(random.randint(1, 9))])]
    elif kind == "chunks":
        made = chunked(producer, Sent(b"x" * 100), random.randint(2, 4), f"uuid-{now}")
    else:
        made = [single(producer, Sent(random.randbytes(random.choice([0, 10, 500])), key=random.choice([None, b"k"])))]
    made = [replace(each, broker=broker, checksum=random.random() < 0.8) for each in made]
    return [_finished(random, kind, each, now) for each in made]


def _finished(random: Random, kind: str, made: Encoded, now: int) -> tuple[bytes, Expected | None]:
    metadata: MessageMetadata = made.metadata
    if kind == "marker":
        metadata.marker_type = random.choice([1, 10, COMMIT_MARKER, ABORT_MARKER])
    if kind in ("aborted", "committed") or kind == "marker":
        chosen = ABORTED if kind == "aborted" else COMMITTED
        metadata.txnid_most_bits, metadata.txnid_least_bits = (0, 0) if kind == "marker" else chosen
    if kind == "single" and random.random() < 0.1:
        metadata.deliver_at_time = now + 60_000
    if kind == "odd":  # a group, which only protobuf itself can read
        made = replace(made, metadata=MessageMetadata.FromString(metadata.SerializeToString() + b"\xa3\x06\xa4\x06"))
    skip = len(made.data) - len(replace(made, broker=None).data)
    if kind in ("marker", "aborted"):
        return made.data, None
    return made.data, Expected(made.data, skip, made.messages, metadata.deliver_at_time, now)


def with_abort(topic: Topic) -> Topic:
    """The abort is written at the topic's end."""
    incarnation, ledger, _ = topic.ledgers[-1]
    metadata = MessageMetadata(producer_name="", sequence_id=0, publish_time=1, marker_type=ABORT_MARKER)
    metadata.txnid_most_bits, metadata.txnid_least_bits = ABORTED
    place = (ledger + 1, 0)
    topic.archive.incarnation = incarnation
    topic.archive.add([Stored(*place, Encoded(metadata, b"").data)], closed={ledger + 1: 0})
    topic.expected[place] = None
    topic.ledgers.append((incarnation, *place))
    return topic

"""A store that has a topic of any number of segments: each object is made, by the product's own code, when it is asked
for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from hashlib import md5

from offloader.errors import ObjectNotFoundError
from offloader.metadata.catalog import linked
from offloader.metadata.catalog_codec import encode_catalog, standing
from offloader.metadata.layout import catalog_folder, manifests_folder, newest_key, parse_topic_key
from offloader.metadata.manifest import FAN, Manifest, ManifestNode, ManifestRow, frontier, leaf
from offloader.metadata.manifest_codec import encode_manifest
from offloader.metadata.state import CatalogHead, Claim, NewestSegment, Said, record_uuid
from offloader.model import (
    Ending,
    EntryStats,
    LedgerRange,
    Part,
    Position,
    RollReason,
    Segment,
    SegmentLayout,
    Source,
    TopicName,
)
from offloader.ports.object_store import Stat

MINUTE = 60_000


class LongTopic:
    """A claim, then `segments` of `parts` parts each, one a minute, all in one ledger."""

    def __init__(self, topic: TopicName, segments: int, parts: int, part_size: int) -> None:
        self.topic = topic
        self.segments = segments
        self.parts = parts
        self.part_size = part_size
        self.entries = parts * 80

    @cached_property
    def claim(self) -> Claim:
        return Claim("app", 0, 0, Position(0, 1, 0), 1)

    def segment(self, number: int) -> Segment:
        """Segments count from 0."""
        first, begin = number * self.entries, number * MINUTE
        made = tuple(self._part(number, index, first + 80 * index, begin) for index in range(self.parts))
        return Segment(
            _uuid(number),
            Position(0, 1, first),
            Position(0, 1, first + self.entries - 1),
            begin,
            begin + MINUTE,
            self.parts * self.part_size,
            number,
            SegmentLayout(),
            Source.BROKER,
            RollReason.SIZE,
            (LedgerRange(1, first, first + self.entries, count=self.entries, size=self.parts * self.part_size),),
            made,
            predecessor_uuid=_uuid(number - 1) if number else "",
            predecessor_end=Position(0, 1, first - 1) if number else None,
        )

    def _part(self, number: int, index: int, first: int, begin: int) -> Part:
        times = begin + index * MINUTE // self.parts, begin + (index + 1) * MINUTE // self.parts
        held = (LedgerRange(1, first, first + 80, count=80, size=self.part_size - 1_000),)
        etag = md5(f"{number} {index}".encode(), usedforsecurity=False).hexdigest()  # as random as those of a store
        stats = EntryStats(8_000, *times, *times, 100 * first, 100 * first + 7_999)
        return Part(index + 1, index * self.part_size, self.part_size, etag, int(etag[:8], 16), 8, held, 32, stats)

    def record(self, slot: int) -> Said:
        return self.claim if slot == 0 else self.segment(slot - 1)

    def before(self, slot: int) -> CatalogHead:
        """What so many records add up to."""
        head = CatalogHead(self.topic)
        if slot == 0:
            return head
        head = head.after(linked(head, self.claim))
        count = slot - 1
        if count == 0:
            return head
        last = self._short(count - 1)
        return replace(
            head,
            end=last.end,
            newest=last,
            next_slot=slot,
            segments=count,
            entries=count * self.entries,
            size=count * self.parts * self.part_size,
            last=Ending(last.uuid, last.end),
        )

    def _short(self, number: int) -> NewestSegment:
        first = number * self.entries
        start, end = Position(0, 1, first), Position(0, 1, first + self.entries - 1)
        return NewestSegment(_uuid(number), start, end, self.parts * self.part_size, number)

    def row(self, slots: range) -> ManifestRow:
        """Of consecutive records."""
        first, last = max(slots[0] - 1, 0), slots[-1] - 1
        count = last - first + 1
        if count <= 0:
            return ManifestRow()
        return ManifestRow(
            Position(0, 1, first * self.entries),
            Position(0, 1, (last + 1) * self.entries - 1),
            first * MINUTE,
            (last + 1) * MINUTE,
            segments=count,
            entries=count * self.entries,
            size=count * self.parts * self.part_size,
        )


class LongStore:
    """What is read of them, as an `ObjectStore` gives it, and how often and how much. What was made is kept: a second
    reader does not wait."""

    url = "memory://long"
    retry_deadline = longest_call = 0.0

    def __init__(self, *topics: LongTopic) -> None:
        self._topics = {each.topic: each for each in topics}
        self._made: dict[str, bytes] = {}
        self.requests = 0
        self.bytes = 0

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        """See `ObjectStore.read`."""
        self.requests += 1
        data = self._object(key)
        if data is None:
            raise ObjectNotFoundError(key)
        part = data[offset : None if length is None else offset + length]
        self.bytes += len(part)
        return part, Stat(len(data), key)

    def stat(self, key: str) -> Stat | None:
        """See `ObjectStore.stat`."""
        self.requests += 1
        return Stat(0, key) if self._is_there(key) else None

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        """See `ObjectStore.list`: of logs only."""
        self.requests += 1
        for topic in self._topics.values():
            folder = catalog_folder(topic.topic)
            if folder.startswith(prefix):
                said = parse_topic_key(start_after)
                first = 0 if said is None else said.slot + 1
                for slot in range(first, topic.segments + 1):
                    self.bytes += 300  # about what S3 says of an object
                    yield f"{folder}{slot:020d}", 0

    def _is_there(self, key: str) -> bool:
        parsed = parse_topic_key(key)
        if parsed is None or parsed.topic not in self._topics:
            return False
        there = self._topics[parsed.topic].segments + 1
        if parsed.slot >= 0:
            return parsed.slot < there
        name = key.removeprefix(manifests_folder(parsed.topic))
        level, _, number = name.partition("-")
        if not number:
            return there >= FAN
        return ManifestNode(0 if level == "records" else int(level), int(number)).slots[-1] < there

    def _object(self, key: str) -> bytes | None:
        if key not in self._made and self._is_there(key):
            self._made[key] = self._new(key)
        return self._made.get(key)

    def _new(self, key: str) -> bytes:
        parsed = parse_topic_key(key)
        assert parsed is not None
        topic = self._topics[parsed.topic]
        if key == newest_key(topic.topic, 0):
            return str((topic.segments + 1) // FAN).encode()
        if parsed.slot >= 0:
            return _slot(topic, parsed.slot)
        level, _, number = key.removeprefix(manifests_folder(topic.topic)).partition("-")
        slots = ManifestNode(0, int(number)).slots
        if level == "records":
            return b"".join(_slot(topic, slot) for slot in slots)
        node = ManifestNode(int(level), int(number))
        if node.level > 0:
            return encode_manifest(
                topic.topic, Manifest(node, tuple(topic.row(node.child(n).slots) for n in range(FAN)))
            )
        before = [topic.row(each.slots) for each in frontier(node.number)]
        lengths = [len(_slot(topic, slot)) for slot in slots]
        return encode_manifest(topic.topic, leaf(node.number, [topic.record(slot) for slot in slots], lengths, before))


def _slot(topic: LongTopic, slot: int) -> bytes:
    record = linked(topic.before(slot), topic.record(slot))
    return standing(topic.before(slot), encode_catalog(record_uuid(topic.topic, record), record))


def _uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"

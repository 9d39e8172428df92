"""Looks at what nothing names: which object it is, which entries it has, and whether that makes it an orphan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from offloader.lifecycle.bucket.extents import Contents, NoExtent, together
from offloader.lifecycle.bucket.names import ObjectKind, PlacedKey, TopicNames
from offloader.lifecycle.bucket.orphans import BucketOrphan
from offloader.lifecycle.bucket.reading import folder_of, is_claimed, read_contents
from offloader.lifecycle.bucket.verdicts import OF_SEGMENTS, Doubts, ruling
from offloader.metadata.beside import is_buried
from offloader.metadata.layout import data_key, index_key, parse_topic_key, record_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore, Stat


@dataclass(frozen=True, slots=True)
class UnnamedKey:
    """A key that nothing names, as it was listed."""

    key: str
    size: int
    place: PlacedKey


def judged(
    store: ObjectStore,
    group: Sequence[UnnamedKey],
    names: Mapping[TopicName, TopicNames],
    doubts: Doubts,
    *,
    alone: bool,
) -> list[BucketOrphan]:
    """What belongs together: the objects of one uuid, which have one verdict, or a folder. Looks at each again.

    `alone`: not all of them may be in the group; the others are looked for."""
    place = group[0].place
    known = None if place.topic is None else names.get(place.topic)
    if place.folder:
        ruled = ruling(place, NoExtent.JUNK, known, doubts.now_ms, Doubts(doubts.now_ms, 0, doubts.of_all))
        kind = place.kind or ObjectKind.OLD_GENERATION
        size = sum(each.size for each in group)
        return [BucketOrphan(place.folder, kind, size, "", None, ruled, place.topic, known)]
    if place.kind is ObjectKind.OWNERLESS_CLAIM and is_claimed(store, group[0].key):
        return []
    contents = _contents(store, group, alone=alone)
    seen = ((each, store.stat(each.key)) for each in group)
    return [_orphan(each, stat, contents, known, doubts) for each, stat in seen if stat is not None]


def _contents(store: ObjectStore, group: Sequence[UnnamedKey], *, alone: bool) -> Contents:
    place = group[0].place
    if place.kind is ObjectKind.DELETED and place.parsed is not None:
        buried = is_buried(store, place.parsed.topic, place.parsed.uuid)
        return NoExtent.BURIED if buried else NoExtent.JUNK
    if place.kind not in OF_SEGMENTS:
        return NoExtent.JUNK
    keys = {each.key for each in group}
    if alone:
        keys |= {key for each in group for key in _siblings(each.key)}
    parsed = ((key, parse_topic_key(key)) for key in sorted(keys))
    read = (read_contents(store, key, each) for key, each in parsed if each is not None)
    return together([each for each in read if each is not None])


def _orphan(
    unnamed: UnnamedKey, stat: Stat, contents: Contents, names: TopicNames | None, doubts: Doubts
) -> BucketOrphan:
    place, modified = unnamed.place, stat.modified_at or None
    ruled = ruling(place, contents, names, modified, doubts)
    kind = place.kind or ObjectKind.DATA
    return BucketOrphan(unnamed.key, kind, stat.size, stat.etag, modified, ruled, place.topic, names)


def group_of(key: str, place: PlacedKey) -> str:
    """What it belongs together with: all objects of one uuid have one verdict."""
    if place.folder:
        return place.folder
    return key if place.parsed is None or not place.parsed.uuid else f"{folder_of(key)}/{place.parsed.uuid}"


def _siblings(key: str) -> Iterator[str]:
    """The keys of all objects that a segment may have."""
    parsed = parse_topic_key(key)
    if parsed is not None and parsed.uuid:
        yield from (make(parsed.topic, parsed.uuid) for make in (data_key, index_key, record_key))

"""The whole bucket: every key below the root against all that names any.

Keys first, then journals, then catalogs, the way that a segment goes; then each candidate again. Whole topics together,
some tens of thousands of keys at a time: in memory are the keys of one such share, of which the largest topic is one,
the names of its topics, and all orphans that were found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from offloader.ahead import map_ahead
from offloader.errors import FormatVersionError, IntegrityError
from offloader.lifecycle.bucket.extents import Contents, NoExtent, together
from offloader.lifecycle.bucket.names import (
    KeyStanding,
    NamesInForce,
    ObjectKind,
    PlacedKey,
    TopicNames,
    placed,
)
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.lifecycle.bucket.reading import folder_of, is_claimed, read_contents, read_names, rescues_of, store_time
from offloader.lifecycle.bucket.verdicts import OF_SEGMENTS, Doubts, ruling
from offloader.metadata.beside import is_buried
from offloader.metadata.journal_reading import applications, read_journals
from offloader.metadata.journals import Journals
from offloader.metadata.layout import KeyKind, data_key, index_key, parse_topic_key, record_key, topic_of
from offloader.metadata.root import read_root
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore, OpenUpload, Stat

READERS = 8
KEYS_TOGETHER = 50_000


@dataclass
class _Found:
    orphans: list[BucketOrphan] = field(default_factory=list)
    counts: Counter[KeyStanding] = field(default_factory=Counter)
    sizes: Counter[KeyStanding] = field(default_factory=Counter)


class BucketScanner:
    """Scans one root. `grace_ms`: what is younger is never certain. `cluster`: ours, where that is known; `progress`
    hears how many more objects were looked at."""

    def __init__(
        self,
        store: ObjectStore,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
        grace_ms: int,
        *,
        cluster: str | None = None,
        progress: Callable[[int], None] = lambda _: None,
        keys_together: int = KEYS_TOGETHER,
    ) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._new_token = new_token
        self._grace_ms = grace_ms
        self._cluster = cluster
        self._progress = progress
        self._keys_together = keys_together

    def scan(self) -> ObjectScan:
        """Everything below the root. Raises ConfigError where there is no archive; what the store raises."""
        cluster, refusals = self._root()
        now = self.now()
        found = _Found()
        with ThreadPoolExecutor(READERS, "bucket-scan") as pool:
            uploads = list(self._store.list_uploads())
            journals = self.journals()
            broken = dict.fromkeys(_told(journals))
            found.orphans += self._uploads(uploads, journals, self._doubts(now, refusals, journals))
            for listed in _shares(self._store.list(), self._keys_together):
                journals = self.journals()
                broken |= dict.fromkeys(_told(journals))
                self._share(pool, listed, journals, cluster, self._doubts(now, refusals, journals), found)
                self._progress(len(listed))
        orphans = tuple(sorted(found.orphans, key=lambda each: (each.key, each.upload)))
        versions = self._store.keeps_versions()
        return ObjectScan(now, orphans, found.counts, found.sizes, (*refusals, *broken), versions)

    def look(
        self, keys: Sequence[str], uploads: Sequence[OpenUpload], grace_ms: int = 0
    ) -> tuple[dict[str, BucketOrphan | str], ObjectScan]:
        """Some keys and uploads by the same rules. By key or handle: what it is, or who names it; what is not there is
        left out. By default no grace: the second phase has one of its own."""
        cluster, refusals = self._root()
        now, found = self.now(), _Found()
        with ThreadPoolExecutor(READERS, "bucket-scan") as pool:
            there = [
                (key, stat.size)
                for key, stat in zip(keys, pool.map(self._store.stat, keys), strict=True)
                if stat is not None
            ]
            journals = self.journals()
            doubts = self._doubts(now, refusals, journals, grace_ms)
            named = self._share(pool, there, journals, cluster, doubts, found, alone=True)
            found.orphans += self._uploads(uploads, journals, doubts)
        told: dict[str, BucketOrphan | str] = dict(named)
        told |= {each.upload: "a journal names it" for each in uploads}
        told |= {each.id: each for each in found.orphans}
        refusals = (*refusals, *_told(journals))
        return told, ObjectScan(now, tuple(found.orphans), found.counts, found.sizes, refusals)

    def now(self) -> int:
        """By the store's clock."""
        return store_time(self._store, self._clock_ms, self._new_token)

    def journals(self) -> Journals:
        """As they are now."""
        return read_journals(self._store, applications(self._store))

    def _root(self) -> tuple[str, tuple[str, ...]]:
        """Whose root it is, and why nothing of it is certain. Raises ConfigError where there is none."""
        try:
            root = read_root(self._store)
        except (IntegrityError, FormatVersionError) as error:
            return self._cluster or "", (f"Whose root this is cannot be read: {error}",)
        if self._cluster is not None and root.cluster != self._cluster:
            return root.cluster, (f"This root is of cluster {root.cluster}, not of {self._cluster}.",)
        return root.cluster, ()

    def _doubts(self, now: int, refusals: tuple[str, ...], journals: Journals, grace_ms: int | None = None) -> Doubts:
        broken = tuple(f"A journal cannot be read, which may name it: {each.why}." for each in journals.damaged)
        return Doubts(now, self._grace_ms if grace_ms is None else grace_ms, (*refusals, *broken))

    def _share(
        self,
        pool: ThreadPoolExecutor,
        listed: Sequence[tuple[str, int]],
        journals: Journals,
        cluster: str,
        doubts: Doubts,
        found: _Found,
        *,
        alone: bool = False,
    ) -> dict[str, str]:
        """Of keys that were listed before the journals were read. Returns who names those that something names.

        `alone`: not all keys of a segment are among these; the others are looked for."""
        topics = {topic for topic, _ in (topic_of(key) for key, _ in listed) if topic is not None}
        read = map_ahead(pool, partial(read_names, self._store), sorted(topics), 2 * READERS)
        in_force = {each.topic: each for each in read}
        rescues = rescues_of(pool, 2 * READERS, self._store, cluster, listed)
        names = NamesInForce(journals, cluster, in_force, rescues)
        groups: dict[str, list[UnnamedKey]] = defaultdict(list)
        named: dict[str, str] = {}
        for key, size in listed:
            place = placed(key, size, names)
            found.counts[place.standing] += 1
            found.sizes[place.standing] += size
            if place.standing is KeyStanding.UNNAMED:
                groups[group_of(key, place)].append(UnnamedKey(key, size, place))
            else:
                named[key] = place.by
        look = partial(judged, self._store, names=names.topics, doubts=doubts, alone=alone)
        for orphans in map_ahead(pool, look, groups.values(), 2 * READERS):
            found.orphans += orphans
        return named

    def _uploads(self, uploads: Iterable[OpenUpload], journals: Journals, doubts: Doubts) -> Iterator[BucketOrphan]:
        """They were listed before the journals were read."""
        for upload in uploads:
            parsed = parse_topic_key(upload.key)
            if parsed is None or parsed.kind is not KeyKind.DATA:  # nothing else of ours is uploaded in parts
                continue
            if journals.names_upload(parsed.topic, parsed.uuid, upload.upload):
                continue
            place = PlacedKey(KeyStanding.UNNAMED, ObjectKind.UPLOAD, "", parsed.topic, parsed)
            began = upload.began_at or None
            ruled = ruling(place, NoExtent.JUNK, None, began, doubts)
            yield BucketOrphan(upload.key, ObjectKind.UPLOAD, 0, "", began, ruled, parsed.topic, upload=upload.upload)


def _told(journals: Journals) -> tuple[str, ...]:
    """Why nothing may be deleted."""
    return tuple(f"A journal cannot be read: {each.why}" for each in journals.damaged)


def _shares(listed: Iterable[tuple[str, int]], most: int) -> Iterator[list[tuple[str, int]]]:
    """Whole topics together, at least so many keys."""
    share: list[tuple[str, int]] = []
    folder = ""
    for key, size in listed:
        if len(share) >= most and folder_of(key) != folder:
            yield share
            share = []
        folder = folder_of(key)
        share.append((key, size))
    if share:
        yield share


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

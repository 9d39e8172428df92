"""The whole root against what catalogs and journals name: objects and uploads that neither names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from offloader.archive.findings import Finding, FindingKind
from offloader.errors import ConfigError, FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.envelope import unwrap
from offloader.metadata.journal_start import JournalStart
from offloader.metadata.layout import (
    CLAIMS,
    DELETION,
    JOURNAL,
    PROOF,
    REQUESTS,
    ROOT,
    KeyKind,
    TopicKey,
    catalog_folder,
    epoch_folder,
    journal_folder,
    parse_topic_key,
)
from offloader.metadata.log import NumberedLog, read_record
from offloader.metadata.root import read_root
from offloader.metadata.state import TopicState
from offloader.model import OpenSegment, TopicName
from offloader.operations.verify.catalog_records import ReadCatalog
from offloader.ports.object_store import ObjectStore, OpenUpload


@dataclass(frozen=True, slots=True)
class Journals:
    """What the applications' journals hold. `ended`: taken over by another application; what these name is still named,
    but they open nothing any more."""

    states: Mapping[str, Mapping[TopicName, TopicState]]
    ended: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()  # each record's key and token

    @property
    def readable(self) -> bool:
        """Whether none of them is damaged."""
        return not self.findings

    def open_segments(self, topic: TopicName) -> list[tuple[str, OpenSegment]]:
        """The topic's segments that are not Offloaded yet, with the application that works on each."""
        held = [(name, state.open) for name, state in self.of(topic) if name not in self.ended]
        return [(name, segment) for name, segment in held if segment is not None]

    def of(self, topic: TopicName) -> Iterator[tuple[str, TopicState]]:
        """What each application's journal holds of a topic."""
        return ((name, topics[topic]) for name, topics in self.states.items() if topic in topics)


def applications(store: ObjectStore) -> list[str]:
    """Every application that has a journal; one listing call a thousand."""
    return [unquote(folder.split("/")[1]) for folder in store.folders(f"{JOURNAL}/")]


def read_journals(store: ObjectStore, names: Iterable[str]) -> Journals:
    """The journals as they are now. Raises only what the store raises."""
    states: dict[str, Mapping[TopicName, TopicState]] = {}
    ended: set[str] = set()
    findings: list[Finding] = []
    tokens: list[tuple[str, str]] = []
    for application in names:
        start = JournalStart(store, application)
        try:
            loaded = start.load()
            tokens += _tokens(store, application, loaded.epoch)
            states[application] = {topic: encoded.state for topic, encoded in start.decode(loaded).items()}
            if loaded.taken_over_by:
                ended.add(application)
        except (IntegrityError, FormatVersionError) as error:
            folder = journal_folder(application)
            named = re.search(rf"{re.escape(folder)}\d+/\d+", str(error))
            findings.append(Finding(FindingKind.DAMAGED_RECORD, named.group() if named else folder, str(error)))
    return Journals(states, frozenset(ended), tuple(findings), tuple(tokens))


def check_root(store: ObjectStore) -> Iterator[Finding]:
    """Whether `_root` can be read, which says whose root this is. Raises ConfigError where nothing is offloaded yet."""
    try:
        read_root(store)
    except ConfigError:
        if not any(parse_topic_key(key) for key, _ in store.list()):
            raise
        yield Finding(FindingKind.DAMAGED_RECORD, ROOT, "it is not there, though there are topics")
    except (IntegrityError, FormatVersionError) as error:
        yield Finding(FindingKind.DAMAGED_RECORD, ROOT, str(error).removeprefix(ROOT).lstrip(": "))


def _tokens(store: ObjectStore, application: str, epoch: int) -> Iterator[tuple[str, str]]:
    """Of the epoch's records as they are now: what is removed meanwhile is none any more."""
    log = NumberedLog(store, epoch_folder(application, epoch))
    for slot in log.slots():
        try:
            key = log.key(slot)
            yield key, unwrap(key, read_record(store, key)).token
        except ObjectNotFoundError:
            continue


def stray_objects(keys: Iterable[str], read: Mapping[TopicName, ReadCatalog], journals: Journals) -> Iterator[Finding]:
    """Objects that neither a catalog nor a journal names. `keys` were listed before both were read."""
    segments = {(topic, segment.uuid) for topic, r in read.items() for segment in r.catalog.segments}
    records = {(topic, record.uuid) for topic, r in read.items() for record in r.records}
    generations: set[tuple[TopicName, int]] = set()
    for key in keys:
        parsed = parse_topic_key(key)
        if parsed is None:
            yield from _of_no_topic(key)
        elif parsed.kind in (KeyKind.CATALOG, KeyKind.MANIFEST):
            topic, generation = parsed.topic, parsed.generation
            if topic in read and (topic, generation) not in generations:
                generations.add((topic, generation))
                yield from _not_in_force(topic, generation, read[topic].catalog.head.generation)
        elif (parsed.topic, parsed.uuid) not in (records if parsed.kind is KeyKind.RECORD else segments):
            yield from _unnamed(key, parsed, journals)


def _not_in_force(topic: TopicName, generation: int, in_force: int) -> Iterator[Finding]:
    if generation == in_force:
        return
    if generation < in_force:
        message = f"replaced by generation {in_force} of this catalog; it can be deleted"
    else:
        message = "of a rebuild that was interrupted; unless one is under way it can be deleted"
    yield Finding(FindingKind.LEFT_OVER, catalog_folder(topic, generation), message, topic)


def open_uploads(uploads: Iterable[OpenUpload], journals: Journals) -> Iterator[tuple[OpenUpload | None, Finding]]:
    """Uploads that no journal names; None in place of one that is not ours to end. `uploads` are listed before the
    journals are read, which know one that has just begun by its uuid."""
    for upload in uploads:
        parsed = parse_topic_key(upload.key)
        if parsed is None or parsed.kind is not KeyKind.DATA:  # nothing else of ours is uploaded in parts
            why = "its key is none that the offloader uploads to; it is left alone"
            message = f"another product's upload {upload.upload}: {why}"
            yield None, Finding(FindingKind.OPEN_UPLOAD, upload.key, message)
        elif not _names_upload(journals, parsed.topic, parsed.uuid, upload.upload):
            message = f"no journal names the upload {upload.upload}"
            yield upload, Finding(FindingKind.OPEN_UPLOAD, upload.key, message, parsed.topic)


def _of_no_topic(key: str) -> Iterator[Finding]:
    if key.startswith(f"{PROOF}/"):
        yield Finding(FindingKind.LEFT_OVER, key, "left by an interrupted start; it can be deleted")
    elif key != ROOT and not key.startswith((f"{JOURNAL}/", f"{REQUESTS}/", f"{CLAIMS}/", f"{DELETION}/")):
        yield Finding(FindingKind.STRAY_OBJECT, key, "its name is none that the offloader writes")


def _unnamed(key: str, parsed: TopicKey, journals: Journals) -> Iterator[Finding]:
    topic, uuid = parsed.topic, parsed.uuid
    held = [state for _, state in journals.of(topic)]
    if any(state.open is not None and state.open.uuid == uuid for state in held):
        return
    reason = next((a.reason for state in held for a in state.abandoned if a.uuid == uuid), None)
    if reason is not None:
        yield Finding(FindingKind.ABANDONED_OBJECT, key, f"abandoned: {reason}", topic)
    elif parsed.kind is KeyKind.RECORD:
        yield Finding(FindingKind.UNCOMMITTED_RECORD, key, "neither the catalog has it nor a journal names it", topic)
    else:
        yield Finding(FindingKind.STRAY_OBJECT, key, "neither a catalog nor a journal names it", topic)


def _names_upload(journals: Journals, topic: TopicName, uuid: str, upload: str) -> bool:
    for _, state in journals.of(topic):
        if state.open is not None and state.open.uuid == uuid and state.open.upload in (None, upload):
            return True
        if any(a.upload == upload or (a.uuid == uuid and a.upload is None) for a in state.abandoned):
            return True
    return False

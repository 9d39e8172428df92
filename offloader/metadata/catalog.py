"""The catalog: a topic's list of segments. Each append is an exact compare-and-set on the topic's next slot."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from offloader.ahead import unawaited_pool
from offloader.errors import (
    ClaimedByOtherError,
    DamagedRecordError,
    FormatVersionError,
    IntegrityError,
    ObjectNotFoundError,
    RemovedFeatureError,
    RetryableError,
)
from offloader.metadata import layout
from offloader.metadata.catalog_codec import LogRecord, decode_of, decode_slot, encode_catalog, standing
from offloader.metadata.deletions import (
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionRecord,
    DeletionUndone,
    PulsarTrimmed,
    Tombstone,
    TopicGone,
)
from offloader.metadata.generations import behind
from offloader.metadata.history import History, RecordCache
from offloader.metadata.listing import topics
from offloader.metadata.log import LARGEST_RECORD, READERS, NumberedLog, read_record
from offloader.metadata.manifest import FAN
from offloader.metadata.state import CatalogHead, Claim, LedgerClosed, Record, Said, TopicCatalog, record_uuid
from offloader.model import Loss, Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_whole

LONGEST_HINT = 20


class Heads(NamedTuple):
    """Heads by topic, and in one line why others cannot be read."""

    found: dict[TopicName, CatalogHead]
    failed: dict[TopicName, str]


class NewestRecord(NamedTuple):
    """A catalog's last record, as it was just read."""

    written: LogRecord
    etag: str


class Catalogs:
    """All catalogs of a root, as one application may write them; without an application: to read them. Safe to use from
    several threads.

    Who may append: the application that the topic's last claim names; where that names nobody (`released`), whoever
    appends a claim, or a record of a deletion (retention: only who had it last). `take_over_claim` and a rebuild go
    past this rule. In the store, only put-if-absent protects it: every process with its credentials is trusted."""

    def __init__(self, store: ObjectStore, application: str) -> None:
        self._store = store
        self._application = application
        self._logs: dict[tuple[TopicName, int], NumberedLog] = {}
        self._lock = threading.Lock()
        self._marked: set[TopicName] = set()

    def topics(self) -> Iterator[TopicName]:
        """Every topic that has a catalog. Asks the store about `READERS` of them at a time."""
        found = list(topics(self._store))
        with unawaited_pool(READERS, "catalog-reader") as pool:
            yield from (topic for topic, there in zip(found, pool.map(self.has, found), strict=True) if there)

    def has(self, topic: TopicName) -> bool:
        """Whether a topic has a catalog; one request."""
        return any(True for _ in self._store.folders(layout.generations_folder(topic)))

    def claimed(self) -> list[TopicName]:
        """Topics that the application may have claimed: all that it has, and some that it released. One listing."""
        keys = (layout.parse_claim_key(key) for key, _ in self._store.list(layout.claims_folder(self._application)))
        found = [said[1] for said in keys if said is not None]
        self._marked.update(found)
        return found

    def load(self, topic: TopicName) -> TopicCatalog:
        """A topic's whole catalog, empty where it has none. Raises DamagedRecordError, IntegrityError."""
        return self.refresh(TopicCatalog.empty(topic))

    def refresh(self, catalog: TopicCatalog) -> TopicCatalog:
        """A whole catalog with the records written since; reads only these, all after a rebuild. Raises as `load`."""
        history = self.history(catalog.topic, catalog.head)
        if history.head.generation != catalog.head.generation:
            catalog = TopicCatalog(CatalogHead(catalog.topic, generation=history.head.generation))
        since = history.read(range(catalog.next_slot, history.head.next_slot))
        return catalog.apply(*(written.record for written in since))

    def history(self, topic: TopicName, known: CatalogHead | None = None, cache: RecordCache | None = None) -> History:
        """A topic's records as they are now, for readers. `known`: a head from before. Raises as `load`."""
        head, newest = self._newest(known or CatalogHead(topic))
        history = History(self._store, head, cache)
        if newest is not None:
            history.keep(head.next_slot - 1, newest.written)
            history.last_etag = newest.etag
        return history

    def head(self, topic: TopicName) -> CatalogHead:
        """What the newest record says of all: a few requests, however long the catalog is. Raises as `load`."""
        return self.refresh_head(CatalogHead(topic))

    def refresh_head(self, head: CatalogHead) -> CatalogHead:
        """The head with the records written since. Raises as `load`."""
        return self._newest(head)[0]

    def heads(self, names: Iterable[TopicName]) -> Heads:
        """The heads of several topics. One that cannot be read stops no other. Raises what the store raises."""

        def head(topic: TopicName) -> CatalogHead | str:
            try:
                return self.head(topic)
            except (IntegrityError, FormatVersionError, RemovedFeatureError) as error:
                return f"{topic}: {str(error).removeprefix(f'{topic}: ')}"

        wanted = list(names)
        with ThreadPoolExecutor(READERS, "catalog-reader") as pool:
            found = dict(zip(wanted, pool.map(head, wanted), strict=True))
        return Heads(
            {topic: each for topic, each in found.items() if isinstance(each, CatalogHead)},
            {topic: each for topic, each in found.items() if isinstance(each, str)},
        )

    def append(self, head: CatalogHead, record: Said) -> CatalogHead:
        """Write the next record behind a loaded head; one that is there already is success.

        Each try writes a claim's marker, the record's own object, and the next slot, which alone counts. Where another
        process has begun a record in the same place, that one is finished first. A claim that the same application has
        begun for the same incarnation counts in place of a later one: it is in the returned head.

        Raises ClaimedByOtherError unless the application may append (see the class); RetryableError for a
        `DeletionBegun` where the catalog has changed since the head was loaded; IntegrityError where the record does
        not continue the catalog (any more); OutcomeUnknownError: until the head is read again (`refresh_head`), only
        the same record may be tried."""
        while not self._holds(head, record):
            self._check_claim(head, record)
            head, written = self._write(head, linked(head, record))
            if written:
                break
            if isinstance(record, DeletionBegun):  # it says that somebody has looked at all that stands before it
                raise RetryableError(f"{head.topic}: the catalog has changed since it was looked at")
            if isinstance(record, Deleting):  # what has been written meanwhile may follow on it
                record = _not_whole(record)
        if isinstance(record, Claim) and not record.application:
            self.unmark(head.topic)
        return head

    def take_over_claim(self, head: CatalogHead, former: str, at: int) -> CatalogHead:
        """Claim a topic in place of `former`, with everything else as it is. A no-op where `former` does not own it."""
        while head.claim is not None and head.claim.application == former:
            claim = replace(head.claim, application=self._application, at=at, reason=f"taken over from {former}")
            head, _ = self._write(head, linked(head, claim))
        if head.claim is not None and head.claim.application == self._application:
            self._store.delete([layout.claim_key(former, head.topic)])
        return head

    def pass_on(self, head: CatalogHead, to: str, at: int) -> CatalogHead:
        """Claim a topic of ours for another shard of the application, with everything else as it is. A no-op where it
        is not ours. Raises RetryableError where the catalog has changed since the head was read."""
        if head.claim is None or head.claim.application != self._application:
            return head
        self.mark_for(to, head.topic)
        claim = replace(head.claim, application=to, at=at, reason=f"passed on by {self._application}")
        head, written = self._write(head, linked(head, claim))
        if not written:
            raise RetryableError(f"{head.topic}: the catalog has changed since it was looked at")
        return head

    def mark(self, topic: TopicName) -> None:
        """Note that the application may have claimed a topic, for `claimed`; once in a process."""
        if topic not in self._marked:
            self.mark_for(self._application, topic)
            self._marked.add(topic)

    def mark_for(self, application: str, topic: TopicName) -> None:
        """The same of another application, which hears of the topic by its list of claims."""
        self._store.put(layout.claim_key(application, topic), str(topic).encode(), if_absent=True)

    def unmark(self, topic: TopicName) -> None:
        """The application has not claimed the topic any more."""
        try:
            self._store.delete([layout.claim_key(self._application, topic)])
        finally:
            self._marked.discard(topic)  # also where nobody knows whether it was deleted

    def _holds(self, head: CatalogHead, record: Said) -> bool:
        """Whether the catalog says this already. IntegrityError where it says something else of the same thing."""
        match record:
            case Claim():
                return head.claim is not None and replace(head.claim, former="") == replace(record, former="")
            case LedgerClosed():
                last = self._closed_with(head, record.incarnation, record.ledger)
                if last not in (None, record.last):
                    raise IntegrityError(
                        f"{head.topic}: ledger {record.ledger} was closed with {last}, not with {record.last}"
                    )
                return _vouched(record) in map(_vouched, head.closed) or (
                    last is not None and self._is_before(head, record.incarnation, record.ledger)
                )
            case Segment() | Loss():
                return head.is_behind(record.start) and self._has(head, record)
            case _:
                return _says(head, record)

    def _write(self, head: CatalogHead, record: Said) -> tuple[CatalogHead, bool]:
        """Write the record's own object, then the next slot. Returns the newest head, and whether it has the record."""
        _after(head, record)  # or it is refused before anything is written
        uuid = record_uuid(head.topic, record)
        key, data = layout.record_key(head.topic, uuid), _bytes(head, uuid, record)
        if isinstance(record, Deleting | DeletionBegun):
            following, written = self._put(head, record, data)
            if written:
                self._store.put(key, data, if_absent=True)
            return following, written
        if isinstance(record, Claim) and record.application:
            self.mark(head.topic)
        if head.next_slot == 0 and (left := self._left(head.topic, key)) is not None:
            reloaded = self.refresh_head(head)
            if reloaded.next_slot == 0:
                raise DamagedRecordError(
                    f"{head.topic} has no catalog, though {left} is there: `offloader catalog rebuild {head.topic}` "
                    "makes it anew"
                )
            return reloaded, False
        if self._store.put(key, data, if_absent=True) is not None:
            return self._put(head, record, data)
        begun, there = self._begun(head.topic, key, record)
        data = _bytes(head, uuid, begun)
        if there != data and head.removal is not None:  # begun before something was to be deleted: see `_bytes`
            self._store.put(key, data)
            there = data
        head, written = self._put(head, begun, there)
        return head, written and (begun == record or _counts_for(begun, record))

    def keep_deleting(self, head: CatalogHead) -> None:
        """Have the objects of the records of the pending deletion beside the segments, where an interruption left them
        out. Before anything goes: a rebuild would else not know why."""
        for record in (head.removed.pending, head.removed.begun):
            if record is not None:
                uuid = record_uuid(head.topic, record)
                key = layout.record_key(head.topic, uuid)
                if self._store.stat(key) is None:
                    data = encode_catalog(uuid, self._as_recorded(head, record))
                    self._store.put(key, data, if_absent=True)

    def _as_recorded(self, head: CatalogHead, record: Deleting | DeletionBegun) -> Said:
        """A head knows what has followed since: see `Removal.continued`."""
        uuid, history = record_uuid(head.topic, record), History(self._store, head)
        newest_first = history.read(range(head.next_slot - 1, -1, -1))
        return next((w.record for w in newest_first if isinstance(w.record, Said) and w.token == uuid), record)

    def _left(self, topic: TopicName, own: str) -> str | None:
        """The key of any object of a topic but one."""
        return next((key for key, _ in self._store.list(layout.topic_folder(topic)) if key != own), None)

    def _begun(self, topic: TopicName, key: str, wanted: Said) -> tuple[Said, bytes]:
        """The record that somebody began before in this one's place: it is finished first."""
        try:
            data = read_record(self._store, key)
        except ObjectNotFoundError as error:
            raise DamagedRecordError(f"{key} was refused as being there, but is not") from error
        begun = decode_of(topic, key, data)[1]
        if isinstance(wanted, Segment) and not _same(begun, wanted):
            raise IntegrityError(f"{key}: segment {wanted.uuid} has a record with other contents")
        if not isinstance(begun, Said):
            raise DamagedRecordError(f"{key}: a {type(begun).__name__} does not belong beside segments")
        return begun, data

    def _put(self, head: CatalogHead, record: Record, data: bytes) -> tuple[CatalogHead, bool]:
        """Try the next slot: the head with what is there now, and whether that is the record."""
        following = _after(head, record)
        log = self._log(head.topic, head.generation)
        if log.append(head.next_slot, standing(head, data)) is None:
            return following, True
        reloaded = self.refresh_head(head)
        if (reloaded.generation, reloaded.next_slot) == (head.generation, head.next_slot):
            raise DamagedRecordError(f"{log.key(head.next_slot)} was refused as being there, but is not")
        return reloaded, False

    def _closed_with(self, head: CatalogHead, incarnation: int, ledger: int) -> int | None:
        """A head knows the last entries of its end's ledger and later ones; for others we load the whole catalog."""
        if self._is_before(head, incarnation, ledger):
            return self.load(head.topic).closed.get((incarnation, ledger))
        return head.closed_with(incarnation, ledger)

    @staticmethod
    def _is_before(head: CatalogHead, incarnation: int, ledger: int) -> bool:
        return head.end is not None and (incarnation, ledger) < head.end[:2]

    def _check_claim(self, head: CatalogHead, record: Said) -> None:
        owner = head.claim.application if head.claim is not None else ""
        if owner and owner == self._application:
            return
        if not owner and (isinstance(record, Claim) or (head.claim is not None and isinstance(record, DeletionRecord))):
            return
        if head.claim is None:
            raise IntegrityError(f"{head.topic}: a {type(record).__name__} stands before any claim")
        raise ClaimedByOtherError(
            f"{head.topic} is claimed by {owner or 'nobody'}, not by {self._application}: "
            f"`offloader takeover` adopts another application's topics"
        )

    def _newest(self, head: CatalogHead) -> tuple[CatalogHead, NewestRecord | None]:
        """The head with the records written since, and the last of these. A writer's log then takes records again."""
        topic, generation = head.topic, head.generation
        log = self._log(topic, generation)
        first, said = (head.next_slot, 0) if head.next_slot else self._nearly_all(topic, generation)
        slots, newer = behind(self._store, topic, generation, first - 1)
        log.known()
        if newer is not None:
            return self._newest(CatalogHead(topic, generation=newer))
        for expected, slot in enumerate(slots, first):
            if slot != expected:
                raise DamagedRecordError(f"{log.key(expected)} is missing, though {log.key(slot)} is there")
        if first + len(slots) == head.next_slot:
            return head, None
        last = first + len(slots) - 1
        try:
            data, stat = read_whole(self._store, log.key(last), LARGEST_RECORD, DamagedRecordError)
            written = decode_slot(topic, generation, last, log.key(last), data)
        except ObjectNotFoundError as error:
            raise DamagedRecordError(
                f"{log.key(last)} is missing, though {layout.newest_key(topic, generation)} says that it is there"
            ) from error
        found = written.before.after(written.record)
        if found.continued_in is not None:  # a rebuild wrote that generation before, all but slot 0
            return self._newest(CatalogHead(topic, generation=found.continued_in, next_slot=1))
        if (
            said > found.next_slot
            and self._store.stat(summed := layout.manifest_key(topic, generation, 0, said // FAN - 1)) is not None
        ):
            raise DamagedRecordError(
                f"{log.key(found.next_slot)} is missing, though {summed} sums up what follows it: `offloader catalog "
                f"rebuild {topic}` makes the catalog anew; where that has nothing to do, what is missing is nowhere "
                f"any more: delete {layout.manifests_folder(topic, generation)}"
            )
        return found, NewestRecord(written, stat.etag)

    def _nearly_all(self, topic: TopicName, generation: int) -> tuple[int, int]:
        """A lower bound, close to the number of records (the hint's, else by trying slots); and what the hint says."""
        try:
            said = self._store.read(layout.newest_key(topic, generation), 0, LONGEST_HINT)[0]
        except ObjectNotFoundError:
            said = b""
        count = FAN * int(said) if said.isdigit() and len(said) < LONGEST_HINT else 0
        log = self._log(topic, generation)
        return (count if count and not log.is_empty(count - 1) else log.nearly_all(FAN)), count

    def _has(self, head: CatalogHead, record: Segment | Loss) -> bool:
        """Whether the catalog has this very record at its start."""
        history = History(self._store, head)
        around = history.slots(lambda row: row.holds(record.start))
        return any(_is(head, written.record, record) for slot in around for written in history.read([slot.number]))

    def _log(self, topic: TopicName, generation: int) -> NumberedLog:
        with self._lock:
            return self._logs.setdefault(
                (topic, generation), NumberedLog(self._store, layout.catalog_folder(topic, generation))
            )


def released(claim: Claim, at: int, reason: str) -> Claim:
    """The claim that ends a claim: nobody's, with everything else as it was."""
    return replace(claim, application="", at=at, reason=reason, released_by=claim.application)


def linked(head: CatalogHead, record: Said) -> Said:
    """A record as it stands behind this head: it names what it follows. A segment was told when it was assigned."""
    match record:
        case Claim():
            return replace(record, former="" if head.claim is None else record_uuid(head.topic, head.claim))
        case Loss():
            uuid, end = head.last or ("", None)
            return replace(record, predecessor_uuid=uuid, predecessor_end=end)
        case Deleting():
            return replace(record, number=head.removed.following)
        case _:
            return record


def _bytes(head: CatalogHead, uuid: str, record: Said) -> bytes:
    """Who does not know of deletions must not read a head that has some, nor take what it does not say for damage."""
    return encode_catalog(uuid, record, behind_deletions=head.removal is not None)


def _not_whole(record: Deleting) -> Deleting:
    return replace(record, ranges=tuple(replace(each, whole=False) for each in record.ranges))


def _says(head: CatalogHead, record: DeletionRecord) -> bool:
    """Whether the catalog says this of deletions already."""
    removed = head.removed
    pending = removed.pending
    match record:
        case Deleting():
            return pending is not None and _not_whole(replace(pending, number=record.number)) == _not_whole(record)
        case DeletionBegun():
            return pending is not None and pending.number == record.number and removed.begun is not None
        case TopicGone():
            return removed.gone is not None and removed.gone.incarnation == record.incarnation
        case PulsarTrimmed():
            known = removed.trimmed
            return known is not None and (known.incarnation, known.first) >= (record.incarnation, record.first)
        case _:
            return False


def _is(head: CatalogHead, there: Record, record: Segment | Loss) -> bool:
    """Whether a record that is there is this one. Raises IntegrityError where it is another one of the same uuid."""
    if isinstance(record, Loss):
        return isinstance(there, Loss) and replace(there, predecessor_uuid="", predecessor_end=None) == replace(
            record, predecessor_uuid="", predecessor_end=None
        )
    if not isinstance(there, Segment) or there.uuid != record.uuid:
        return False
    if not isinstance(there, Tombstone) and not _same(there, record):
        raise IntegrityError(f"{head.topic}: segment {record.uuid} is in the catalog with other contents")
    return True


def _counts_for(begun: Record, wanted: Said) -> bool:
    """Whether a record that was begun takes the place of a later one: of a deletion, the same step; a claim, one of the
    same application and incarnation.

    A claim must: the later one begins at a later position, and nobody would offload the entries between the two."""
    if isinstance(begun, DeletionUndone | DeletionBegun | Deleted):  # whoever said it, and when
        return type(begun) is type(wanted)
    if not isinstance(begun, Claim) or not isinstance(wanted, Claim):
        return False
    return (begun.application, begun.incarnation, begun.created) == (
        wanted.application,
        wanted.incarnation,
        wanted.created,
    )


def _same(first: Record, second: Segment) -> bool:
    """Whether both are one segment. They may differ in where its root lay: the first to write it says that."""
    return isinstance(first, Segment) and replace(first, driver_properties=()) == replace(second, driver_properties=())


def _vouched(closed: LedgerClosed) -> LedgerClosed:
    """The record without who vouched for it."""
    return replace(closed, vouched_by="")


def _after(head: CatalogHead, record: Record) -> CatalogHead:
    """The head with a record that is proven to follow. Raises IntegrityError."""
    if isinstance(record, Segment | Loss):
        head.check_follows(record)
    if isinstance(record, Deleted) and head.removed.pending is None:
        raise IntegrityError(f"{head.topic}: deletion {record.number} is not under way")
    for each in record.ranges if isinstance(record, Deleting) else ():
        before = head.removed.up_to(each.start.incarnation)
        if before is not None and each.start <= before:
            raise IntegrityError(f"{head.topic}: {each.start} is to be deleted, and all up to {before} is already")
    return head.after(record)

"""A subscription's log in the bucket: one owner after another, each in an epoch of its own.

Whoever becomes the owner puts a fence behind the last record of the one before, and begins the next epoch. Fences stay
for ever: a former owner that was paused for a year finds its next number taken. So does what is damaged, which may have
been a fence. Other records that the newest marker and the one before it do not name are removed, many at a time.

An owner that deletes the subscription never writes again. So its fence is removed with its records once there is a
later epoch: a name that is created and deleted again and again has one object.

A listing is not of one moment: it may have the fence, and not the last record before it. So the next owner believes one
only that began after the fence stood.

The newest epoch is listed first, and no more is listed than is needed: to open a subscription costs the same, however
often it was opened before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, dropwhile, groupby, islice

from offloader.cursors.core.records import (
    FORGOTTEN,
    HAND_OVER,
    FirstState,
    LedgerKey,
    PieceAt,
    PieceRecord,
    decode_record,
    encode_record,
)
from offloader.errors import (
    DamagedRecordError,
    FormatVersionError,
    ObjectNotFoundError,
    OvertakenError,
    StoreUnavailableError,
)
from offloader.metadata.envelope import encode_fence
from offloader.metadata.layout import newest_first, parse_subscription_place, parse_topic_key
from offloader.metadata.log import NumberedLog, read_record, removing_old_records
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)

TRIES = 20  # each is lost only to another process's progress
REMOVED_AT_ONCE = 100  # records: a write is one request, and not one more to remove what it makes needless
LOOKED_AT = 500  # places that an owner looks at when it begins; one request lists a thousand
Place = tuple[int, int]
"""Epoch and slot."""


class FencesAloneError(DamagedRecordError):
    """A fence proves that there was a record: it is lost, or was removed while this was listed."""


class HandedOverError(FormatVersionError):
    """The gateway has handed this subscription over to brokers, or had begun to. It is not served, and says nothing of
    what is acknowledged. It can be deleted."""


@dataclass(frozen=True, slots=True)
class Found:
    """The newest record that can be used, where it stands, and how many newer ones cannot."""

    place: Place
    record: PieceRecord
    unusable: int = 0


class CursorLog:
    """One subscription's log, owned by this process until another one opens it. One thread at a time."""

    def __init__(self, store: ObjectStore, folder: str, new_token: Callable[[], str]) -> None:
        """`folder`: with the closing slash."""
        self._store = store
        self._folder = folder
        self._new_token = new_token
        self._epoch = 0
        self._next_slot = 0
        self._tried: tuple[PieceRecord, bytes] | None = None
        self._is_deleted = False
        self._standing: set[Place] = set()  # records that a later one makes removable, fences left out
        self._former = frozenset[Place]()  # what the marker before the newest needs
        self._read_before: dict[Place, PieceRecord | None] = {}  # the newest ones: a place keeps its record

    @property
    def epoch(self) -> int:
        """This owner's."""
        return self._epoch

    @property
    def next_slot(self) -> int:
        """Where the next record goes."""
        return self._next_slot

    def newest(self, places: Iterable[Place] | None = None) -> Found | None:
        """The state as it is now, for whoever only looks; None: there is none. `places`: of its records, where they are
        known. Raises DamagedRecordError, HandedOverError."""
        known = self._places() if places is None else sorted(places, reverse=True)
        for left in reversed(range(TRIES)):
            try:
                return self._newest(known)
            except FencesAloneError:
                if not left:
                    raise
            except ObjectNotFoundError:  # its owner has gone on; an older one that still stands is not the newest
                pass
            known = self._places()
        raise StoreUnavailableError(f"{self._folder}: its owner removes records before they are read: try again")

    def written_at(self, place: Place) -> int:
        """When a record was written, in ms by the store's clock; 0: it does not say."""
        found = self._store.stat(self._key(place))
        return 0 if found is None else found.modified_at

    def open(self, first: Callable[[], FirstState] | None) -> Found:
        """Become the owner. `first`: finds the state of a subscription that has none yet, or was deleted; None: there
        was one a moment ago. Raises what that raises; OvertakenError where others open it at the same time, or have
        deleted it since; DamagedRecordError where no record can be used; HandedOverError."""
        return self._open(first, anew=False)

    def begin_anew(self, first: FirstState) -> Found:
        """The same with this state in any case, whatever there was, damage too."""
        return self._open(lambda: first, anew=True)

    def _open(self, first: Callable[[], FirstState] | None, *, anew: bool) -> Found:
        stood: Place | None = None  # before the listing began
        for left in reversed(range(TRIES)):
            listed = self._places()
            places = list(islice(listed, LOOKED_AT))
            if places and not self._is_fence(places[0]):
                stood = self._fence_behind(places[0])
                continue
            if places and places[0] != stood:  # the record before it may have come while this was listed, too
                stood = places[0]
                continue
            try:
                found = None if anew else self._newest(chain(places, listed))
            except FencesAloneError:
                if not left:
                    raise
                continue
            except ObjectNotFoundError:
                continue
            self._epoch, self._next_slot = (places[0][0] if places else 0) + 1, 0
            if found is not None and not _deletes(found.record):
                begun = PieceRecord(found.record.marker)
                self._former = frozenset({found.place}) | found.record.marker.records
            elif first is not None:
                begun = first().record(self._epoch)
                self._former = frozenset()
            else:
                raise OvertakenError(f"{self._folder}: another process has deleted this subscription")
            self._standing = set(self._former)
            needed = self._write(begun)
            newest = next(self._places(), None)
            if newest is not None and newest > (self._epoch, 0):  # this number was used and freed before
                raise OvertakenError(f"{self._folder}: another process has gone on to {newest}")
            self._standing.update(self._removable(places))
            self._remove_all_but(needed)
            self._read_before.clear()
            return Found((self._epoch, 0), begun, found.unusable if found else 0)
        raise OvertakenError(f"{self._folder}: another process writes all the time")

    def append(self, record: PieceRecord) -> None:
        """Write the next record. Raises OvertakenError, after which nothing more is written, as nothing is behind the
        record that deletes the subscription; after any other error, an unknown outcome, too, the same record is tried
        again."""
        needed = self._write(record)
        if _deletes(record):
            self._remove_all_but(frozenset({(self._epoch, self._next_slot - 1)}))
        elif len(self._standing - needed) >= REMOVED_AT_ONCE:
            self._remove_all_but(needed)

    def pieces(self, asked: Iterable[tuple[LedgerKey, PieceAt]]) -> dict[LedgerKey, bytes]:
        """The bytes of pieces; each record is read once. Raises DamagedRecordError; OvertakenError where a later owner
        has removed them."""
        wanted: dict[Place, list[LedgerKey]] = {}
        for ledger, piece in asked:
            wanted.setdefault(piece.record, []).append(ledger)
        found: dict[LedgerKey, bytes] = {}
        for place, ledgers in wanted.items():
            try:
                inline = self._inline(place)
            except DamagedRecordError as error:
                self._check_owner(error)
                raise
            for ledger in ledgers:
                if ledger not in inline:
                    raise DamagedRecordError(f"{self._key(place)} has no piece of ledger {ledger[1]}")
                found[ledger] = inline[ledger]
        return found

    def _write(self, record: PieceRecord) -> frozenset[Place]:
        """Returns what this marker and the one before it need."""
        if self._is_deleted:
            raise OvertakenError(f"{self._folder}: this process has deleted the subscription")
        if self._tried is None:
            self._tried = record, encode_record(self._new_token(), self._epoch, self._next_slot, record)
        tried, data = self._tried
        if tried is not record:
            raise ValueError("another record was tried before, and may stand: try that one again")
        if self._log(self._epoch).append(self._next_slot, data) is not None:
            raise OvertakenError(f"{self._folder}: another process owns this subscription")
        place = self._epoch, self._next_slot
        self._tried = None
        self._is_deleted = _deletes(record)
        self._next_slot += 1
        self._standing.add(place)
        former, self._former = self._former, frozenset({place}) | record.marker.records
        return former | self._former

    def _inline(self, place: Place) -> dict[LedgerKey, bytes]:
        try:
            record = self._read(place)
        except ObjectNotFoundError as error:
            raise DamagedRecordError(f"{self._key(place)} is missing, though a marker names it") from error
        if record is None:
            raise DamagedRecordError(f"{self._key(place)} is a fence, though a marker names it")
        return dict(record.inline)

    def _check_owner(self, damage: DamagedRecordError) -> None:
        """Raises OvertakenError where a record is missing because it is not ours any more."""
        newest = next(self._places(), None)
        if self._epoch and newest is not None and newest[0] > self._epoch:
            raise OvertakenError(f"{self._folder}: another process owns this subscription") from damage

    def _is_fence(self, place: Place) -> bool:
        try:
            return self._read_once(place) is None
        except (ObjectNotFoundError, DamagedRecordError):
            return False  # gone since, or none that its owner can go on behind: a fence comes behind it, too

    def _removable(self, places: Iterable[Place]) -> Iterator[Place]:
        """Which may be removed once nothing needs them. `places`: the newest first. The last of an epoch is its fence.
        What is damaged before that may have been one, too: it stays, or a former owner would win its number. That owner
        has passed all that is before its last record: none of it is read. An owner that has deleted the subscription
        needs no fence."""
        for _, of_epoch in groupby(places, key=_epoch):
            fence, *former = of_epoch
            if former and self._is_deletion(former[0]):
                yield fence
                yield from former
            else:
                yield from dropwhile(lambda place: not self._is_record(place), former)

    def _is_record(self, place: Place) -> bool:
        if place in self._standing:
            return True
        try:
            return self._read(place) is not None
        except (ObjectNotFoundError, DamagedRecordError):
            return False

    def _is_deletion(self, place: Place) -> bool:
        try:
            record = self._read_once(place)
        except (ObjectNotFoundError, DamagedRecordError):
            return False
        return record is not None and _deletes(record)

    def _fence_behind(self, place: Place) -> Place:
        """Where it stands. Where its owner was faster, the next look finds its record."""
        epoch, slot = place
        if self._log(epoch).append(slot + 1, encode_fence(self._new_token())) is None:
            self._read_before[epoch, slot + 1] = None
        return epoch, slot + 1

    def _newest(self, places: Iterable[Place]) -> Found | None:
        """`places`: the newest first. Raises DamagedRecordError; ObjectNotFoundError where one of those is gone:
        others have gone on."""
        unusable, place = list[str](), None
        for place in places:
            try:
                record = self._read_once(place)
            except DamagedRecordError as error:
                unusable.append(str(error))
                continue
            if record is not None:
                self._check_supported(place, record)
                for why in unusable:
                    log.warning("%s; an older one is used instead", why, extra={"see": "cursor-damaged"})
                return Found(place, record, len(unusable))
        if unusable:
            raise DamagedRecordError(f"{self._folder} has no record that can be used: {unusable[0]}")
        if place is not None:
            raise FencesAloneError(f"{self._folder} has no record that can be used: fences alone are left")
        return None

    def _check_supported(self, place: Place, record: PieceRecord) -> None:
        if HAND_OVER.isdisjoint(name for name, _ in record.marker.properties):
            return
        named = parse_topic_key(self._key(place))
        assert named is not None
        raise HandedOverError(
            f"{named.topic}: subscription {named.subscription} was handed over to brokers, and 1db0db3f is the last "
            "commit that supports that: use it there, and delete it here with `offloader gateway subscriptions delete`"
        )

    def _remove_all_but(self, needed: frozenset[Place]) -> None:
        gone = self._standing - needed
        if not gone:
            return
        with removing_old_records(self._folder):
            self._store.delete([self._key(place) for place in sorted(gone)])
            self._standing -= gone

    def _places(self) -> Iterator[Place]:
        """The newest first; no more is listed than is asked for."""
        keys = (key for key, _ in self._store.list(self._folder))
        found = (parse_subscription_place(key.removeprefix(self._folder)) for key in keys)
        for _, places in groupby((place for place in found if place is not None), key=_epoch):
            yield from sorted(places, reverse=True)

    def _read_once(self, place: Place) -> PieceRecord | None:
        if place not in self._read_before:
            self._read_before[place] = self._read(place)
        return self._read_before[place]

    def _read(self, place: Place) -> PieceRecord | None:
        key = self._key(place)
        return decode_record(key, *place, read_record(self._store, key))

    def _log(self, epoch: int) -> NumberedLog:
        return NumberedLog(self._store, f"{self._folder}{newest_first(epoch)}/")

    def _key(self, place: Place) -> str:
        return self._log(place[0]).key(place[1])


def _deletes(record: PieceRecord) -> bool:
    return record.marker.properties == FORGOTTEN


def _epoch(place: Place) -> int:
    return place[0]

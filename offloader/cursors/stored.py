"""The subscriptions that the archive itself keeps, for whoever is not their owner: who there is, where each stands, and
what an operator does to one by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from offloader.ahead import map_ahead, unawaited_pool
from offloader.cursors.copies import CopiedCursor
from offloader.cursors.core.records import FORGOTTEN, CursorMarker, FirstState, LedgerKey, SubscriptionMark
from offloader.cursors.log import LOOKED_AT, CursorLog, HandedOverError, Place
from offloader.errors import DamagedRecordError, FatalError, IntegrityError
from offloader.metadata.layout import (
    KeyKind,
    parse_subscription_folder,
    parse_topic_key,
    subscription_folder,
    subscriptions_folder,
)
from offloader.model import Position, TopicName
from offloader.ports.object_store import ObjectStore

READERS = 8
LOOKS = 5  # while its owner writes
BEFORE_ALL = (-1, -1)


@dataclass(frozen=True, slots=True)
class KeptSubscription:
    """`epoch`: how often it was opened; `written_at`: when its newest record was written, in ms (0: the store does not
    say). `damage`: why nothing of it can be used, damage or not; empty: it can."""

    name: str
    epoch: int
    marker: CursorMarker
    pieces: Mapping[LedgerKey, bytes]
    written_at: int
    damage: str = ""

    def as_copy(self, incarnation: int) -> CopiedCursor:
        """What it has acknowledged of an incarnation."""
        mark = self.marker.mark_delete
        pieces = {ledger: piece for (of, ledger), piece in sorted(self.pieces.items()) if of == incarnation}
        return CopiedCursor(self.name, mark.place if mark.incarnation == incarnation else BEFORE_ALL, pieces)


def subscription_marks(store: ObjectStore, topic: TopicName) -> list[SubscriptionMark]:
    """Where all of a topic's subscriptions stand, by name, but those that are deleted. A listing and a read of each."""
    with unawaited_pool(READERS, "subscription-reader") as pool:
        known = sorted(_places(store, topic).items())
        found = map_ahead(pool, partial(_mark, store, topic), known, 2 * READERS)
        return [each for each in found if each is not None]


def kept_subscriptions(store: ObjectStore, topic: TopicName) -> Iterator[KeptSubscription]:
    """The same with all that they have acknowledged, which may be much: read one after the other."""
    found = (kept_subscription(store, topic, name) for name in _names(store, topic))
    return (one for one in found if one is not None)


def kept_subscription(store: ObjectStore, topic: TopicName, name: str) -> KeptSubscription | None:
    """One of them; None: there is none, or it was deleted."""
    log = _log(store, topic, name)
    for left in range(LOOKS - 1, -1, -1):
        place: Place = (0, 0)
        try:
            found = log.newest()
            if found is None or found.record.marker.properties == FORGOTTEN:
                return None
            place, marker = found.place, found.record.marker
            pieces = log.pieces(marker.pieces.items())
        except (DamagedRecordError, HandedOverError) as error:
            if left and place != (0, 0):
                continue  # its owner may have written meanwhile, and removed what was named
            nothing = CursorMarker(Position(0, *BEFORE_ALL))
            return KeptSubscription(name, place[0], nothing, {}, 0, str(error))
        return KeptSubscription(name, place[0], marker, pieces, log.written_at(place))
    raise AssertionError


def kept_names(store: ObjectStore, topic: TopicName) -> list[str]:
    """The names of a topic's subscriptions, with those that were deleted. One listing."""
    return _names(store, topic)


def kept_properties(
    store: ObjectStore, topic: TopicName, names: Sequence[str]
) -> dict[str, tuple[tuple[str, int], ...]]:
    """The properties of these subscriptions, but of those that are deleted; none of one that is damaged. A listing and
    a read of each."""
    with unawaited_pool(READERS, "subscription-reader") as pool:
        found = map_ahead(pool, partial(_properties, store, topic), names, 2 * READERS)
        return {name: properties for name, properties in zip(names, found, strict=True) if properties != FORGOTTEN}


def import_copy(
    store: ObjectStore,
    topic: TopicName,
    cursor: CopiedCursor,
    incarnation: int,
    new_token: Callable[[], str],
) -> None:
    """Begin a subscription with what a copy of Pulsar's says. From then on the two have nothing in common. Raises
    IntegrityError where there is one of that name, unless it has just begun so; OvertakenError."""
    there, first = kept_subscription(store, topic, cursor.name), first_of(cursor, incarnation)
    if there is None:
        begun = _log(store, topic, cursor.name, new_token).open(lambda: first)
        if begun.record == first.record(begun.place[0]):  # else others have begun it meanwhile
            return
    elif _stands_at(there, first):
        return
    raise IntegrityError(
        f"{topic} has a subscription {cursor.name} already, which goes its own way; "
        f"`offloader gateway subscriptions delete {topic} {cursor.name} --yes` first"
    )


def _stands_at(there: KeptSubscription, first: FirstState) -> bool:
    """Whether nobody has acknowledged anything since."""
    now = there.marker
    return not there.damage and (now.mark_delete, now.properties, dict(there.pieces)) == (
        first.mark_delete, first.properties, dict(first.pieces),
    )  # fmt: skip


def first_of(cursor: CopiedCursor, incarnation: int) -> FirstState:
    """What a subscription begins with that begins with a copy. Raises DamagedRecordError."""
    cursor.check_damage()
    pieces = {(incarnation, ledger): piece for ledger, piece in cursor.pieces.items()}
    return FirstState(Position(incarnation, *cursor.mark_delete), cursor.properties, pieces)


def delete_kept(store: ObjectStore, topic: TopicName, name: str, new_token: Callable[[], str]) -> None:
    """Delete a subscription, also one that is damaged or was handed over. Who serves it is told at its next write. Its
    fences stay. Raises FatalError where there is none, OvertakenError."""
    found = kept_subscription(store, topic, name)
    if found is None:
        raise FatalError(f"{topic} has no subscription {name} of the gateway")
    gone = replace(found.marker, properties=FORGOTTEN)
    _log(store, topic, name, new_token).begin_anew(FirstState(gone.mark_delete, gone.properties))


def _properties(store: ObjectStore, topic: TopicName, name: str) -> tuple[tuple[str, int], ...]:
    try:
        found = _log(store, topic, name).newest()
    except (DamagedRecordError, HandedOverError):
        return ()
    return FORGOTTEN if found is None else found.record.marker.properties


def _mark(store: ObjectStore, topic: TopicName, known: tuple[str, list[Place] | None]) -> SubscriptionMark | None:
    name, places = known
    log = _log(store, topic, name)
    try:
        found = log.newest(places)
    except DamagedRecordError:
        return SubscriptionMark(name, None, "damaged")
    except HandedOverError as error:
        return SubscriptionMark(name, None, str(error))
    marker = None if found is None else found.record.marker
    if marker is None or marker.properties == FORGOTTEN:
        return None
    return SubscriptionMark(name, marker.mark_delete)


def _places(store: ObjectStore, topic: TopicName) -> Mapping[str, list[Place] | None]:
    """Of each subscription's records, fences included. One listing. Where one was opened often, the names alone: each
    is then listed by itself, no further than it is needed."""
    found: dict[str, list[Place]] = {}
    for key, _ in store.list(subscriptions_folder(topic)):
        one = parse_topic_key(key)
        if one is None or one.kind is not KeyKind.SUBSCRIPTION:
            continue
        places = found.setdefault(one.subscription, [])
        places.append((one.epoch, one.slot))
        if len(places) > LOOKED_AT:
            return dict.fromkeys(_names(store, topic))
    return found


def _names(store: ObjectStore, topic: TopicName) -> list[str]:
    names = (parse_subscription_folder(topic, key) for key in store.folders(subscriptions_folder(topic)))
    return sorted(name for name in names if name is not None)


def _no_token() -> str:
    raise FatalError("whoever only reads a subscription writes nothing")


def _log(store: ObjectStore, topic: TopicName, name: str, new_token: Callable[[], str] = _no_token) -> CursorLog:
    return CursorLog(store, subscription_folder(topic, name), new_token)

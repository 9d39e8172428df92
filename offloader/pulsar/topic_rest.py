"""A topic's ledgers and cursors from what the admin REST says of them. Pure.

`internal-info` is the record of the metadata service: nobody loads the topic for it. It has the uuids of offloaded
copies, but its `isOffloaded` is true of a copy that failed as well; only the `offloaded` of `internalStats` says that a
copy is complete. The bucket is in the record itself alone. `internalStats` and `stats` are the memory of the broker
that has the topic loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any
from urllib.parse import unquote_plus

from offloader.errors import ProtocolError
from offloader.model import AcknowledgedRange, LedgerList, LedgerSpan, Place, TopicName, joined
from offloader.ports.admin import TopicInfo
from offloader.ports.subscriptions import EARLIEST, SubscriptionLook
from offloader.pulsar.answers import (
    acknowledged_ranges,
    count,
    counted,
    described,
    instant,
    integer,
    numbers_of,
    place_of,
    properties_of,
    stored_place,
)
from offloader.pulsar.subscription_rest import REPLICATED, is_durable, last_active
from offloader.state.managed_ledger import SHADOW_SOURCE, ListedLedger, ManagedLedger, OffloadContext
from offloader.state.subscription import CursorState
from offloader.state.topic import NewestLedger, PulsarTopic

_LEDGER = "a managed ledger"


def managed_ledger_of(info: Any, internal: Any = None) -> ManagedLedger:
    """From `internal-info`, as it is stored; or with `internalStats`, asked first, as its broker has it: only that says
    which copies are complete. Raises ProtocolError."""
    with described(_LEDGER):
        recorded = {integer(one["ledgerId"]): one for one in info.get("ledgers", ())}
        if internal is None:
            ledgers = [_listed(one, one, one.get("isOffloaded")) for one in recorded.values()]
        else:
            found = internal["ledgers"]
            ledgers = [_listed(one, recorded.get(one["ledgerId"], {}), one.get("offloaded")) for one in found]
        terminated = _terminated(info, internal)
        if terminated is not None and ledgers and internal is not None and terminated[0] == ledgers[-1].ledger:
            # The record keeps no count of a terminated topic's last ledger until it is loaded again.
            ledgers[-1] = ledgers[-1]._replace(entries=terminated[1] + 1)
        return ManagedLedger(
            ledgers=tuple(sorted(ledgers, key=attrgetter("ledger"))),
            version=integer(info.get("version", 0)),
            terminated=terminated,
            created_ms=instant(info["creationDate"]),
            modified_ms=instant(info.get("modificationDate", info["creationDate"])),
            properties=dict(properties_of(info.get("properties"))),
        )


def topic_state(topic: TopicName, info: Any, internal: Any = None, stats: Any = None) -> PulsarTopic:
    """The same with the durable subscriptions; loaded: from all three answers. A stored one says nothing of the newest
    ledger, and of a cursor whose position is in a ledger an older one, or none. Raises ProtocolError."""
    listed = managed_ledger_of(info, internal)
    with described("a topic"):
        if internal is None:
            cursors = {unquote_plus(name): _stored_cursor(one) for name, one in info.get("cursors", {}).items()}
            return PulsarTopic(topic, listed, None, cursors)
        said = stats["subscriptions"]
        durable = ((name, one) for name, one in cursors_of(internal).items() if name in said and is_durable(said[name]))
        cursors = {name: _with_traits(one, said[name]) for name, one in durable}
        return PulsarTopic(topic, listed, _newest(listed, internal), cursors)


def cursors_of(internal: Any) -> dict[str, CursorState]:
    """All cursors in the broker's memory, non-durable ones too, from `internalStats`. Raises ProtocolError."""
    with described("a topic's cursors"):
        return {unquote_plus(name): _loaded_cursor(one) for name, one in internal["cursors"].items()}


def subscription_look(info: Any, internal: Any, stats: Any, subscription: str) -> SubscriptionLook | None:
    """From `internal-info`, `internalStats` and `stats`. None: there is no such durable one. Raises ProtocolError."""
    with described("a subscription"):
        cursors = {unquote_plus(name): cursor for name, cursor in internal["cursors"].items()}
        cursor, said = cursors.get(subscription), stats["subscriptions"].get(subscription)
        if cursor is None or said is None or not is_durable(said):
            return None
        state = _with_traits(_loaded_cursor(cursor), said)
        return SubscriptionLook(
            created=instant(info["creationDate"]),
            mark_delete=state.mark_delete or EARLIEST,
            ranges=state.ranges,
            consumers=len(said["consumers"]),
            backlog=counted(said["msgBacklog"]),
            last_active_ms=state.last_active_ms or 0,
            replicated=any(said.get(name) for name in REPLICATED),
            properties=state.subscription_properties,
            lengths=ledger_lengths(internal),
            sizes=ledger_sizes(internal),
            traits_known=not said.keys().isdisjoint(REPLICATED) and said.get("subscriptionProperties") is not None,
        )


def topic_info(info: Mapping[str, Any], internal: Mapping[str, Any]) -> TopicInfo:
    """From `internal-info` (its creation date identifies the incarnation) and `internalStats`. Raises ProtocolError."""
    with described(_LEDGER):
        ledgers = internal["ledgers"]
        confirmed = _confirmed(internal)
        terminated = internal["state"] == "Terminated"
        spans = [LedgerSpan(x["ledgerId"], x["entries"] - 1) for x in ledgers]
        if ledgers and ledgers[-1]["entries"] == 0:
            # The last ledger's record has no count before it is closed; a terminated topic's keeps none until it is
            # loaded again.
            current = ledgers[-1]["ledgerId"]
            end = confirmed[1] if confirmed[0] == current else -1
            spans[-1] = LedgerSpan(current, end if terminated else None)
        return TopicInfo(
            created=instant(info["creationDate"]),
            ledgers=LedgerList(tuple(spans)),
            sizes=ledger_sizes(internal),
            last_confirmed=confirmed if confirmed[1] >= 0 else None,
            terminated=terminated,
            offloaded=frozenset(x["ledgerId"] for x in ledgers if x.get("offloaded")),
            subscriptions=frozenset(unquote_plus(name) for name in internal["cursors"]),
            written=_written(info.get("ledgers", ())),
            side_ledgers=frozenset(_side_ledgers(internal)),
            may_have_trimmed=_may_have_trimmed(info),
            shadow_of=shadow_source(info),
        )


def shadow_source(answer: Mapping[str, Any]) -> str:
    """See `Admin.shadow_source`; from `internal-info`, or a partitioned topic's metadata. Raises ProtocolError."""
    properties = answer.get("properties") or {}
    source = properties.get(SHADOW_SOURCE, "") if isinstance(properties, dict) else None
    if not isinstance(source, str):
        raise ProtocolError("the broker describes a topic's properties in a way that we do not know")
    return source


def ledger_sizes(internal: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    """Entries and bytes of each ledger, from `internalStats`, which counts those of the open one apart. Raises
    KeyError, TypeError, ValueError."""
    ledgers = internal["ledgers"]
    sizes = {count(x["ledgerId"]): (count(x["entries"]), count(x["size"])) for x in ledgers}
    if ledgers and ledgers[-1]["entries"] == 0:
        current = ledgers[-1]["ledgerId"]
        # While a broker changes ledgers, the counts are for a moment those of the full one (seen with 4.0.7).
        now = (count(internal["currentLedgerEntries"]), count(internal["currentLedgerSize"]))
        sizes[current] = now if _confirmed(internal)[0] == current else (0, 0)
    return sizes


def ledger_lengths(internal: Any) -> tuple[tuple[int, int | None], ...]:
    """A topic's ledgers in order with their entries, from `internalStats`, which counts none of an open one (None).
    Raises ProtocolError."""
    with described("a topic's ledgers"):
        ledgers = [(integer(one["ledgerId"]), integer(one["entries"])) for one in internal["ledgers"]]
        return (*ledgers[:-1], *((ledger, entries or None) for ledger, entries in ledgers[-1:]))


def _listed(one: Mapping[str, Any], recorded: Mapping[str, Any], offloaded: object) -> ListedLedger:
    """`recorded`: its part of `internal-info`. A ledger that is not closed there has no count, and its time is made
    up."""
    uuid, entries = str(recorded.get("offloadedContextUuid") or ""), one.get("entries") or 0
    return ListedLedger(
        count(one["ledgerId"]),
        count(entries),
        count(one["size"]) if entries else 0,
        integer(recorded.get("timestamp", 0)) if recorded.get("entries") else 0,
        OffloadContext(uuid, complete=bool(offloaded)) if uuid or offloaded else None,
    )


def _terminated(info: Any, internal: Any) -> Place | None:
    if internal is not None:
        return _confirmed(internal) if internal["state"] == "Terminated" else None
    return stored_place(info["terminatedPosition"]) if "terminatedPosition" in info else None


def _newest(listed: ManagedLedger, internal: Any) -> NewestLedger | None:
    """By its broker. Its node's times are not reported: it was written with the list at the latest."""
    if not listed.ledgers:
        return None
    is_open = internal["ledgers"][-1]["entries"] == 0 and internal["state"] != "Terminated"
    entries, size = ledger_sizes(internal)[internal["ledgers"][-1]["ledgerId"]]
    return NewestLedger(not is_open, entries, size, listed.modified_ms, listed.modified_ms)


def _loaded_cursor(one: Mapping[str, Any]) -> CursorState:
    return CursorState(
        place_of(one["markDeletePosition"]),
        acknowledged_ranges(one["individuallyDeletedMessages"]),
        properties=numbers_of(one.get("properties")),
    )


def _stored_cursor(said: Mapping[str, Any]) -> CursorState:
    mark, ranges, ledger = said.get("markDelete"), said.get("individualDeletedMessages", ()), said["cursorsLedgerId"]
    return CursorState(
        mark_delete=None if mark is None else stored_place(mark),
        ranges=joined(AcknowledgedRange(stored_place(one["from"]), stored_place(one["to"])) for one in ranges),
        properties=numbers_of(said.get("properties")),
        subscription_properties=properties_of(said.get("cursorProperties")),
        cursor_ledger=ledger if integer(ledger) >= 0 else None,
        last_active_ms=0,
    )


def _with_traits(cursor: CursorState, said: Mapping[str, Any]) -> CursorState:
    properties = properties_of(said.get("subscriptionProperties"))
    return replace(cursor, subscription_properties=properties, last_active_ms=last_active(said))


def _side_ledgers(internal: Mapping[str, Any]) -> Iterator[int]:
    compacted = internal.get("compactedLedger") or {}
    for ledger in (*internal["cursors"].values(), *(internal.get("schemaLedgers") or ()), compacted):
        yield count(ledger.get("cursorLedger", ledger.get("ledgerId", -1)), -1)


def _may_have_trimmed(info: Mapping[str, Any]) -> bool:
    """Each new ledger changes the record once. Further changes may have taken ledgers away."""
    version = info.get("version")
    return type(version) is not int or version > len(info.get("ledgers", ()))


def _written(ledgers: Sequence[Mapping[str, Any]]) -> Mapping[int, tuple[int, int]]:
    """When each was opened and closed: it was opened when the one before was closed. An open one has no count, and its
    time is made up; the clocks of several brokers may contradict each other."""
    dated = {count(x["ledgerId"]): x.get("timestamp") if x.get("entries") else None for x in ledgers}
    found = {}
    for before, after in pairwise(sorted(dated)):
        opened, closed = dated[before], dated[after]
        if isinstance(opened, int) and isinstance(closed, int) and 0 < opened <= closed:
            found[after] = (opened, closed)
    return found


def _confirmed(internal: Mapping[str, Any]) -> Place:
    ledger, entry = place_of(internal["lastConfirmedEntry"])
    return count(ledger, -1), count(entry, -1)

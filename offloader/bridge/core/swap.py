"""Contexts into a managed ledger's record, or out of it, around one unload: what is seen goes in, the next action comes
out. Pure.

Each step may be the last one of a process, and the first one of another; so nothing is remembered from one to the
other, and each begins by reading the record. These rules make every order of events safe:

* A broker that has the topic loaded goes by its own copy of the record. So after every change of the record, and after
  every doubt whether there was one, comes an unload.
* The record is read, then it is asked whether the round is still ours and in its phase, then the topic is unloaded, and
  at once the record is set with the version that was read. A load writes the record; whoever loads in between wins.
* Before, the topic is loaded: brokers load one that they have not in order to unload it, which writes the record, and
  so every set would be refused.
* Who withdraws sets the record once, even where nothing is to be taken out of it. From then on no process that was
  paused with an older version can put contexts in, and one that reads again learns that the round is withdrawn.
* The newest ledger of a list never gets a context: brokers make that entry anew at each load, without it.
* A ledger that cannot have a context now, and those behind it, are left for later. They are withdrawn, so that nobody
  who was paused puts them in after all; only then do their objects go.
* No object is deleted here: what nobody needs is said, recorded, and then deleted.
* A context stays once brokers have deleted BookKeeper's copy of its ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from offloader.bridge.core.record import (
    first_unfit,
    newest_of,
    with_contexts,
    without_contexts,
)
from offloader.bridge.core.rounds import BridgedLedger
from offloader.bridge.core.swap_steps import (
    CallFailed,
    CallRefused,
    FetchRecord,
    LedgersProven,
    LeftOut,
    LoadTopic,
    NotProven,
    ProveLedgers,
    RecordChanged,
    RecordSeen,
    RecordSet,
    SetRecord,
    SwapAction,
    SwapEnd,
    SwapGoal,
    SwapObservation,
    SwapOutcome,
    SwapPlan,
    TopicAwake,
    TopicLoaded,
    Unloaded,
    UnloadTopic,
    WakeTopic,
)
from offloader.errors import IntegrityError
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.state.managed_ledger_codec import decode_managed_ledger


@dataclass(frozen=True, slots=True)
class Swap:
    """Where a swap is. `exists`: whether brokers say so of the topic; None: none answers. `doubt`: since the last
    unload the record may have been changed, by us or before us. `fenced`: it was set once in this run, as a
    withdrawal must. `pending`: the change that waits for its unload. `verdict`: how it ends once brokers know the
    record as it is, where that is decided. `newest`: of the list as it was read; -1: of a topic that gets no new
    ledgers. `hindrance`: why those `to_come` cannot have contexts. `broken`: ledgers whose objects are not there.
    `deleted`: BookKeeper's copy of one of `ours` is gone. `stock`: ledgers that brokers have offloaded by
    themselves."""

    plan: SwapPlan
    action: SwapAction = field(default_factory=WakeTopic)
    exists: bool | None = None
    doubt: bool = True
    fenced: bool = False
    pending: SetRecord | None = None
    verdict: tuple[SwapEnd, str] | None = None
    ours: tuple[BridgedLedger, ...] = ()
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    to_come: tuple[BridgedLedger, ...] = ()
    hindrance: str = ""
    broken: tuple[BridgedLedger, ...] = ()
    kept: tuple[int, ...] = ()
    newest: int = -1
    deleted: bool = False
    stock: frozenset[int] = frozenset()
    unloads: int = 0
    conflicts: int = 0
    tries: int = 0
    proofs: int = 0


def advance(swap: Swap, seen: SwapObservation) -> Swap:
    """What is known, and to be done, once this was seen."""
    match seen:
        case TopicAwake():
            return replace(swap, action=FetchRecord(), exists=True)
        case RecordSeen():
            return _read(swap, seen)
        case Unloaded():
            if swap.pending is not None:
                return replace(swap, action=swap.pending)
            return replace(swap, action=LoadTopic(), doubt=False)
        case RecordSet():
            return replace(swap, action=LoadTopic(), doubt=False, fenced=True, pending=None)
        case RecordChanged():
            changed = replace(swap, conflicts=swap.conflicts + 1, doubt=True)
            return _again(changed, "others keep changing the topic's record")
        case TopicLoaded():
            return _loaded(swap, seen)
        case LedgersProven(evidence):
            return _end(swap, SwapEnd.PROVEN, swap.hindrance, evidence)
        case NotProven(why):
            return _not_proven(swap, why)
        case CallFailed(_, absent) if isinstance(swap.action, WakeTopic):
            return replace(swap, action=FetchRecord(), exists=False if absent else None)
        case CallFailed(why):
            # Of a question nothing follows; of a change that it may have happened, or may still.
            changing = isinstance(swap.action, SetRecord | UnloadTopic)
            return _again(replace(swap, doubt=swap.doubt or changing), why)
        case CallRefused(why):
            return _end(swap, SwapEnd.REFUSED, why)


# The record


def _read(swap: Swap, seen: RecordSeen) -> Swap:
    goal = swap.plan.goal
    if not seen.ours:
        return _end(swap, SwapEnd.OVERTAKEN, "another process has gone on with the round")
    if seen.record is None:
        return _without_record(swap)
    try:
        topic = decode_managed_ledger(seen.record)
        known = replace(swap, newest=newest_of(topic) if topic.terminated is None else -1, pending=None, verdict=None)
        put = _puts_in if goal is SwapGoal.IN else _takes_out
        return put(known, seen.record, seen, topic)
    except IntegrityError as error:
        return _end(swap, SwapEnd.REFUSED, f"the topic's record stays as it is: {error}")


def _without_record(swap: Swap) -> Swap:
    """A topic is gone where both its brokers and the metadata service say so: the service may be another one's."""
    if swap.exists:
        why = (
            "brokers have the topic, and the metadata service has no record of it: is pulsar.metadataServiceUri theirs?"
        )
        return _end(swap, SwapEnd.REFUSED, why)
    if swap.exists is None:
        return _again(swap, "the metadata service has no record of the topic, and no broker says whether there is one")
    gone = SwapEnd.WITHDRAW if swap.plan.goal is SwapGoal.IN else SwapEnd.WITHDRAWN
    return _end(replace(swap, ours=(), kept=()), gone, "the topic is not there any more")


def _puts_in(swap: Swap, record: bytes, seen: RecordSeen, topic: ManagedLedger) -> Swap:
    found = sort_out(swap.plan.ledgers, topic)
    deleted = any(_is_deleted(topic, one) for one in found.ours)
    broken = tuple(one for one in (*found.ours, *found.plain) if one.ledger in swap.plan.unsound)
    known = replace(
        swap,
        ours=found.ours,
        left_out=found.left_out,
        to_come=found.to_come,
        hindrance=found.why,
        broken=broken,
        deleted=deleted,
    )
    verdict = _verdict(known, found)
    if verdict is None and found.plain:
        contexts = {
            one.ledger: OffloadContext(
                one.uuid,
                complete=True,
                properties=swap.plan.properties,
                driver=swap.plan.driver,
                timestamp_ms=seen.at,
            )
            for one in found.plain
        }
        both = tuple(sorted((*found.ours, *found.plain), key=lambda one: one.ledger))
        return _unload(replace(known, ours=both), SetRecord(with_contexts(record, contexts), seen.version, seen.born))
    if found.ours and swap.doubt:
        return _unload(replace(known, verdict=verdict), None)
    return replace(known, action=LoadTopic()) if verdict is None else _end(known, *verdict)


def _verdict(swap: Swap, found: SortedOut) -> tuple[SwapEnd, str] | None:
    """How it ends in any case; None: it goes on."""
    plan = swap.plan
    if found.wrong:
        return _back(swap), found.wrong
    if swap.broken:
        return SwapEnd.BUILD, plan.unsound[swap.broken[0].ledger]
    if not found.ours and not found.plain:
        return SwapEnd.WITHDRAW, found.why or "no ledger of the round can be bridged any more"
    return (SwapEnd.REFUSED, plan.why_not) if plan.why_not else None


def _back(swap: Swap) -> SwapEnd:
    """Without BookKeeper's copy there is nothing to go back to; of what was proven before nothing depends on it."""
    return SwapEnd.LATER if swap.deleted and not swap.plan.repairs else SwapEnd.WITHDRAW


def _takes_out(swap: Swap, record: bytes, seen: RecordSeen, topic: ManagedLedger) -> Swap:
    present = tuple(one for one in swap.plan.ledgers if names(topic, one))
    stays = tuple(one for one in present if _is_deleted(topic, one) or one.ledger in swap.plan.lost)
    listed = (topic.get(one.ledger) for one in swap.plan.ledgers if one not in present)
    stock = frozenset(one.ledger for one in listed if one is not None and one.copy.complete)
    ours = tuple(one for one in stays if one.ledger < first_unfit(topic))
    known = replace(swap, ours=ours, kept=tuple(one.ledger for one in stays), stock=stock)
    taken = {one.ledger: one.uuid for one in present if one not in stays}
    if taken or not swap.fenced:
        return _unload(known, SetRecord(without_contexts(record, taken), seen.version, seen.born))
    return _unload(known, None) if swap.doubt else replace(known, action=LoadTopic())


def _is_deleted(topic: ManagedLedger, one: BridgedLedger) -> bool:
    """Whether brokers have deleted BookKeeper's copy."""
    listed = topic.get(one.ledger)
    return listed is not None and listed.copy.bookkeeper_deleted


# The broker


def _unload(swap: Swap, change: SetRecord | None) -> Swap:
    if swap.unloads >= swap.plan.limits.unloads:
        return _end(swap, SwapEnd.LATER, f"{swap.unloads} unloads of the topic did not make it what it should be")
    return replace(swap, action=UnloadTopic(), pending=change, unloads=swap.unloads + 1)


def _loaded(swap: Swap, seen: TopicLoaded) -> Swap:
    """Whether the broker knows the record as it is. A load lists a new ledger: one that we have not seen."""
    wanted = {one.ledger for one in swap.ours}
    meant = {one.ledger for one in swap.plan.ledgers} & seen.offloaded - swap.stock - set(swap.kept)
    stale = ""
    if wanted - seen.offloaded:
        stale = f"the topic's broker does not read ledgers {sorted(wanted - seen.offloaded)} from objects"
    elif swap.plan.goal is SwapGoal.OUT and meant:
        stale = f"the topic's broker still reads ledgers {sorted(meant)} from objects"
    elif swap.plan.goal is SwapGoal.OUT and max(seen.listed, default=-1) <= swap.newest:
        stale = "the broker that answers has not loaded the topic since"
    if stale:
        return _again(replace(swap, doubt=True), stale)
    if swap.plan.goal is SwapGoal.OUT:
        return _end(swap, SwapEnd.WITHDRAWN)
    return replace(swap, action=ProveLedgers(swap.ours)) if swap.verdict is None else _end(swap, *swap.verdict)


def _not_proven(swap: Swap, why: str) -> Swap:
    if swap.proofs + 1 < swap.plan.limits.proofs:
        return _again(replace(swap, proofs=swap.proofs + 1, doubt=True), why)
    return _end(swap, _back(swap), why)


def _again(swap: Swap, why: str) -> Swap:
    """From the beginning."""
    if swap.tries >= swap.plan.limits.tries:
        return _end(swap, SwapEnd.LATER, why)
    return replace(swap, action=WakeTopic(), pending=None, tries=swap.tries + 1)


def _end(swap: Swap, end: SwapEnd, why: str = "", evidence: tuple[str, ...] = ()) -> Swap:
    outcome = SwapOutcome(
        end,
        why,
        ledgers=swap.ours,
        left_out=swap.left_out,
        to_come=swap.to_come,
        broken=swap.broken,
        deleted=swap.deleted,
        kept=swap.kept,
        evidence=evidence,
        unloads=swap.unloads,
        conflicts=swap.conflicts,
        closed=swap.newest,
    )
    return replace(swap, action=outcome)


@dataclass(frozen=True, slots=True)
class SortedOut:
    """The ledgers of a round as a record has them. `ours`: with their context. `plain`: without any. `to_come`: from
    the first one on that cannot have a context now, whatever is the matter with the others; `why` it cannot. `wrong`:
    why the round must not be bridged."""

    ours: tuple[BridgedLedger, ...]
    plain: tuple[BridgedLedger, ...]
    left_out: Mapping[int, LeftOut]
    to_come: tuple[BridgedLedger, ...] = ()
    why: str = ""
    wrong: str = ""


def sort_out(ledgers: tuple[BridgedLedger, ...], topic: ManagedLedger) -> SortedOut:
    """See `SortedOut`."""
    ours: list[BridgedLedger] = []
    plain: list[BridgedLedger] = []
    left_out: dict[int, LeftOut] = {}
    wrong = ""
    for place, one in enumerate(ledgers):
        listed = topic.get(one.ledger)
        if listed is None:
            left_out[one.ledger] = LeftOut.OFF_THE_LIST
        elif why := _hindrance(listed, topic):
            return SortedOut(tuple(ours), tuple(plain), left_out, ledgers[place:], why, wrong)
        elif listed.copy.uuid == one.uuid:
            ours.append(one)
        elif listed.context is not None:
            left_out[one.ledger] = LeftOut.STOCK
        elif _differs(one, listed):
            wrong = (
                f"ledger {one.ledger} has {listed.entries} entries of {listed.size} bytes in the topic's list, and "
                f"{one.last + 1} of {one.length} in the archive"
            )
        else:
            plain.append(one)
    return SortedOut(tuple(ours), tuple(plain), left_out, wrong=wrong)


def names(topic: ManagedLedger, one: BridgedLedger) -> bool:
    """Whether the record has the context of this very object."""
    listed = topic.get(one.ledger)
    return listed is not None and listed.copy.uuid == one.uuid


def begun_offload(ledger: int) -> str:
    """What is said of a ledger that brokers have begun to offload."""
    return (
        f"brokers have begun to offload ledger {ledger} by themselves, and have not ended it: pulsar-admin topics "
        "offload has them do it"
    )


def _hindrance(listed: ListedLedger, topic: ManagedLedger) -> str:
    """Why the ledger cannot have a context, nor those behind it before its turn is over."""
    if listed.context is not None and not listed.context.complete:
        return begun_offload(listed.ledger)
    if listed.ledger >= first_unfit(topic):
        return f"ledger {listed.ledger} is the last one of its topic, which brokers read from BookKeeper only"
    return ""


def _differs(one: BridgedLedger, listed: ListedLedger) -> bool:
    sizes = {listed.size, one.length} - {0}  # 0: not known
    return listed.entries != one.last + 1 or len(sizes) > 1

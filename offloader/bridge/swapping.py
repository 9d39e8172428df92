"""Contexts into a topic's record, or out of it: `core/swap.py` decides, and this does it.

All that a crash leaves is found by whoever comes next: it begins by reading the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import urlsplit

from offloader.bookkeeper.nodes import Nodes
from offloader.bridge.core.record import first_unfit
from offloader.bridge.core.rounds import BridgedLedger, BridgeRound
from offloader.bridge.core.swap import Swap, advance
from offloader.bridge.core.swap_steps import (
    CallFailed,
    CallRefused,
    FetchRecord,
    LoadTopic,
    ProveLedgers,
    RecordChanged,
    RecordSeen,
    RecordSet,
    SetRecord,
    SwapAction,
    SwapEnd,
    SwapGoal,
    SwapLimits,
    SwapObservation,
    SwapOutcome,
    SwapPlan,
    TopicAwake,
    TopicLoaded,
    Unloaded,
    UnloadTopic,
    WakeTopic,
)
from offloader.bridge.objects import BridgedObjects, broken_objects
from offloader.bridge.proof import BrokerProof, not_ready
from offloader.errors import (
    AbsentError,
    AuthorizationFailedError,
    FatalError,
    IntegrityError,
    NamespaceNotFoundError,
    OffloadError,
    OutcomeUnknownError,
    OvertakenError,
    ProtocolError,
    RetryableError,
    TopicNotFoundError,
    VersionConflictError,
)
from offloader.model import TopicName
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.offloading import broker_offloading
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger

SHORTEST_WAIT, LONGEST_WAIT = 0.1, 5.0  # seconds between two tries


class StaleOrFine(StrEnum):
    """Whether a topic's broker knows its record."""

    FINE = "fine"
    REPAIRED = "repaired"  # it did not, was unloaded, and does
    STALE = "stale"  # it does not, in spite of an unload
    UNKNOWN = "unknown"  # nobody answers, or the record changes all the time


@dataclass(frozen=True, slots=True)
class SwapWorld:
    """Whom the swap deals with. `nodes`, `record_path`: Pulsar's own metadata store, and where a topic's record is.
    `open_bucket`: by its URL; the caller closes it. `has_ledger`: whether BookKeeper has one of this id."""

    admin: Admin
    nodes: Nodes
    record_path: Callable[[TopicName], str]
    open_bucket: Callable[[str], ObjectStore]
    proof: BrokerProof
    has_ledger: Callable[[int], bool]


class Swapper:
    """Thread safe: it keeps nothing. `now`: ms. `wait`: for so many seconds."""

    def __init__(
        self,
        world: SwapWorld,
        *,
        now: Callable[[], int] = lambda: int(time.time() * 1000),
        wait: Callable[[float], None] = time.sleep,
        limits: SwapLimits | None = None,
    ) -> None:
        self._world = world
        self._now = now
        self._wait = wait
        self._limits = limits or SwapLimits()

    def bridge(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome:
        """Have brokers read the round's ledgers from its objects, and prove it. The round must be recorded as swapping.

        `ours`: whether the newest record of the topic's bridge log still says so, read now. Raises OvertakenError where
        `ours` does. No object is deleted: that is for whoever has recorded what came of it."""
        plan, known = self._plan(topic, under_way)
        outcome = self._run(topic, under_way, plan, ours)
        if outcome.end is SwapEnd.REFUSED and not known:
            return replace(outcome, end=SwapEnd.LATER)
        return outcome

    def withdraw(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome:
        """Have brokers forget the round's objects. The round must be recorded as withdrawing."""
        lost = frozenset(one.ledger for one in under_way.ledgers if not self._world.has_ledger(one.ledger))
        return self._run(
            topic, under_way, SwapPlan(SwapGoal.OUT, under_way.ledgers, lost=lost, limits=self._limits), ours
        )

    def begun(self, topic: TopicName) -> Mapping[int, str]:
        """The ledgers that brokers have begun to offload by themselves, with the uuids of their objects, as long as
        they have not ended it."""
        found = self._recorded(topic)
        listed = found.ledgers if found is not None else ()
        return {one.ledger: one.copy.uuid for one in listed if one.context is not None and not one.context.complete}

    def missing(self, topic: TopicName, ledgers: Iterable[BridgedLedger]) -> Mapping[int, bool]:
        """Those of these ledgers that the topic's record lists without any context, and of each whether BookKeeper has
        a copy."""
        found = self._recorded(topic)
        listed = found.ledgers if found is not None else ()
        plain = {one.ledger for one in listed if one.context is None}
        bare = [one.ledger for one in ledgers if one.ledger in plain]
        return {ledger: self._world.has_ledger(ledger) for ledger in bare}

    def look(self, topic: TopicName) -> StaleOrFine:
        """Whether the topic's broker reads from objects just what the record says; where not, unload it once."""
        try:
            stale = self._stale(topic)
            if not stale:
                return StaleOrFine.UNKNOWN if stale is None else StaleOrFine.FINE
            self._world.admin.unload(topic)
            return StaleOrFine.STALE if self._stale(topic) else StaleOrFine.REPAIRED
        except (RetryableError, OutcomeUnknownError, AbsentError, IntegrityError):
            return StaleOrFine.UNKNOWN

    def contexts(self, topic: TopicName) -> dict[int, str] | None:
        """The uuids that the topic's record has of offloaded ledgers; None: there is no record."""
        found = self._recorded(topic)
        return None if found is None else found.copies

    def broken(self, topic: TopicName, bucket: str, ledgers: Iterable[BridgedLedger]) -> dict[int, str]:
        """See `broken_objects`."""
        return broken_objects(self._world.admin, self._world.open_bucket(bucket), topic, ledgers)

    def _plan(self, topic: TopicName, under_way: BridgeRound) -> tuple[SwapPlan, bool]:
        """And whether those answered that had to be asked. Where not, nothing new is begun; but what a former process
        has left under a loaded topic is repaired."""
        plan = SwapPlan(SwapGoal.IN, under_way.ledgers, limits=self._limits, repairs=under_way.repairs)
        try:
            offloading = broker_offloading(self._world.admin.offload_policies(topic))
            why_not = not_ready(topic, offloading, self._configuration(), self._world.admin.version)
            unsound = self._objects(under_way).faults(under_way.ledgers)
        except OvertakenError:
            raise
        except OffloadError as error:
            return replace(plan, why_not=str(error)), isinstance(error, FatalError)
        properties = (("bucket", urlsplit(under_way.bucket).netloc),)  # brokers look for nothing else
        return replace(plan, driver=offloading.driver, properties=properties, unsound=unsound, why_not=why_not), True

    def _run(self, topic: TopicName, under_way: BridgeRound, plan: SwapPlan, ours: Callable[[], bool]) -> SwapOutcome:
        swap, tries = Swap(plan), 0
        while not isinstance(swap.action, SwapOutcome):
            if swap.tries > tries:
                tries = swap.tries
                self._wait(min(SHORTEST_WAIT * 1.5 ** (tries - 1), LONGEST_WAIT))
            swap = advance(swap, self._tried(topic, under_way, swap.action, ours))
        return swap.action

    def _tried(
        self, topic: TopicName, under_way: BridgeRound, action: SwapAction, ours: Callable[[], bool]
    ) -> SwapObservation:
        try:
            return self._done(topic, under_way, action, ours)
        except VersionConflictError:
            return RecordChanged()
        except OvertakenError:
            raise
        except (RetryableError, OutcomeUnknownError, AbsentError, ProtocolError) as error:
            return CallFailed(str(error), isinstance(error, TopicNotFoundError | NamespaceNotFoundError))
        except (FatalError, IntegrityError) as error:
            return CallRefused(str(error))

    def _done(
        self, topic: TopicName, under_way: BridgeRound, action: SwapAction, ours: Callable[[], bool]
    ) -> SwapObservation:
        world = self._world
        match action:
            case WakeTopic():
                world.admin.topic_info(topic)
                return TopicAwake()
            case FetchRecord():
                node = world.nodes.get(world.record_path(topic), latest=True)
                if node is None:
                    return RecordSeen(None, -1, ours(), self._now())
                return RecordSeen(node.value, node.version, ours(), self._now(), node.born)
            case UnloadTopic():
                world.admin.unload(topic)
                return Unloaded()
            case SetRecord():
                return self._set(world.record_path(topic), action)
            case LoadTopic():
                info = world.admin.topic_info(topic)
                return TopicLoaded(frozenset(one.ledger for one in info.ledgers.spans), info.offloaded)
            case ProveLedgers(ledgers):
                return world.proof.prove(topic, ledgers, self._objects(under_way))
            case SwapOutcome():
                raise AssertionError("a swap that has ended does nothing")

    def _set(self, path: str, change: SetRecord) -> RecordSet | RecordChanged:
        """Looks once more whether it is the same node: a set goes by its version alone, and cannot tell."""
        node = self._world.nodes.get(path, latest=True)
        if node is None or (node.born, node.version) != (change.born, change.version):
            return RecordChanged()
        return RecordChanged() if self._world.nodes.set(path, change.value, change.version) is None else RecordSet()

    def _stale(self, topic: TopicName) -> bool | None:
        """None: the record was changed while the broker was asked."""
        before = self._recorded(topic)
        known = self._world.admin.topic_info(topic).offloaded
        if before is None or before != self._recorded(topic):
            return None
        unfit = first_unfit(before)
        said = {one.ledger for one in before.ledgers if one.copy.complete and one.ledger < unfit}
        return said != {ledger for ledger in known if ledger < unfit}

    def _recorded(self, topic: TopicName) -> ManagedLedger | None:
        node = self._world.nodes.get(self._world.record_path(topic), latest=True)
        return None if node is None else decode_managed_ledger(node.value)

    def _objects(self, under_way: BridgeRound) -> BridgedObjects:
        return BridgedObjects(self._world.open_bucket(under_way.bucket))

    def _configuration(self) -> dict[str, str] | None:
        """None: only super users may know."""
        try:
            return dict(self._world.admin.runtime_configuration())
        except AuthorizationFailedError:
            return None

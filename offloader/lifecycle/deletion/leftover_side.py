"""Left-over managed ledgers of pending acks as a side of deletion: each goes as a whole, in one transaction.

Their ledgers stay for now. Once the managed ledger is gone these are orphans with an absent owner, and go by the usual
way, closed first where they are open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.nodes import Nodes
from offloader.errors import (
    FatalError,
    MetadataUnavailableError,
    OffloadError,
)
from offloader.lifecycle.deletion.bookkeeper_side import round_path
from offloader.lifecycle.deletion.guard import LeftoverCase, RefereeAsRead, StandingReferee, Unguarded, leftover_guard
from offloader.lifecycle.deletion.guarded import (
    GuardedDeletion,
    LookRound,
    OwnNode,
    as_try,
    begin_look,
    delete_guarded,
    read_referee,
)
from offloader.lifecycle.deletion.ledger_records import leftover_evidence, node_of
from offloader.lifecycle.deletion.machine import (
    DeletionTry,
    FailedLook,
    GoneLedger,
    ReferencedLedger,
    SecondLook,
    UnprovenLedger,
    UnreferencedLedger,
)
from offloader.lifecycle.deletion.owners import LoadedTopics, used_by
from offloader.lifecycle.deletion.records import DeletionEvidence, LedgerNode, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.side import SideLooks
from offloader.lifecycle.ledgers.evidence import Fact, Standing
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger, owners_of
from offloader.lifecycle.ledgers.references import cursor_path, list_path
from offloader.lifecycle.ledgers.scanned import LedgerScan, LedgerScanner
from offloader.lifecycle.ledgers.told import leftover_told, refusal_told


@dataclass(frozen=True, slots=True)
class LeftoverToLookAt:
    """What may be marked, or deleted, of it."""

    case: LeftoverCase
    evidence: DeletionEvidence


@dataclass
class LeftoverSide:
    """See `DeletionSide`."""

    tree: MetadataTree
    scanner: LedgerScanner
    loaded: LoadedTopics
    _cases: dict[str, LeftoverCase] = field(default_factory=dict)

    def look(self, records: Sequence[PendingDeleteLedgerInfo], *, goes_on: bool = False) -> SideLooks:
        self._cases.clear()
        self.loaded.forget()
        names = {one.topic_name for one in records}
        try:
            this_round = begin_look(self.tree.nodes, round_path(self.tree))
            scan = (self.scanner.look_again((), names) if goes_on else None) or self.scanner.scan(frozenset())
        except OffloadError as error:
            return SideLooks({one.name: FailedLook(str(error)) for one in records}, 0, (str(error),))
        found = {one.name: one for one in scan.leftovers}
        looks = {one.name: self._look_at(one, found.get(one.topic_name), scan, this_round) for one in records}
        return SideLooks(looks, scan.ledgers, tuple(map(refusal_told, scan.refusals)))

    def close(self, record: PendingDeleteLedgerInfo) -> LedgerNode:
        raise FatalError(f"{record.thing} is no ledger: there is nothing to close")

    def delete(self, record: PendingDeleteLedgerInfo, in_time: Callable[[], bool]) -> tuple[DeletionTry, str]:
        del in_time  # the transaction fails where anybody has looked since, and an undo looks
        case = self._cases.pop(record.name, None)
        if case is None or case.node != record.node:
            return DeletionTry.REFUSED, "it was not looked at right before"
        return as_try(lambda: delete_leftover(self.tree.nodes, case))

    def look_closer(
        self, leftover: LeftoverManagedLedger, scan: LedgerScan, this_round: LookRound | None = None
    ) -> LeftoverToLookAt | UnprovenLedger | FailedLook | GoneLedger:
        """Its nodes and those of its owners as they are now, if they are those that the scan saw."""
        doubt = _doubt(leftover)
        if doubt is not None:
            return doubt
        path = scan.root + list_path(leftover.name)
        try:
            node = self._node(path)
            owners = self._owners(leftover.name, scan.root)
            used = used_by(leftover.name, self.tree.nodes, scan.root, self.loaded.broker_of)
        except (ValueError, OffloadError) as error:
            return FailedLook(str(error))
        if not isinstance(node, LedgerNode):
            return node
        if node.version != leftover.version or used:
            return FailedLook(used or "its node was changed while it was looked at")
        case = LeftoverCase(path, node, owners, this_round.check if this_round else None)
        operations, evidence = leftover_guard(case), leftover_evidence(leftover, owners)
        if isinstance(operations, Unguarded):
            return UnprovenLedger(operations.why)
        return UnprovenLedger("nothing proves it") if evidence is None else LeftoverToLookAt(case, evidence)

    def _look_at(
        self,
        record: PendingDeleteLedgerInfo,
        leftover: LeftoverManagedLedger | None,
        scan: LedgerScan,
        this_round: LookRound,
    ) -> SecondLook:
        if leftover is None:
            return self._not_left_over(scan.root + list_path(record.topic_name))
        seen = self.look_closer(leftover, scan, this_round)
        if not isinstance(seen, LeftoverToLookAt):
            return seen
        self._cases[record.name] = seen.case
        now = this_round.now_ms
        return UnreferencedLedger(seen.case.node, seen.evidence, now - _newest(seen.case.node), now)

    def _not_left_over(self, path: str) -> SecondLook:
        try:
            gone = self.tree.nodes.get(path, latest=True) is None
        except OffloadError as error:
            return FailedLook(str(error))
        return GoneLedger() if gone else ReferencedLedger("a topic and a subscription of which its name is made")

    def _node(self, path: str) -> LedgerNode | GoneLedger | FailedLook:
        nodes = self.tree.nodes
        node = nodes.get(path, latest=True, with_acl=True)
        if node is None:
            return GoneLedger()
        below = []
        for name in sorted(nodes.children(path) or ()):
            one = nodes.get(f"{path}/{name}", latest=True, with_acl=True)
            if one is None:
                return FailedLook(f"{path}/{name} went while it was looked at")
            below.append((name, node_of(one)))
        found = node_of(node)
        return LedgerNode(found.data, found.version, found.ctime, found.acl, tuple(below))

    def _owners(self, name: str, root: str) -> tuple[RefereeAsRead, ...]:
        """Each topic of which the name may be made, and each subscription of one that is there. Raises
        MetadataUnavailableError: also where one of these is there by now."""
        found: dict[str, RefereeAsRead] = {}
        for owner, cursor in owners_of(name):
            topic, subscription = root + list_path(owner), root + cursor_path(owner, cursor)
            found[topic] = found.get(topic) or read_referee(self.tree.nodes, topic)
            if isinstance(found[topic], StandingReferee):
                found[subscription] = read_referee(self.tree.nodes, subscription)
                if isinstance(found[subscription], StandingReferee):
                    raise MetadataUnavailableError(f"{subscription} came while it was looked at")
        return tuple(found.values())


def delete_leftover(nodes: Nodes, case: LeftoverCase) -> GuardedDeletion:
    """Raises MetadataUnavailableError, AccessDeniedError: nothing was deleted; OutcomeUnknownError: it may have been,
    or will be. In doubt call it again."""
    own = OwnNode(case.path, case.node.version, case.node.ctime, 1 + len(case.node.below))
    return delete_guarded(nodes, leftover_guard(case), own, case.round_node)


def _doubt(leftover: LeftoverManagedLedger) -> UnprovenLedger | FailedLook | None:
    if leftover.standing is Standing.CERTAIN:
        return None
    said = " ".join(leftover_told(leftover))
    unread = any(one.fact is Fact.UNREADABLE for one in leftover.evidence)
    return FailedLook(said) if unread else UnprovenLedger(said)


def _newest(node: LedgerNode) -> int:
    return max(node.ctime, *(one.ctime for _, one in node.below)) if node.below else node.ctime

"""BookKeeper's side of deletion: what a scan says of the marked ledgers, safe closing, and the guarded transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.recovery.inspection import InspectionOptions, examine
from offloader.errors import (
    LedgerNotFoundError,
    OffloadError,
    RecoveryAbortedError,
)
from offloader.lifecycle.deletion.guard import (
    GuardCase,
    GuardDoubt,
    LedgerToGo,
    RefereeAsRead,
    StandingReferee,
    Unguarded,
    guard,
)
from offloader.lifecycle.deletion.guarded import GuardedLedgers, LookRound, as_try, begin_look
from offloader.lifecycle.deletion.ledger_records import (
    evidence_of,
    fits,
    marked_as_rescued,
    node_of,
    not_deletable,
    unreferenced,
)
from offloader.lifecycle.deletion.machine import (
    DeletionTry,
    FailedLook,
    GoneLedger,
    PostponedLook,
    SecondLook,
    UnprovenLedger,
)
from offloader.lifecycle.deletion.owners import LoadedTopics, still_written, used_on_demand, why_in_use
from offloader.lifecycle.deletion.records import DeletionEvidence, DeletionProof, LedgerNode, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.side import SideLooks
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.ledgers.scanned import LedgerScan, LedgerScanner
from offloader.lifecycle.ledgers.told import refusal_told
from offloader.lifecycle.rescue.evidence import RescueEvidence

MOST_READ_BACK = 16 * 1024**3
"""Bytes of entries that one look reads back, and then no more: some minutes. Others wait for it."""
ROUND_NODE = "/offloader/deletion"  # beside BookKeeper's root, where Pulsar has its own nodes


@dataclass(frozen=True, slots=True)
class LedgerToLookAt:
    """What the scan and the nodes say of one ledger at one look."""

    verdict: LedgerVerdict
    node: LedgerNode
    referees: tuple[RefereeAsRead, ...]


@dataclass(frozen=True, slots=True)
class ProvenLedger:
    """Why it may go, and what a deletion checks."""

    evidence: DeletionEvidence
    case: GuardCase


@dataclass
class BookKeeperSide:
    """`closing`: how an open ledger is closed. `rescues`: which ledgers were copied before they were marked; None: what
    is in a ledger that no list names always keeps it. `most_read_back`: of these copies, at one look; others
    wait."""

    tree: MetadataTree
    bookies: Bookies
    scanner: LedgerScanner
    loaded: LoadedTopics
    closing: InspectionOptions = field(default_factory=lambda: InspectionOptions(dry=False))
    rescues: RescueEvidence | None = None
    most_read_back: int = MOST_READ_BACK
    _cases: dict[str, GuardCase] = field(default_factory=dict)
    _copies: dict[str, int] = field(default_factory=dict)
    _read_back: int = 0

    @property
    def ledgers(self) -> GuardedLedgers:
        """Where they are deleted."""
        return GuardedLedgers(self.tree.nodes, self.tree.uri.root, self.tree.layout)

    def look(self, records: Sequence[PendingDeleteLedgerInfo], *, goes_on: bool = False) -> SideLooks:
        self._cases.clear()
        self.loaded.forget()
        self._copies.clear()
        self._read_back = 0
        ledgers = {one.ledger_id for one in records if one.ledger_id >= 0}
        try:
            this_round = begin_look(self.tree.nodes, round_path(self.tree))
            scan = (self.scanner.look_again(ledgers) if goes_on else None) or self.scanner.scan(ledgers)
        except OffloadError as error:
            return SideLooks({one.name: FailedLook(str(error)) for one in records}, 0, (str(error),))
        refusals = tuple(map(refusal_told, scan.refusals))
        if refusals:  # nothing goes: no copy is read back for nothing
            return SideLooks({one.name: FailedLook(refusals[0]) for one in records}, scan.ledgers, refusals)
        verdicts = {one.ledger.ledger: one for one in scan.verdicts}
        looks = {one.name: self._look_at(one, verdicts.get(one.ledger_id), scan, this_round) for one in records}
        return SideLooks(looks, scan.ledgers)

    def close(self, record: PendingDeleteLedgerInfo) -> LedgerNode:
        ledger = record.ledger_id
        versioned = self.tree.read(ledger)
        if versioned.metadata.listed_ms != record.node.ctime:
            raise LedgerNotFoundError(f"ledger {ledger}: another one has this id now")
        if not versioned.metadata.closed:
            refused = still_written(record, self.tree.nodes, chroot(self.tree), self.loaded.broker_of)
            if refused is not None:
                raise RecoveryAbortedError(refused)
        found = examine(ledger, self.tree, self.bookies, self.closing)
        _ = found.outcome.metadata  # raises where it was not closed
        node = self._node(ledger)
        if node is None or node.ctime != record.node.ctime:
            raise LedgerNotFoundError(f"ledger {ledger}: it was deleted while it was closed")
        return node

    def delete(self, record: PendingDeleteLedgerInfo, in_time: Callable[[], bool]) -> tuple[DeletionTry, str]:
        del in_time  # the transaction fails where anybody has looked since, and an undo looks
        case = self._cases.pop(record.name, None)
        if case is None or not fits(record, case):
            return DeletionTry.REFUSED, "it was not looked at right before"
        changed = self._rescue_changed(record)
        if changed:
            return DeletionTry.REFUSED, changed
        return as_try(lambda: self.ledgers.delete(case))

    def is_there(self, ledger: int) -> bool:
        """Whether it has a node. Raises MetadataUnavailableError, AccessDeniedError."""
        try:
            return self._node(ledger) is not None
        except LedgerNotFoundError:  # no ledger can have such an id
            return False

    def look_closer(
        self, verdict: LedgerVerdict, scan: LedgerScan, begun_ms: int | None = None
    ) -> LedgerToLookAt | UnprovenLedger | FailedLook | GoneLedger:
        """A verdict's own node and its referees, as they are now, if they are those that the scan saw. `begun_ms`: when
        that began, by ZooKeeper's clock."""
        ledger = verdict.ledger
        if verdict.needs_store_beside(scan.store):
            return UnprovenLedger("what proves it is in another metadata store: no transaction is for both")
        try:
            node = self._node(ledger.ledger)
            if node is None:
                return GoneLedger()
            if node.version != ledger.version or node.ctime != ledger.created_ms:
                return FailedLook("its metadata were changed while it was looked at")
            referees = []
            for one in (each for each in verdict.referees if each.store == scan.store):
                found = self._referee(scan.root + one.node, one.version, begun_ms)
                if isinstance(found, FailedLook):
                    return found
                referees.append(found)
        except OffloadError as error:
            return FailedLook(str(error))
        return LedgerToLookAt(verdict, node, tuple(referees))

    def proven(
        self, seen: LedgerToLookAt, this_round: LookRound | None = None, *, demanded: bool = False
    ) -> ProvenLedger | UnprovenLedger | FailedLook:
        """What proves that it may go, or why nothing does. `demanded`: an operator has asked for this very ledger."""
        evidence = evidence_of(seen.verdict, seen.referees, demanded=demanded)
        if evidence is None:
            return UnprovenLedger("nothing proves it that a transaction could check")
        try:
            used = self._used(seen.verdict, evidence)
        except (ValueError, OffloadError) as error:
            return FailedLook(f"whether a broker has its topic loaded cannot be found out ({error})")
        if used:
            return FailedLook(used)
        on_demand = evidence.proof is DeletionProof.ON_DEMAND
        doubt = GuardDoubt(data=True, loaded=False, demanded=True) if on_demand else None
        ledger = LedgerToGo(seen.verdict.ledger.ledger, seen.node.version, seen.node.ctime)
        check = this_round.check if this_round else None
        case = GuardCase(ledger, seen.referees, one_zookeeper=True, doubt=doubt, round_node=check)
        operations = guard(case, self.tree.uri.root, self.tree.layout)
        return UnprovenLedger(operations.why) if isinstance(operations, Unguarded) else ProvenLedger(evidence, case)

    def _used(self, verdict: LedgerVerdict, evidence: DeletionEvidence) -> str:
        """Why a broker may use it; empty: none does, or the proof is a node that no broker can write any more. Raises
        ValueError, OffloadError."""
        nodes, root = self.tree.nodes, chroot(self.tree)
        if evidence.is_by_operator:
            used = used_on_demand(verdict, nodes, root, self.loaded)
            return f"it is suspect, and {used}" if used else ""
        return why_in_use(verdict, nodes, root, self.loaded) if evidence.proof is DeletionProof.REFEREE_ABSENT else ""

    def _look_at(
        self, record: PendingDeleteLedgerInfo, verdict: LedgerVerdict | None, scan: LedgerScan, this_round: LookRound
    ) -> SecondLook:
        if verdict is None:
            return GoneLedger() if record.ledger_id in scan.gone else FailedLook("the scan says nothing of it")
        demanded = record.evidence.is_by_operator
        says = not_deletable(verdict, demanded=demanded)
        if says is not None:
            return says
        seen = self.look_closer(verdict, scan, this_round.now_ms)
        if not isinstance(seen, LedgerToLookAt):
            return seen
        if self.rescues is not None and marked_as_rescued(record):
            if self._read_back >= self.most_read_back:
                return PostponedLook()
            self._read_back += verdict.ledger.length
            try:
                verdict, self._copies[record.name] = self.rescues.proven(verdict)
            except OffloadError as error:
                return FailedLook(f"what was rescued of it cannot be read: {error}")
        proven = self.proven(replace(seen, verdict=verdict), this_round, demanded=demanded)
        if not isinstance(proven, ProvenLedger):
            return proven
        self._cases[record.name] = proven.case
        return unreferenced(verdict, record, seen.node, proven.evidence, this_round.now_ms)

    def _rescue_changed(self, record: PendingDeleteLedgerInfo) -> str:
        """Reading copies back may have taken hours, and somebody may have forgotten this one since."""
        copy = self._copies.pop(record.name, None)
        try:
            if copy is None or self.rescues is None or self.rescues.in_force(record.ledger_id, copy):
                return ""
        except OffloadError as error:
            return f"whether what was rescued of it still counts cannot be read: {error}"
        return "what was rescued of it has changed since it was looked at"

    def _referee(self, path: str, seen: int | None, begun_ms: int | None) -> RefereeAsRead | FailedLook:
        found = self.ledgers.referee(path)
        version = found.version if isinstance(found, StandingReferee) else None
        made_anew = isinstance(found, StandingReferee) and begun_ms is not None and found.created_ms > begun_ms
        if version != seen or made_anew:
            return FailedLook(f"{path} was changed while it was looked at")
        return found

    def _node(self, ledger: int) -> LedgerNode | None:
        node = self.tree.nodes.get(self.tree.path_of(ledger), latest=True, with_acl=True)
        return None if node is None else node_of(node)


def round_path(tree: MetadataTree) -> str:
    """The node that each look changes."""
    return chroot(tree) + ROUND_NODE


def chroot(tree: MetadataTree) -> str:
    """Where Pulsar's nodes are."""
    return tree.uri.root.rpartition("/")[0]

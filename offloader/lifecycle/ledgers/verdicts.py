"""Which ledger is an orphan: referenced, certain, suspect or foreign, each with its chain of evidence. Pure.

*Passed by* is proof: an owner reads a reference's version, then takes an id, then creates the ledger, then writes with
that version, one at a time. Whoever listed a greater id took it later, and so changed the version that the smaller
one's write needs. That a ledger is not listed proves nothing by itself: it may be about to be.

So it is only where the reference's node was there before the ledger. The versions of a node that was deleted and made
again begin anew, and a write that was meant for the former one may fit; a node that was restored from a backup knows
nothing of what was done after it.

Entries of an orphan that no trim left behind are data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from offloader.lifecycle.ledgers.evidence import (
    CONFIRMABLE,
    CONTENTS,
    Fact,
    LedgerEvidence,
    LedgerVerdict,
    Remedy,
    SeenLedger,
    Standing,
)
from offloader.lifecycle.ledgers.kinds import LedgerKind, LedgerPurpose, RefereeKind
from offloader.lifecycle.ledgers.named import NamedLedgers
from offloader.lifecycle.ledgers.references import (
    LocatorNode,
    Referee,
    References,
    UnreadableNode,
    cursor_path,
    list_path,
    schema_path,
    view_of,
)
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.names import decoded
from offloader.state.subscription import CursorState

_REGISTRATION = 600_000  # ms: that long before its locator the first ledger of a schema may have been made


@dataclass(frozen=True, slots=True)
class KnownStores:
    """All metadata stores that were read, and what the operator says of them.

    `alone`: nobody else keeps ledgers in this BookKeeper. Without it nothing is certain: another cluster's topic may
    have the same name. `clusters`: the names, present and former, of the clusters whose stores these are. `copies`:
    ledgers whose offloaded copy was read back, and whether it is whole.
    """

    stores: tuple[References, ...]
    alone: bool = False
    clusters: frozenset[str] = frozenset()
    copies: Mapping[int, bool] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one store says of a ledger that nobody names. `standing`: CERTAIN or SUSPECT; None: it has no say."""

    standing: Standing | None
    evidence: tuple[LedgerEvidence, ...]
    referee: Referee
    remedies: tuple[Remedy, ...] = ()


class LedgerJudge:
    """Judges one ledger after the other by what the stores refer to."""

    def __init__(self, known: KnownStores) -> None:
        self._known = known
        self.named = NamedLedgers(known.stores)

    def verdict(self, ledger: SeenLedger) -> LedgerVerdict:
        """What the ledger is. Whoever names it counts, not only whom it names itself."""
        purpose = ledger.purpose
        named = self.named.referees(ledger.ledger)
        if named:
            return _referenced(ledger, named)
        if purpose.referee is None:
            why = str(purpose.why_foreign or "")
            return LedgerVerdict(ledger, Standing.FOREIGN, purpose.kind, (LedgerEvidence(Fact.FOREIGN, text=why),))
        if purpose.cluster and purpose.cluster not in self._known.clusters:
            other = LedgerEvidence(Fact.ANOTHER_CLUSTER, text=purpose.cluster)
            return LedgerVerdict(ledger, Standing.FOREIGN, purpose.kind, (other,))
        return _with_contents(self._judged(ledger), self._known.stores)

    def _judged(self, ledger: SeenLedger) -> LedgerVerdict:
        findings = [_finding(ledger, store, self._known.copies) for store in self._known.stores]
        voices = [one for one in findings if one.standing is not None] or findings
        certain = bool(voices) and all(one.standing is Standing.CERTAIN for one in voices)
        verdict = LedgerVerdict(
            ledger=ledger,
            standing=Standing.CERTAIN if certain else Standing.SUSPECT,
            kind=ledger.purpose.kind,
            evidence=tuple(fact for one in voices for fact in one.evidence),
            remedies=tuple(dict.fromkeys(remedy for one in voices for remedy in one.remedies)),
            referees=tuple(one.referee for one in findings),
        )
        return self._doubted(verdict)

    def _doubted(self, verdict: LedgerVerdict) -> LedgerVerdict:
        """What makes every proof worthless: a namespace that nobody knows, a BookKeeper that others may use."""
        namespace = verdict.ledger.purpose.namespace
        if not any(namespace in store.namespaces for store in self._known.stores):
            store = self._known.stores[0].store
            unknown = LedgerEvidence(Fact.NAMESPACE_UNKNOWN, store, f"/admin/policies/{namespace}")
            verdict = _suspect(verdict, unknown, Remedy.KNOW_NAMESPACE)
        if not self._known.alone:
            verdict = _suspect(verdict, LedgerEvidence(Fact.MAY_BE_SHARED), Remedy.DECLARE)
        return verdict


def _suspect(verdict: LedgerVerdict, doubt: LedgerEvidence, remedy: Remedy) -> LedgerVerdict:
    return replace(
        verdict,
        standing=Standing.SUSPECT,
        evidence=(*verdict.evidence, doubt),
        remedies=(*verdict.remedies, remedy),
    )


def _referenced(ledger: SeenLedger, named: tuple[Referee, ...]) -> LedgerVerdict:
    packages = any(one.kind is RefereeKind.FUNCTIONS_LOG for one in named)
    evidence = tuple(LedgerEvidence(Fact.NAMED, one.store, one.node, one.version) for one in named)
    if ledger.purpose.why_foreign is not None and not packages:
        evidence += (LedgerEvidence(Fact.FOREIGN, text=str(ledger.purpose.why_foreign)),)
    kind = LedgerKind.FUNCTIONS_PACKAGES if packages else ledger.purpose.kind
    return LedgerVerdict(ledger, Standing.REFERENCED, kind, evidence, referees=named)


def _finding(ledger: SeenLedger, store: References, copies: Mapping[int, bool]) -> _Finding:
    """By the kind of the node that would have to name it."""
    match ledger.purpose.referee:
        case RefereeKind.LEDGER_LIST:
            return _by_list(ledger, store, copies)
        case RefereeKind.CURSOR_NODE:
            return _by_cursor(ledger, store)
        case RefereeKind.SCHEMA_LOCATOR:
            return _by_locator(ledger, store)
        case RefereeKind.COMPACTION_CURSOR:
            return _by_compaction(ledger, store)
        case _:
            return _by_buckets(ledger, store)


def _by_list(ledger: SeenLedger, store: References, copies: Mapping[int, bool]) -> _Finding:
    name = ledger.purpose.managed_ledger
    node = store.lists.get(name)
    if node is None:
        return _owner_absent(ledger.purpose, store)
    referee = Referee(store.store, RefereeKind.LEDGER_LIST, list_path(name), node.version)
    if isinstance(node, UnreadableNode):
        return _unreadable(referee, node)
    listed = node.get(ledger.ledger)
    if listed is not None:
        return _by_copy(listed, referee, copies)
    return _passed(ledger, referee, node.greatest, Remedy.LOAD_TOPIC, node)


def _by_copy(listed: ListedLedger, referee: Referee, copies: Mapping[int, bool]) -> _Finding:
    """Listed, and said to be deleted from BookKeeper: its copy in the bucket is what readers get."""
    left = _seen(Fact.LEFT_BOOKKEEPER, referee)
    whole = copies.get(listed.ledger) if listed.copy.complete else False
    if whole:
        return _Finding(Standing.CERTAIN, (left, LedgerEvidence(Fact.COPY_READ_BACK)), referee)
    bucket = listed.copy.bucket
    unproven = LedgerEvidence(Fact.COPY_NOT_READ if whole is None else Fact.COPY_FAILS, text=bucket)
    return _Finding(Standing.SUSPECT, (left, unproven), referee, (Remedy.READ_COPY,))


def _by_cursor(ledger: SeenLedger, store: References) -> _Finding:
    found = _cursor_or_why_not(ledger.purpose, store)
    if isinstance(found, _Finding):
        return found
    referee, node = found
    if node.cursor_ledger is None:
        none = (_seen(Fact.NO_CURSOR_LEDGER, referee),)
        return _Finding(Standing.SUSPECT, none, referee, (Remedy.LOAD_AND_ACKNOWLEDGE,))
    return _passed(ledger, referee, node.cursor_ledger, Remedy.LOAD_AND_ACKNOWLEDGE, node)


def _by_locator(ledger: SeenLedger, store: References) -> _Finding:
    path = schema_path(ledger.purpose.schema)
    node = store.schemas.get(ledger.purpose.schema)
    if node is None:
        # The first one is about to be put there, or all were deleted: a locator that is absent is no proof.
        says = Standing.SUSPECT if ledger.purpose.namespace in store.namespaces else None
        referee = Referee(store.store, RefereeKind.SCHEMA_LOCATOR, path, None)
        return _Finding(says, (_seen(Fact.LOCATOR_ABSENT, referee),), referee, (Remedy.NEW_SCHEMA,))
    referee = Referee(store.store, RefereeKind.SCHEMA_LOCATOR, path, node.version)
    if isinstance(node, UnreadableNode):
        return _unreadable(referee, node)
    found = _passed(ledger, referee, node.greatest, Remedy.NEW_SCHEMA, node)
    if not node.whole:
        holes = (*found.evidence, _seen(Fact.LOCATOR_HAS_HOLES, referee))
        return replace(found, standing=Standing.SUSPECT, evidence=holes, remedies=())
    return found


def _by_compaction(ledger: SeenLedger, store: References) -> _Finding:
    name = ledger.purpose.managed_ledger
    owner = store.lists.get(name)
    if owner is None:
        return _owner_absent(ledger.purpose, store)
    cursor = store.cursors.get(name, {}).get(ledger.purpose.cursor)
    path, version = cursor_path(name, ledger.purpose.cursor), None if cursor is None else cursor.version
    referee = Referee(store.store, RefereeKind.COMPACTION_CURSOR, path, version)
    view = view_of(store, name)
    if isinstance(view, UnreadableNode):
        return _unreadable(referee, view)
    if view is None or not isinstance(cursor, CursorState):
        return _Finding(Standing.SUSPECT, (_seen(Fact.NO_VIEW_NAMED, referee),), referee, (Remedy.COMPACT,))
    return _passed(ledger, referee, view, Remedy.COMPACT, cursor)


def _by_buckets(ledger: SeenLedger, store: References) -> _Finding:
    found = _cursor_or_why_not(ledger.purpose, store)
    if isinstance(found, _Finding):
        return found
    referee, _ = found
    return _Finding(Standing.SUSPECT, (_seen(Fact.CURSOR_IS_THERE, referee),), referee, (Remedy.REMOVE_CURSOR,))


def _cursor_or_why_not(purpose: LedgerPurpose, store: References) -> _Finding | tuple[Referee, CursorState]:
    """The cursor that a ledger names. Its name is looked up plain and, in case brokers wrote it so, encoded."""
    name = purpose.managed_ledger
    if name not in store.lists:
        return _owner_absent(purpose, store)
    cursors = store.cursors.get(name, {})
    cursor = purpose.cursor if purpose.cursor in cursors else decoded(purpose.cursor)
    node = cursors.get(cursor)
    kind = purpose.referee or RefereeKind.CURSOR_NODE
    if node is None:
        referee = Referee(store.store, kind, cursor_path(name, purpose.cursor), None)
        return _Finding(Standing.CERTAIN, (_seen(Fact.CURSOR_ABSENT, referee),), referee)
    referee = Referee(store.store, kind, cursor_path(name, cursor), node.version)
    return _unreadable(referee, node) if isinstance(node, UnreadableNode) else (referee, node)


def _owner_absent(purpose: LedgerPurpose, store: References) -> _Finding:
    """Proof in a store that has the namespace; another store says nothing of it."""
    referee = Referee(store.store, RefereeKind.LEDGER_LIST, list_path(purpose.managed_ledger), None)
    says = Standing.CERTAIN if purpose.namespace in store.namespaces else None
    return _Finding(says, (_seen(Fact.OWNER_ABSENT, referee),), referee)


def _passed(
    ledger: SeenLedger,
    referee: Referee,
    greatest: int | None,
    remedy: Remedy,
    node: ManagedLedger | CursorState | LocatorNode,
) -> _Finding:
    """By the greatest id that the referee's node names."""
    if greatest is None or greatest < ledger.ledger:
        return _Finding(Standing.SUSPECT, (_seen(Fact.NOT_PASSED, referee, greatest),), referee, (remedy,))
    passed = _seen(Fact.PASSED_BY, referee, greatest)
    if node.says_more:
        more = (passed, _seen(Fact.SAYS_MORE, referee))
        return _Finding(Standing.SUSPECT, more, referee, (Remedy.NEWER_OFFLOADER,))
    if not _was_there(node, ledger):
        return _Finding(Standing.SUSPECT, (passed, _seen(Fact.MADE_SINCE, referee)), referee)
    return _Finding(Standing.CERTAIN, (passed,), referee)


def _unreadable(referee: Referee, node: UnreadableNode) -> _Finding:
    why = replace(_seen(Fact.UNREADABLE, referee), text=node.why)
    return _Finding(Standing.SUSPECT, (why,), referee, (Remedy.REPAIR_NODE,))


def _seen(fact: Fact, referee: Referee, other: int | None = None) -> LedgerEvidence:
    return LedgerEvidence(fact, referee.store, referee.node, referee.version, other)


def _with_contents(verdict: LedgerVerdict, stores: tuple[References, ...]) -> LedgerVerdict:
    """Adds what is in it, for a ledger of a list: entries that no trim left behind are data, and kept.

    A data ledger gets entries only after it was listed. So one that is not listed and has some was listed once: a trim
    drops from the front; what is behind the first one listed was rolled back or edited away. A list that is younger
    than the ledger never had it: whatever it begins with, it was not this one that was trimmed. Of an open one nobody
    knows: it is closed first, and then looked at again. Where only an operator can confirm that nothing refers to a
    ledger, its entries are data whatever its kind.
    """
    found = _of_its_list(verdict, stores)
    ledger, unclaimed = found.ledger, any(one.fact in CONFIRMABLE for one in found.evidence)
    if not unclaimed or found.kept:
        return found
    if any(one.fact in CONTENTS for one in found.evidence):
        return found if ledger.empty or ledger.last_entry is None else replace(found, kept=True)
    if ledger.empty:
        return _also(found, LedgerEvidence(Fact.EMPTY))
    if ledger.last_entry is None:
        return _also(found, LedgerEvidence(Fact.ENTRIES_UNKNOWN))
    return replace(_also(found, LedgerEvidence(Fact.UNCLAIMED_DATA)), kept=True)


def _of_its_list(verdict: LedgerVerdict, stores: tuple[References, ...]) -> LedgerVerdict:
    ledger, copied = verdict.ledger, any(one.fact is Fact.LEFT_BOOKKEEPER for one in verdict.evidence)
    if ledger.purpose.referee is not RefereeKind.LEDGER_LIST or copied:
        return replace(verdict, kept=any(one.fact is Fact.COPY_FAILS for one in verdict.evidence))
    if ledger.empty:
        return _also(verdict, LedgerEvidence(Fact.EMPTY))
    if ledger.last_entry is None:
        return _also(verdict, LedgerEvidence(Fact.ENTRIES_UNKNOWN))
    owners = [store.lists.get(ledger.purpose.managed_ledger) for store in stores]
    lists = [owner for owner in owners if isinstance(owner, ManagedLedger)]
    first = min((node.ledgers[0].ledger for node in lists if node.ledgers), default=None)
    if not lists:
        return verdict  # the whole topic is gone, or nothing can be said
    former = not all(_was_there(node, ledger) for node in lists)
    if first is not None and ledger.ledger < first and not former:
        return _also(verdict, LedgerEvidence(Fact.TRIMMED, other=first))
    if former:
        return replace(_also(verdict, LedgerEvidence(Fact.FORMER_DATA)), kept=True)
    return replace(_also(verdict, LedgerEvidence(Fact.NO_TRIMS_WORK, other=first)), kept=True)


def _also(verdict: LedgerVerdict, *more: LedgerEvidence) -> LedgerVerdict:
    return replace(verdict, evidence=(*verdict.evidence, *more))


def _was_there(node: ManagedLedger | CursorState | LocatorNode, ledger: SeenLedger) -> bool:
    """Whether this very node was there when the ledger was created, as it is wherever brokers make both: but for the
    first ledgers of a schema, of which several may be under way before there is a locator. ZooKeeper numbers what it
    does, and no clock that is wrong, for as long as somebody leads, changes that order."""
    if node.born is not None and ledger.born is not None:
        if node.born <= ledger.born:
            return True
        if not isinstance(node, LocatorNode):
            return False
    ahead = _REGISTRATION if isinstance(node, LocatorNode) else 0
    if node.created_ms is None or ledger.created_ms is None:
        return False
    return node.created_ms <= ledger.created_ms + ahead

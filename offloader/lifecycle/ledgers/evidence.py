"""The values of a verdict: a ledger's standing, the facts that prove it, and what would prove more. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata, LedgerState
from offloader.lifecycle.ledgers.kinds import LedgerKind, LedgerPurpose, WhyForeign, foreign, purpose_of
from offloader.lifecycle.ledgers.references import Referee


class Standing(StrEnum):
    """What a ledger is to us. Only what is certain may ever be deleted."""

    REFERENCED = "referenced"
    CERTAIN = "certain"
    SUSPECT = "suspect"
    FOREIGN = "foreign"


class Fact(StrEnum):
    """One link of a chain of evidence."""

    # It is in use.
    NAMED = "named"  # node, version

    # It is an orphan.
    OWNER_ABSENT = "owner-absent"  # node
    CURSOR_ABSENT = "cursor-absent"  # node
    PASSED_BY = "passed-by"  # node, version, other: the greater id
    LEFT_BOOKKEEPER = "left-bookkeeper"  # node, version
    COPY_READ_BACK = "copy-read-back"

    # It may be one.
    NOT_PASSED = "not-passed"  # node, version, other: the greatest id there is
    LOCATOR_ABSENT = "locator-absent"  # node
    LOCATOR_HAS_HOLES = "locator-has-holes"  # node, version
    NO_CURSOR_LEDGER = "no-cursor-ledger"  # node, version
    NO_VIEW_NAMED = "no-view-named"  # node
    CURSOR_IS_THERE = "cursor-is-there"  # node, version
    COPY_NOT_READ = "copy-not-read"  # text: the bucket that is named
    COPY_FAILS = "copy-fails"  # the same
    UNREADABLE = "unreadable"  # node, version, text
    SAYS_MORE = "says-more"  # node, version
    MADE_SINCE = "made-since"  # node, version
    NAMESPACE_UNKNOWN = "namespace-unknown"  # node: its policies
    MAY_BE_SHARED = "may-be-shared"
    OTHER_USE = "other-use"  # text

    # It is not ours.
    FOREIGN = "foreign"  # text
    ANOTHER_CLUSTER = "another-cluster"  # text: its name

    # What is in it.
    EMPTY = "empty"
    ENTRIES_UNKNOWN = "entries-unknown"
    TRIMMED = "trimmed"  # other: the first id of the list
    NO_TRIMS_WORK = "no-trims-work"  # other: the first id of the list
    FORMER_DATA = "former-data"
    UNCLAIMED_DATA = "unclaimed-data"
    RESCUED = "rescued"  # text: when
    RESCUED_IN_PART = "rescued-in-part"  # other: how many entries; text: when


CONTENTS = frozenset(
    {Fact.EMPTY, Fact.ENTRIES_UNKNOWN, Fact.TRIMMED, Fact.NO_TRIMS_WORK, Fact.FORMER_DATA, Fact.UNCLAIMED_DATA}
)
"""What is in a ledger. It may show only later, and proves nothing of who refers to it."""


CONFIRMABLE = frozenset({Fact.MADE_SINCE, Fact.NAMESPACE_UNKNOWN, Fact.CURSOR_IS_THERE, Fact.LOCATOR_ABSENT})
"""Doubts that nothing in the metadata will ever settle. An operator may: the topic was created again, its namespace was
deleted, a delayed index is not named by its subscription, or a schema has no locator."""
_ABOUT_TO_NAME = frozenset({Fact.NOT_PASSED, Fact.NO_CURSOR_LEDGER, Fact.NO_VIEW_NAMED, Fact.CURSOR_IS_THERE})
_ABSENT_OWNERS = frozenset({Fact.OWNER_ABSENT, Fact.LOCATOR_ABSENT})
_BESIDE = frozenset({Fact.CURSOR_ABSENT, Fact.PASSED_BY, Fact.RESCUED, Fact.RESCUED_IN_PART})
_MAY_BE_CONFIRMED = CONFIRMABLE | _ABOUT_TO_NAME | _ABSENT_OWNERS | _BESIDE | CONTENTS


class Remedy(StrEnum):
    """What would turn suspect into certain."""

    LOAD_TOPIC = "load-topic"
    LOAD_AND_ACKNOWLEDGE = "load-and-acknowledge"
    NEW_SCHEMA = "new-schema"
    COMPACT = "compact"
    REMOVE_CURSOR = "remove-cursor"
    READ_COPY = "read-copy"
    REPAIR_NODE = "repair-node"
    NEWER_OFFLOADER = "newer-offloader"
    KNOW_NAMESPACE = "know-namespace"
    DECLARE = "declare"


@dataclass(frozen=True, slots=True)
class LedgerEvidence:
    """A fact, and where it was seen. Which fields it has stands behind each fact."""

    fact: Fact
    store: str = ""
    node: str = ""
    version: int | None = None
    other: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class SeenLedger:
    """A ledger's node, as the scan saw it. `last_entry` None: not known (not closed, or the metadata are damaged).

    `version`: the node's; `created_ms`: the node's, by ZooKeeper's clock; `born`: by which of its transactions.
    `length`: payload bytes once it is closed. `copies`: how many bookies keep each of its entries.
    """

    ledger: int
    version: int
    purpose: LedgerPurpose
    state: LedgerState | None = None
    last_entry: int | None = None
    length: int = 0
    created_ms: int | None = None
    copies: int = 1
    born: int | None = None

    @property
    def empty(self) -> bool:
        return self.last_entry == NO_ENTRY


@dataclass(frozen=True, slots=True)
class LedgerVerdict:
    """What a ledger is, and why. `kept`: it is not deleted, whatever its standing: what is in it is data.

    `referees`: the nodes that a guarded deletion must check; those that are absent, too.
    """

    ledger: SeenLedger
    standing: Standing
    kind: LedgerKind
    evidence: tuple[LedgerEvidence, ...]
    remedies: tuple[Remedy, ...] = ()
    referees: tuple[Referee, ...] = ()
    kept: bool = False

    @property
    def orphan(self) -> bool:
        return self.standing in (Standing.CERTAIN, Standing.SUSPECT)

    @property
    def deletable(self) -> bool:
        """Whether it may be marked. A deletion needs more: `refusals`, the delay, the second look."""
        return self.standing is Standing.CERTAIN and not self.kept

    @property
    def rescued(self) -> bool:
        """Whether somebody has looked, and the archive has a copy of all its entries."""
        return any(one.fact is Fact.RESCUED for one in self.evidence)

    @property
    def confirmable(self) -> bool:
        """Whether an operator's confirmation may replace the missing proof: nothing refers to the ledger, and all that
        speaks against it is one of `CONFIRMABLE`."""
        found = {one.fact for one in self.evidence}
        return self.standing is Standing.SUSPECT and bool(found & CONFIRMABLE) and found <= _MAY_BE_CONFIRMED

    def needs_store_beside(self, store: str) -> bool:
        """Whether a node in another metadata store than this one is part of the proof. Where every store lacks the
        namespace, an absent owner in another store is none: an operator's confirmation takes its place."""
        others = [one for one in self.evidence if one.node and one.store != store]
        no_namespace = self.confirmable and any(one.fact is Fact.NAMESPACE_UNKNOWN for one in self.evidence)
        return not all(no_namespace and one.fact in _ABSENT_OWNERS for one in others)

    @property
    def about_to_be_named(self) -> bool:
        """Whether a broker may be about to write a reference to it into a node that exists."""
        return any(one.fact in _ABOUT_TO_NAME for one in self.evidence)

    @property
    def deletable_on_demand(self) -> bool:
        """Whether it may be marked where an operator names it: also what is kept, once it was rescued."""
        if self.confirmable:
            return self.ledger.empty or self.rescued
        return self.deletable or (self.standing is Standing.CERTAIN and self.rescued)


def seen_ledger(ledger: int, version: int, metadata: LedgerMetadata | None) -> SeenLedger:
    """From a ledger's node. `metadata` None: damaged, or empty."""
    if metadata is None:
        return SeenLedger(ledger, version, foreign(WhyForeign.DAMAGED))
    return SeenLedger(
        ledger=ledger,
        version=version,
        purpose=purpose_of(metadata.custom, metadata.digest),
        state=metadata.state,
        last_entry=metadata.last_entry if metadata.closed else None,
        length=metadata.length,
        created_ms=metadata.listed_ms,
        copies=metadata.write_quorum,
    )


def proof_of(verdict: LedgerVerdict) -> set[tuple[str, str, str]]:
    """All that proves it, without what may change while it stays true: fact, store, node."""
    return {(one.fact, one.store, one.node) for one in verdict.evidence if one.fact not in CONTENTS}

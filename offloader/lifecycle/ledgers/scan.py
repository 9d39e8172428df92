"""The scan of a cluster's ledgers: ids first, then whatever refers to any, then each candidate's nodes again.

Only ledgers that nobody names are looked into, so what is in memory are eight bytes for each ledger, what refers to
ledgers in a packed form, and the verdicts of orphans. What may not be read, or does not answer, is a refusal; then
nothing is certain: it might have named any ledger.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.listing import LedgerListing
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.nodes import Node
from offloader.errors import AccessDeniedError, DamagedRecordError, LedgerNotFoundError
from offloader.lifecycle.ledgers.again import LookAgain, doubted, only_these
from offloader.lifecycle.ledgers.copies import VerifyCopies, copied, with_ends
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, SeenLedger, Standing, seen_ledger
from offloader.lifecycle.ledgers.last_entries import LastEntries
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger, leftover_managed_ledgers
from offloader.lifecycle.ledgers.named import Ids, LedgerIds, NamedLedgers
from offloader.lifecycle.ledgers.objections import OperatorsWord, objections, what_is_doubtful
from offloader.lifecycle.ledgers.patient import clock_by_reading
from offloader.lifecycle.ledgers.reading import ReferenceReader, Said
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.scanned import LedgerScan, LedgerTally, MissingLedger, named_again, still_missing
from offloader.lifecycle.ledgers.stores import LocatedStores
from offloader.lifecycle.ledgers.verdicts import KnownStores, LedgerJudge

_SAID = 10_000  # ledgers


class Scanning(Protocol):
    """What a scan has of its scanner: see `ClusterScanner`."""

    tree: MetadataTree
    bookies: Bookies
    word: OperatorsWord
    clock_ms: Callable[[], int]
    bookie_timeout: float
    verify_copies: VerifyCopies
    said: Said


@dataclass
class _Looked:
    """What the first look found. `orphans`: all of them. `candidates`: to be judged at the second one."""

    orphans: array[int] = field(default_factory=lambda: array("q"))
    candidates: array[int] = field(default_factory=lambda: array("q"))
    again: LookAgain = field(default_factory=LookAgain)
    clusters: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class KnownReferences:
    """What a scan leaves to the looks that follow it: all that refers to ledgers. `places`: of the stores. `read_ms`:
    when it began, by our clock."""

    read_ms: int
    places: list[tuple[str, str]]
    ids: LedgerIds
    named: NamedLedgers
    stores: list[References]
    looked: _Looked


class ClusterScan:
    """One of them. `known`: once it has run, what the next looks may go by."""

    known: KnownReferences | None = None

    def __init__(self, scanner: Scanning, located: LocatedStores, only: frozenset[int] | None) -> None:
        self._scanner = scanner
        self._located = located
        self._only = only
        self._ledgers = located.ledgers
        self._failed: list[str] = []
        last = LastEntries(located.ledgers, scanner.bookies, scanner.tree.path_of, scanner.bookie_timeout)
        self._readers = [
            ReferenceReader(one, last.of, scanner.said, with_ledgers=one.nodes is located.ledgers)
            for one in located.stores
        ]

    def run(self) -> LedgerScan:
        """From the ids to the second look."""
        begun_ms = self._scanner.clock_ms()
        ids = self._ids()
        stores = self._references()
        now_ms = clock_by_reading(self._located.sessions, self._scanner.clock_ms())
        tally = LedgerTally(now_ms)
        judge = self._judge(stores, {})
        if self._only is None:
            tally.add_named(judge.named.kinds_of(ids))
        looked = self._look(judge, self._to_look_into(judge.named, ids), tally)
        missing = self._not_there(judge.named, ids, looked.again)
        leftovers = self._leftovers(stores)
        for name in leftovers:
            looked.again.at_leftover(name)
        if self._only is not None:
            places = [(one.name, one.root) for one in self._located.stores]
            self.known = KnownReferences(begun_ms, places, ids, judge.named, stores, looked)
        del judge  # it is as large as what refers to ledgers
        stores = self._read_again(stores, looked.again)
        return self._concluded(ids, stores, looked, tally, now_ms, missing, leftovers)

    def run_again(self, known: KnownReferences, leftovers: Collection[str]) -> LedgerScan:
        """Ids are known; then what would name these ledgers, and what did, as it is now; then their nodes again."""
        again, there = LookAgain(), array("q")
        for ledger, node in self._nodes_of([one for one in sorted(self._only or ()) if self._is_possible(one)]):
            if node is not None:
                there.append(ledger)
                again.at_purpose(_seen(ledger, node).purpose)
                for referee in known.named.referees(ledger):
                    again.at_referee(referee)
        for name in leftovers:
            again.at_leftover(name)
        stores = self._read_again([only_these(one, again) for one in known.stores], again)
        now_ms = clock_by_reading(self._located.sessions, self._scanner.clock_ms())
        looked = replace(known.looked, candidates=there, again=again)
        return self._concluded(known.ids, stores, looked, LedgerTally(now_ms), now_ms, (), leftovers)

    def _concluded(
        self,
        ids: LedgerIds,
        stores: Sequence[References],
        looked: _Looked,
        tally: LedgerTally,
        now_ms: int,
        missing: tuple[MissingLedger, ...],
        leftovers: Collection[str],
    ) -> LedgerScan:
        judge = self._judge(stores, self._copies(stores, looked))
        verdicts = tuple(self._look_again(judge, looked.candidates))
        failed = what_is_doubtful(self._located, self._failed)
        left_over = (one for one in self._leftovers(stores).values() if one.name in leftovers)
        summary = tally.summary(verdicts)
        return LedgerScan(
            begun_ms=now_ms,
            ledgers=len(ids),
            counts={standing: summary.number(standing) for standing in Standing},
            verdicts=tuple(one for one in verdicts if one.orphan or self._only is not None),
            gone=self._gone(verdicts),
            missing=still_missing(missing, named_again(missing, judge.named)),
            leftovers=tuple(doubted(one, failed) for one in left_over),
            refusals=objections(
                self._located,
                self._scanner.tree.uri.root,
                self._scanner.word,
                clusters_seen=looked.clusters,
                orphans=LedgerIds(looked.orphans),
                failed=self._failed,
            ),
            store=self._located.stores[0].name,
            root=self._located.stores[0].root,
            summary=summary,
        )

    # What is read

    def _ids(self) -> LedgerIds:
        """All that are there from beginning to end. What was listed before a loss is not listed again."""
        found = array("q")
        tree = self._scanner.tree
        listing = LedgerListing(self._ledgers.nodes, tree.uri.root, self._ledgers.again(lambda: tree.layout))

        def go_on() -> None:
            for page in listing.pages(found[-1] + 1 if found else 0):
                found.extend(page.ledgers)
                self._scanner.said("ids", len(found))

        try:
            self._ledgers.again(go_on)
        except AccessDeniedError as error:
            self._failed.append(f"the ledgers' ids: {error}")
        return LedgerIds(found)

    def _references(self) -> list[References]:
        for store in self._located.stores:
            store.sync()
        return [reader.read() for reader in self._readers]

    def _read_again(self, stores: Sequence[References], again: LookAgain) -> list[References]:
        for store in self._located.stores:
            store.sync()
        pairs = zip(self._readers, stores, strict=True)
        return [reader.read_again(before, again) for reader, before in pairs]

    def _nodes_of(self, ledgers: Sequence[int] | Ids) -> Iterator[tuple[int, Node | None]]:
        """Of ids that this layout can have."""
        nodes = self._ledgers.get_each(self._scanner.tree.path_of(int(ledger)) for ledger in ledgers)
        return ((int(ledger), node) for ledger, (_, node) in zip(ledgers, nodes, strict=True))

    # What follows from it

    def _judge(self, stores: Sequence[References], copies: Mapping[int, bool]) -> LedgerJudge:
        word = self._scanner.word
        return LedgerJudge(KnownStores(tuple(stores), word.alone, word.clusters | self._located.clusters, copies))

    def _copies(self, stores: Sequence[References], looked: _Looked) -> Mapping[int, bool]:
        """What cannot be read back now stays suspect."""
        found = tuple(copied(stores, looked.again.managed_ledgers, looked.candidates))
        nodes = self._nodes_of([one.ledger for one in found])
        seen = (_seen(ledger, node) for ledger, node in nodes if node is not None)
        return self._scanner.verify_copies(with_ends(found, seen)) if found else {}

    def _to_look_into(self, named: NamedLedgers, ids: LedgerIds) -> Ids:
        """Each ledger that nobody names: also for a scan of some, as it may be another cluster's, or an orphan that
        lacks copies."""
        possible = (ledger for ledger in self._only or () if self._is_possible(ledger))
        more = sorted(ledger for ledger in possible if ledger not in ids or named.referees(ledger))
        return np.concatenate((named.not_named(ids), np.array(more, np.int64)))

    def _look(self, judge: LedgerJudge, wanted: Ids, tally: LedgerTally) -> _Looked:
        looked = _Looked()
        for count, (ledger, node) in enumerate(self._nodes_of(wanted)):
            if count % _SAID == 0:
                self._scanner.said("ledgers that nobody names", count)
            if node is None:
                continue
            seen = _seen(ledger, node)
            if seen.purpose.cluster:
                looked.clusters.add(seen.purpose.cluster)
            verdict = judge.verdict(seen)
            if verdict.orphan:
                looked.orphans.append(ledger)
            if self._only is not None and ledger not in self._only:
                continue
            if verdict.orphan or self._only is not None:
                looked.candidates.append(ledger)
                looked.again.at_purpose(seen.purpose)
                for referee in verdict.referees:
                    looked.again.at_referee(referee)
            else:
                tally.add(verdict)
        return looked

    def _look_again(self, judge: LedgerJudge, candidates: array[int]) -> Iterator[LedgerVerdict]:
        nodes = self._nodes_of(candidates)
        verdicts = [judge.verdict(_seen(ledger, node)) for ledger, node in nodes if node is not None]
        failed = what_is_doubtful(self._located, self._failed)
        return (doubted(one, failed) for one in verdicts)

    def _not_there(self, named: NamedLedgers, ids: LedgerIds, again: LookAgain) -> tuple[MissingLedger, ...]:
        """Ledgers that are named and were not listed, and whose nodes are not there now."""
        not_listed = [int(ledger) for ledger in named.not_among(ids)]
        possible = [ledger for ledger in not_listed if self._is_possible(ledger)]
        there = {ledger for ledger, node in self._nodes_of(possible) if node is not None}
        there |= {ledger for ledger in possible if self._scanner.tree.path_of(ledger) in self._ledgers.refused}
        found = [MissingLedger(one, who) for one in not_listed if one not in there for who in named.referees(one)]
        for one in found:
            again.at_referee(one.referee)
        return tuple(found)

    def _is_possible(self, ledger: int) -> bool:
        try:
            return bool(self._scanner.tree.path_of(ledger))
        except LedgerNotFoundError:
            return False

    def _gone(self, verdicts: Sequence[LedgerVerdict]) -> frozenset[int]:
        """Of the ledgers that were asked for: those that surely have no node."""
        refused = self._ledgers.refused
        left = (self._only or frozenset()) - {one.ledger.ledger for one in verdicts}
        return frozenset(x for x in left if not self._is_possible(x) or self._scanner.tree.path_of(x) not in refused)

    def _leftovers(self, stores: Sequence[References]) -> dict[str, LeftoverManagedLedger]:
        """Of the cluster's own store."""
        return {one.name: one for one in leftover_managed_ledgers(stores[0])}


def _seen(ledger: int, node: Node) -> SeenLedger:
    """Damaged metadata are a value, too."""
    try:
        metadata = replace(decode_metadata(node.value), listed_ms=node.created_ms)
    except DamagedRecordError:
        return replace(seen_ledger(ledger, node.version, None), created_ms=node.created_ms)
    return replace(seen_ledger(ledger, node.version, metadata), born=node.born)

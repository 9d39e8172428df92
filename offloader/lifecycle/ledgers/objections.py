"""Why nothing may be deleted, whatever was found: asked of the nodes, the bookies and the brokers."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass

from offloader.lifecycle.ledgers.health import interruptions, troubles
from offloader.lifecycle.ledgers.refusals import Refusal, ScanFacts, scan_refusals
from offloader.lifecycle.ledgers.stores import LocatedStores


@dataclass(frozen=True, slots=True)
class OperatorsWord:
    """What only the operator knows. `alone`: nobody else keeps ledgers in this BookKeeper. `clusters`: more names of
    the clusters that are read."""

    alone: bool = False
    clusters: frozenset[str] = frozenset()


def what_failed(located: LocatedStores, more: Iterable[str] = ()) -> list[str]:
    """All that was not read, and might have named any ledger."""
    refused = (path for session in located.sessions for path in session.refused)
    return [*located.failed, *more, *(f"{path}: we may not read it" for path in refused)]


def what_is_doubtful(located: LocatedStores, more: Iterable[str] = ()) -> list[str]:
    """Why nothing is certain: the same, and brokers whose metadata are elsewhere. Those that do not answer say nothing
    against a verdict; but nothing is deleted without them."""
    elsewhere = [one.metadata for one in located.brokers if one.metadata != located.ours.metadata]
    return [*what_failed(located, more), *elsewhere]


def objections(
    located: LocatedStores,
    root: str,
    word: OperatorsWord,
    *,
    clusters_seen: Collection[str] = (),
    orphans: Container[int] | None,
    failed: Iterable[str] = (),
) -> tuple[Refusal, ...]:
    """`root`: of BookKeeper's nodes. `clusters_seen`: named by ledgers. `orphans`: see `troubles`.

    Raises MetadataUnavailableError.
    """
    empty = tuple(one for store in located.stores for one in store.empty())
    in_trouble = tuple(troubles(located.ledgers, root, orphans))
    facts = ScanFacts(
        ours=located.ours,
        brokers=located.brokers,
        empty=empty,
        failed=(*located.silent, *what_failed(located, failed)),
        one_store=located.one_store,
        trouble=(*in_trouble, *interruptions(sum(session.interrupted for session in located.sessions))),
    )
    return scan_refusals(facts, clusters_seen, {*word.clusters, *located.clusters}, alone=word.alone)

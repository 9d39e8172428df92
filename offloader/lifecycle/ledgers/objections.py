"""Why nothing may be deleted, whatever was found: asked of the nodes, the bookies and the brokers.

Where a bookie or ZooKeeper is in trouble, more than we see may be wrong."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from offloader.lifecycle.explaining.words import counted
from offloader.lifecycle.ledgers.patient import PatientNodes
from offloader.lifecycle.ledgers.refusals import Refusal, ScanFacts, scan_refusals
from offloader.lifecycle.ledgers.stores import LocatedStores
from offloader.state.subscription import ledger_of

_READ_ONLY = "readonly"
_UNDER = "/underreplication"
_DEEPEST = 4  # folders of four hexadecimal digits
_ENOUGH = 1_000  # ledgers that lack copies, to say so


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


def troubles(ledgers: PatientNodes, root: str, orphans: Container[int] | None) -> Iterator[str]:
    """`orphans`: those may lack copies for ever, as nobody can make them anew once their bookies are gone. None: nobody
    knows which are, so that ledgers lack copies says nothing."""
    cookies = set(ledgers.children(f"{root}/cookies") or ())
    writable = set(ledgers.children(f"{root}/available") or ())
    read_only = set(ledgers.children(f"{root}/available/{_READ_ONLY}") or ())
    away = sorted(cookies - writable - read_only)
    if away:
        yield f"{_first(away)} not registered, of {len(cookies)} bookies that have a cookie"
    if ledgers.get(f"{root}{_UNDER}/disable") is not None:
        yield "auto-recovery is switched off"
    if orphans is None:
        return
    lacking = list(islice((one for one in _under_replicated(ledgers, root) if one not in orphans), _ENOUGH))
    if lacking:
        yield f"{counted(len(lacking), 'ledger')} without all copies: ledger {lacking[0]} is one"


def interruptions(count: int) -> Iterator[str]:
    """ZooKeeper was away while the scan ran."""
    if count:
        yield f"ZooKeeper did not answer {count} times while this was read"


def _first(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are"


def _under_replicated(ledgers: PatientNodes, root: str) -> Iterator[int]:
    """Ledgers that the auditor found to lack copies. Empty folders stay behind."""
    folders = [f"{root}{_UNDER}/ledgers"]
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for path, names in ledgers.children_of_each(folders):
            for name in sorted(names or ()):
                ledger = ledger_of(name.removeprefix("urL")) if name.startswith("urL") else None
                if ledger is not None:
                    yield ledger
                else:
                    below.append(f"{path}/{name}")
        folders = below

"""When nothing at all may be deleted, whatever a verdict says. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class RefusalKind(StrEnum):
    """Why nothing is deleted."""

    OTHER_METADATA = "brokers-use-other-metadata"
    OTHER_BOOKKEEPER = "brokers-use-another-bookkeeper"
    NOTHING_THERE = "nothing-there"
    LISTING_FAILED = "listing-failed"
    ANOTHER_CLUSTER = "another-cluster"
    MAY_BE_SHARED = "may-be-shared"
    NO_GUARD = "no-guard"
    IN_TROUBLE = "in-trouble"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason, with what it is about."""

    kind: RefusalKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WhereBrokersKeep:
    """Which metadata store and BookKeeper a broker uses, or we do; chroots included."""

    metadata: str
    bookkeeper: str


@dataclass(frozen=True, slots=True)
class ScanFacts:
    """How a scan went.

    `ours`, `brokers`: what is configured, and what each broker says; no broker's answer is a failed listing. `empty`:
    those of /managed-ledgers and /admin/clusters that are missing or have no children. `failed`: listings that did not
    succeed. `one_store`: references and ledgers are
    in one ZooKeeper. `trouble`: bookies and ZooKeeper servers that are not well.
    """

    ours: WhereBrokersKeep
    brokers: tuple[WhereBrokersKeep, ...]
    empty: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    one_store: bool = True
    trouble: tuple[str, ...] = ()


def scan_refusals(
    facts: ScanFacts, clusters_seen: Collection[str], ours: Collection[str], *, alone: bool
) -> tuple[Refusal, ...]:
    """`clusters_seen`: those that a health check's ledger names; `ours`: those whose metadata stores were all read.
    `alone`: the operator's word that nobody else uses this BookKeeper. A ledger that names another cluster says
    otherwise, and is believed."""
    found = [
        *(Refusal(RefusalKind.OTHER_METADATA, one.metadata) for one in _differing(facts, "metadata")),
        *(Refusal(RefusalKind.OTHER_BOOKKEEPER, one.bookkeeper) for one in _differing(facts, "bookkeeper")),
        *(Refusal(RefusalKind.NOTHING_THERE, one) for one in facts.empty),
        *(Refusal(RefusalKind.LISTING_FAILED, one) for one in facts.failed),
        *(Refusal(RefusalKind.ANOTHER_CLUSTER, one) for one in sorted({*clusters_seen} - {*ours, ""})),
        *(Refusal(RefusalKind.IN_TROUBLE, one) for one in facts.trouble),
    ]
    if not facts.brokers:
        found.append(Refusal(RefusalKind.LISTING_FAILED, "the brokers' configuration"))
    if not alone:
        found.append(Refusal(RefusalKind.MAY_BE_SHARED))
    if not facts.one_store:
        found.append(Refusal(RefusalKind.NO_GUARD))
    return tuple(found)


def _differing(facts: ScanFacts, what: str) -> list[WhereBrokersKeep]:
    ours = getattr(facts.ours, what)
    return list(dict.fromkeys(one for one in facts.brokers if getattr(one, what) != ours))

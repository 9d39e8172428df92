"""What a scan of the bucket found: values for people, for the queue of deletions, and for sums. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from offloader.lifecycle.bucket.names import KeyStanding, ObjectKind, TopicNames
from offloader.lifecycle.bucket.verdicts import OF_SEGMENTS, BucketRuling
from offloader.lifecycle.candidates import OrphanCandidate, OrphanSide, OrphanVerdict
from offloader.lifecycle.deletion.records import (
    DeletionEvidence,
    DeletionOffloadContext,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.metadata.layout import JOURNAL, catalog_folder
from offloader.metadata.stock_keys import LedgerKey
from offloader.model import TopicName

STOCK_REFEREE = "/managed-ledgers"
_BY_CATALOG = OF_SEGMENTS | {ObjectKind.DELETED}
"""What a topic's catalog proves: where that was made anew, it has to be proven again."""


@dataclass(frozen=True, slots=True)
class BucketOrphan:
    """An object or an upload that nothing names. `key`: of the object; of a whole folder, with its closing slash.

    `upload`: its handle, of an upload. `etag` and `modified_ms`: which object it is, of those that ever had this key.
    `names`: of its topic's catalog. `stock`: of an object of Pulsar's own offloader.
    """

    key: str
    kind: ObjectKind
    size: int
    etag: str
    modified_ms: int | None
    ruling: BucketRuling
    topic: TopicName | None = None
    names: TopicNames | None = field(default=None, compare=False)
    upload: str = ""
    stock: LedgerKey | None = None

    @property
    def id(self) -> str:
        """What commands call it."""
        return self.upload or self.key

    @property
    def deletable(self) -> bool:
        """Whether it may be marked."""
        return self.ruling.verdict is OrphanVerdict.CERTAIN and not self.ruling.kept and self.modified_ms is not None

    @property
    def candidate(self) -> OrphanCandidate:
        """For people."""
        ruled = self.ruling
        return OrphanCandidate(
            OrphanSide.BUCKET,
            self.id,
            str(self.kind),
            ruled.verdict,
            self.size,
            self.modified_ms,
            ruled.evidence,
            ruled.kept,
        )

    @property
    def node(self) -> LedgerNode:
        """Which object it is."""
        return LedgerNode((self.etag or self.upload).encode(), self.size, self.modified_ms or 0)

    @property
    def evidence(self) -> DeletionEvidence:
        """What is proven, and by what: the catalog's generation and length, where it is a topic's."""
        says = self.ruling.evidence
        if self.stock is not None:
            return DeletionEvidence(DeletionProof.REFEREE_ABSENT, STOCK_REFEREE, None, says)
        if self.names is None or self.kind not in _BY_CATALOG:
            return DeletionEvidence(DeletionProof.REFEREE_ABSENT, f"{JOURNAL}/", None, says)
        folder = catalog_folder(self.names.topic, self.names.generation)
        return DeletionEvidence(DeletionProof.PASSED_BY, folder, self.names.next_slot, says)

    def record(self, marked_by: str) -> PendingDeleteLedgerInfo:
        """The candidate of a deletion, for `machine.marked`."""
        stock = self.stock
        return PendingDeleteLedgerInfo(
            0 if stock is None else stock.ledger,
            LedgerType.OBJECT if stock is None else LedgerType.OFFLOAD_LEDGER,
            LedgerComponent.ARCHIVE if stock is None else LedgerComponent.MANAGED_LEDGER,
            "" if self.topic is None else str(self.topic),
            self.node,
            self.evidence,
            DeletionState.MARKED,
            0,
            marked_by,
            offload_context=None if stock is None else DeletionOffloadContext(stock.uuid),
            object_key=self.key,
            upload=self.upload,
        )


@dataclass(frozen=True, slots=True)
class ObjectScan:
    """`counts`, `sizes`: objects and bytes by standing, of all. `refusals`: why nothing may be deleted by this scan.

    `now_ms`: when it began, by the store's clock. `keeps_versions`: what is deleted can be brought back; None: not
    known. `stock_objects`: how many Pulsar's own offloader has, where they were looked at."""

    now_ms: int
    orphans: tuple[BucketOrphan, ...]
    counts: Mapping[KeyStanding, int]
    sizes: Mapping[KeyStanding, int]
    refusals: tuple[str, ...] = ()
    keeps_versions: bool | None = None
    stock_objects: int = 0

    @property
    def candidates(self) -> tuple[OrphanCandidate, ...]:
        """For people, in the order of keys."""
        return tuple(orphan.candidate for orphan in self.orphans)


@dataclass(frozen=True, slots=True)
class OrphanSum:
    """Of one kind and one age."""

    kind: str
    verdict: OrphanVerdict
    days: str
    number: int
    size: int


AGES = ((1, "under 1 day"), (7, "1 to 7 days"), (30, "7 to 30 days"), (365, "30 days to 1 year"))
DAY_MS = 24 * 60 * 60 * 1000


def sums(candidates: Iterable[OrphanCandidate], now_ms: int) -> tuple[OrphanSum, ...]:
    """Bytes by kind and age, the most bytes first."""
    found: dict[tuple[str, OrphanVerdict, str], list[int]] = {}
    for one in candidates:
        found.setdefault((one.kind, one.verdict, _age(one.created_ms, now_ms)), []).append(one.size or 0)
    added = (OrphanSum(*which, len(sizes), sum(sizes)) for which, sizes in found.items())
    return tuple(sorted(added, key=lambda each: (-each.size, each.kind, each.verdict, each.days)))


def _age(created_ms: int | None, now_ms: int) -> str:
    if created_ms is None:
        return "unknown"
    days = (now_ms - created_ms) / DAY_MS
    return next((text for most, text in AGES if days < most), "over 1 year")

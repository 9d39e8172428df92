"""The values that everything else speaks of: topics, positions, ledgers, parts, segments, slices, receipts. Pure.

Frozen. Sizes are in bytes, times in milliseconds since the epoch (UTC). Ranges of entries go from `first` up to, and
without, `after`. Of positions, `start` and `end` are both included: only the ledger list knows what follows a position.
"""

from __future__ import annotations

from offloader.model.acknowledged import AcknowledgedRange, PartlyAcknowledged, Place, by_ledger, joined
from offloader.model.ledger import (
    ENTRY_OVERHEAD,
    Gap,
    GapKind,
    LedgerList,
    LedgerRange,
    LedgerSpan,
    LedgerSums,
    merge_ranges,
)
from offloader.model.position import EntryRange, Position
from offloader.model.segment import (
    SINGLE_PUT,
    V1,
    V2,
    V3,
    Ending,
    EntryStats,
    Failure,
    FailureKind,
    Loss,
    OpenSegment,
    Part,
    RollReason,
    SealedFacts,
    Segment,
    SegmentLayout,
    SegmentStatus,
    Source,
    Taking,
    Transaction,
)
from offloader.model.slice import Lane, Receipt, Slice, SliceId, SliceStop
from offloader.model.topic import TopicName, split_partition
from offloader.model.units import GIB, KIB, MAX_OBJECT_SIZE, MAX_TIME, MIB
from offloader.model.walk import Silence, Turn, Walk, unbroken

__all__ = [
    "ENTRY_OVERHEAD",
    "GIB",
    "KIB",
    "MAX_OBJECT_SIZE",
    "MAX_TIME",
    "MIB",
    "SINGLE_PUT",
    "V1",
    "V2",
    "V3",
    "AcknowledgedRange",
    "Ending",
    "EntryRange",
    "EntryStats",
    "Failure",
    "FailureKind",
    "Gap",
    "GapKind",
    "Lane",
    "LedgerList",
    "LedgerRange",
    "LedgerSpan",
    "LedgerSums",
    "Loss",
    "OpenSegment",
    "Part",
    "PartlyAcknowledged",
    "Place",
    "Position",
    "Receipt",
    "RollReason",
    "SealedFacts",
    "Segment",
    "SegmentLayout",
    "SegmentStatus",
    "Silence",
    "Slice",
    "SliceId",
    "SliceStop",
    "Source",
    "Taking",
    "TopicName",
    "Transaction",
    "Turn",
    "Walk",
    "by_ledger",
    "joined",
    "merge_ranges",
    "split_partition",
    "unbroken",
]

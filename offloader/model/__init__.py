"""The values that everything else speaks of: topics, positions, ledgers, parts, segments, slices, receipts. Pure.

Frozen. Sizes are in bytes, times in milliseconds since the epoch (UTC), positions inclusive unless a name says
`after`.
"""

from __future__ import annotations

from offloader.model.ledger import Gap, GapKind, LedgerList, LedgerRange, LedgerSpan
from offloader.model.position import Position
from offloader.model.segment import (
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
    Transaction,
)
from offloader.model.slice import Lane, Receipt, Slice, SliceId, SliceStop
from offloader.model.topic import TopicName
from offloader.model.units import GIB, KIB, MAX_OBJECT_SIZE, MAX_TIME, MIB

__all__ = [
    "GIB",
    "KIB",
    "MAX_OBJECT_SIZE",
    "MAX_TIME",
    "MIB",
    "Ending",
    "EntryStats",
    "Failure",
    "FailureKind",
    "Gap",
    "GapKind",
    "Lane",
    "LedgerList",
    "LedgerRange",
    "LedgerSpan",
    "Loss",
    "OpenSegment",
    "Part",
    "Position",
    "Receipt",
    "RollReason",
    "SealedFacts",
    "Segment",
    "SegmentLayout",
    "SegmentStatus",
    "Slice",
    "SliceId",
    "SliceStop",
    "Source",
    "TopicName",
    "Transaction",
]

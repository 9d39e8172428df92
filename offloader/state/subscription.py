"""A subscription: how far it has acknowledged its topic, and what else is stored of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from offloader.model import AcknowledgedRange, PartlyAcknowledged, Place

COMPACTED_LEDGER = "CompactedTopicLedger"
BUCKET_PREFIX = "#pulsar.internal.delayed.bucket_"
_END_OF_IDS = 2**63


@dataclass(frozen=True, slots=True)
class CursorState:
    """A subscription as one record, its node with the last entry of its ledger, or its broker reports it."""

    mark_delete: Place | None = None  # everything up to and including it is acknowledged; None: the record has none
    ranges: tuple[AcknowledgedRange, ...] = ()  # beyond it, in order, none touching another
    batches: tuple[PartlyAcknowledged, ...] = ()
    properties: tuple[tuple[str, int], ...] = ()
    subscription_properties: tuple[tuple[str, str], ...] = ()
    cursor_ledger: int | None = None  # whose last entry counts; None: the node itself
    last_active_ms: int | None = None
    unknown: tuple[str, ...] = ()  # what this version does not know, one line each; such a state is not complete
    version: int = 0  # of its node; so are the next two
    created_ms: int | None = None
    born: int | None = None

    @property
    def complete(self) -> bool:
        """Whether all that the records say is understood, and they have a position."""
        return not self.unknown and self.mark_delete is not None

    @property
    def says_more(self) -> bool:
        """Whether it may name a ledger that this version does not see."""
        return bool(self.unknown) or len(self.buckets) < sum(map(is_bucket, self.subscription_properties))

    @property
    def view(self) -> int | None:
        """The ledger of the compacted view that it names."""
        view = dict(self.properties).get(COMPACTED_LEDGER, -1)
        return view if view >= 0 else None

    @property
    def buckets(self) -> Mapping[str, int]:
        """The delayed index's ledgers by the keys of their buckets."""
        named = ((name, ledger_of(text)) for name, text in filter(is_bucket, self.subscription_properties))
        return {name: ledger for name, ledger in named if ledger is not None}

    def is_at(self, other: CursorState) -> bool:
        """Whether both have acknowledged the same messages."""
        return self._acknowledged == other._acknowledged

    @property
    def _acknowledged(self) -> tuple[object, ...]:
        return self.mark_delete, self.ranges, self.batches


def whole_state(node: CursorState, entry: CursorState | None) -> CursorState:
    """Of a node and the last entry of the ledger that it names. None: that ledger has no entry, or there is none: then
    a broker, too, goes by the node."""
    if entry is None:
        return node
    return replace(
        node,
        mark_delete=entry.mark_delete,
        ranges=entry.ranges,
        batches=entry.batches,
        properties=entry.properties,
        unknown=(*node.unknown, *entry.unknown),
    )


def ledger_of(text: str) -> int | None:
    """A ledger's id as others write it. None: that is none."""
    is_one = len(text) < 20 and text.isascii() and text.isdigit()
    return int(text) if is_one and int(text) < _END_OF_IDS else None


def is_bucket(subscription_property: tuple[str, str]) -> bool:
    """Whether it names a bucket of the delayed index."""
    return subscription_property[0].startswith(BUCKET_PREFIX)

"""All that is stored of a subscription: values. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offloader.model import AcknowledgedRange, PartlyAcknowledged, Place


@dataclass(frozen=True, slots=True)
class CursorState:
    """What one record, or node and last entry together, say of a subscription.

    `mark_delete`: everything up to and including it is acknowledged; None: the record does not say. `ranges`: beyond
    it, in order, none touching another. `cursor_ledger`: whose last entry counts; None: the node itself.
    `unknown`: what it says that we do not understand, one line each; such a state is not complete.
    """

    mark_delete: Place | None
    ranges: tuple[AcknowledgedRange, ...] = ()
    batches: tuple[PartlyAcknowledged, ...] = ()
    properties: tuple[tuple[str, int], ...] = ()
    subscription_properties: tuple[tuple[str, str], ...] = ()
    cursor_ledger: int | None = None
    last_active_ms: int | None = None
    unknown: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all that the records say is understood, and they say where the subscription stands."""
        return not self.unknown and self.mark_delete is not None

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
        entry,
        subscription_properties=node.subscription_properties,
        cursor_ledger=node.cursor_ledger,
        last_active_ms=node.last_active_ms,
        unknown=(*node.unknown, *entry.unknown),
    )

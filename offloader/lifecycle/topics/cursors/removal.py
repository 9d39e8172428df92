"""What a look at a subscription says of its deletion. Pure.

The evidence is the broker's own at both looks: no consumer, and nothing acknowledged, consumed or asked for between.
What a node says of the last activity may be old: that it is not newer proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from offloader.lifecycle.deletion.machine import (
    FailedLook,
    GoneLedger,
    ReferencedLedger,
    SecondLook,
    UnprovenLedger,
    UnreferencedLedger,
)
from offloader.lifecycle.deletion.records import (
    DeletionEvidence,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, why_never_removed
from offloader.lifecycle.topics.cursors.saved import SavedCursor, as_looked_at
from offloader.lifecycle.topics.cursors.stored import StoredCursor
from offloader.model import TopicName
from offloader.ports.subscriptions import SubscriptionLook
from offloader.state.subscription import CursorState

CLOCKS_MS = 600_000  # so much a broker's clock may differ from ours
NO_LEDGER = -1
BY_POLICY = "policy lifecycle.removeCursorsAfter"
"""Who marked what the policy found."""


@dataclass(frozen=True, slots=True)
class SubscriptionSeen:
    """One look: what the broker says, and what is stored. `look` None: there is no such subscription. `by_name_only`:
    why no policy may remove it; see `why_by_name_only`."""

    look: SubscriptionLook | None
    stored: StoredCursor | None = None
    by_name_only: str = ""

    @property
    def state(self) -> CursorState | None:
        """All that there is of it; None: not all of it was read or understood."""
        if self.look is None or self.stored is None or not self.stored.complete or self.stored.state is None:
            return None
        return as_looked_at(self.stored.state, self.look)

    @property
    def doubt(self) -> str:
        """Why its state is not complete; empty: it is."""
        if self.stored is None:
            return "the metadata service has no such subscription"
        unknown = self.stored.state.unknown if self.stored.state is not None else ()
        return self.stored.problem or "; ".join(unknown) or ("" if self.stored.complete else "it has no position")


def objection(kind: SubscriptionKind, seen: SubscriptionSeen) -> str:
    """Why a subscription is not marked; empty: it may be."""
    if why := why_never_removed(kind):
        return why
    if seen.look is None:
        return "there is no such durable subscription"
    if seen.look.consumers:
        return f"{seen.look.consumers} of its consumers are connected"
    if seen.doubt:
        return f"its state cannot be saved whole: {seen.doubt}"
    return ""


def subscription_candidate(
    topic: TopicName, subscription: str, seen: SubscriptionSeen, now: int, by: str, says: tuple[str, ...]
) -> PendingDeleteLedgerInfo | UnprovenLedger:
    """What `marked` takes, with its whole state; nothing stands against it. `by`: who marks it. `says`: more of it,
    for people."""
    if seen.look is None or seen.stored is None:
        return UnprovenLedger(f"its state cannot be saved whole: {seen.doubt}")
    return PendingDeleteLedgerInfo(
        ledger_id=NO_LEDGER,
        ledger_type=LedgerType.SUBSCRIPTION,
        ledger_component=LedgerComponent.SUBSCRIPTION,
        topic_name=str(topic),
        cursor_name=subscription,
        node=_node(seen.look),
        evidence=DeletionEvidence(
            DeletionProof.UNUSED, str(topic), says=("Its broker has no consumer of it.", *filter(None, says))
        ),
        state=DeletionState.MARKED,
        marked_at=0,
        marked_by=by,
        subscription=SavedCursor(seen.look, seen.stored.node, seen.stored.entry, now),
    )


def second_look(record: PendingDeleteLedgerInfo, seen: SubscriptionSeen, now: int) -> SecondLook:
    """What a look says of a record, compared with what was saved then. Raises DamagedRecordError: what was saved is
    damaged, so nothing goes."""
    saved, look = record.subscription, seen.look
    if look is None:
        return GoneLedger()
    if saved is None:
        return UnprovenLedger("nothing was saved of it")
    if seen.by_name_only and record.marked_by == BY_POLICY:
        return ReferencedLedger(f"not removed by policy: {seen.by_name_only}")
    if look.created != saved.look.created:
        return UnprovenLedger("the topic was deleted and made again: this is another subscription")
    if why := _use(saved.look, look):
        return ReferencedLedger(f"it is in use: {why}")
    if seen.stored is not None and seen.stored.problem:
        return FailedLook(seen.doubt)
    if seen.stored is None or seen.state is None:
        return UnprovenLedger(f"it cannot be saved whole: {seen.doubt}")
    if why := _stored_use(saved, seen.state):
        return ReferencedLedger(f"it is in use: {why}")
    anew = SavedCursor(look, seen.stored.node, seen.stored.entry, now)
    return UnreferencedLedger(_node(look), record.evidence, now - record.marked_at, now, saved=anew)


def _node(look: SubscriptionLook) -> LedgerNode:
    """A subscription has none of its own that could be compared: its topic's time tells it from another topic's."""
    return LedgerNode(b"", 0, look.created)


def _use(saved: SubscriptionLook, look: SubscriptionLook) -> str:
    """What its broker tells of a use between two looks; empty: nothing."""
    if look.consumers:
        return f"{look.consumers} of its consumers are connected"
    if not look.stands_where(saved):
        return "something was acknowledged since, or it was moved or made anew"
    if look.last_active_ms > saved.last_active_ms:
        return "a consumer was there since"
    return ""


def _stored_use(saved: SavedCursor, after: CursorState) -> str:
    """The same of what a broker does not tell, or has forgotten since it loaded the topic anew. A node may only now say
    of a use that was long before the mark."""
    before = saved.state
    if after.batches != before.batches:
        return "messages of batches were acknowledged since"
    if (after.last_active_ms or 0) > max(before.last_active_ms or 0, saved.taken_at - CLOCKS_MS):
        return "a consumer was there since, by its node"
    return ""

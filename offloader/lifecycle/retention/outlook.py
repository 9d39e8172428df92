"""What an operator is told of a topic's retention: what goes by its policy and when, and what comes next. Reads the
catalog, writes nothing. The application decides by the same rules; what it alone can see is said in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from offloader.errors import FatalError
from offloader.lifecycle.retention.due_now import RetentionPlan, planned
from offloader.lifecycle.retention.holdings import holdings, with_waiting
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.plan import DueRange, NextDue, due, next_due
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata.beside import decides, last_owner
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import DeletedRange
from offloader.metadata.history import History
from offloader.metadata.state import CatalogHead, Said
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

NO_POLICY = "no policy says that anything goes"
NO_OWNER = "nothing tells who had the topic last: nothing of it goes but on request"
NOT_DUE = "nothing is due"


@dataclass(frozen=True, slots=True)
class RetentionOutlook:
    """`not_before`: what is due goes then at the earliest, if it is recorded now (ms). `waiting`: of each incarnation
    what is due next. `note`: why nothing goes, or what else there is to know. `deleted`: what went before.
    `others`: another application has the topic."""

    plan: RetentionPlan
    not_before: int
    waiting: tuple[NextDue, ...] = ()
    note: str = ""
    deleted: tuple[DeletedRange, ...] = ()
    others: bool = False

    @property
    def says_anything(self) -> bool:
        """Whether something goes, will go, or is kept from it, by this application."""
        return self.note != NO_POLICY and not self.others


def outlook(
    store: ObjectStore,
    head: CatalogHead,
    policy: RetentionPolicy,
    application: str,
    now: int,
    grace_ms: int,
) -> RetentionOutlook:
    """By the policy of this application, and by what is recorded of the topic's end in Pulsar."""
    found = _outlook(store, head, policy, application, now, grace_ms)
    return replace(found, deleted=head.removed.ranges)


def _outlook(
    store: ObjectStore,
    head: CatalogHead,
    policy: RetentionPolicy,
    application: str,
    now: int,
    grace_ms: int,
) -> RetentionOutlook:
    nothing = RetentionPlan(head.topic, (), head.removed.pending)
    owner = last_owner(store, head)
    if owner and not decides(head, owner, application):
        did = "claimed" if head.claim is not None and head.claim.application else "released"
        note = f"{did} by {owner}: it goes by that one's policies"
        return RetentionOutlook(nothing, now + grace_ms, note=note, others=True)
    if head.removed.pending is None and not policy.hold and (not policy.says_anything or head.claim is None):
        return RetentionOutlook(nothing, now + grace_ms, note=NO_POLICY)
    if head.removed.pending is None and not owner:
        return RetentionOutlook(nothing, now + grace_ms, note=NO_OWNER)
    gone = recorded_gone(head)
    plan, trimmed = planned(store, head, policy, now, gone), head.removed.trimmed
    if plan.why_not:
        note = _of_pending(head, policy) or plan.why_not
        return RetentionOutlook(plan, now + grace_ms, _behind_pending(store, head, policy, now), note)
    goes = {each.holding.incarnation: each for each in plan.due}
    all_kept = holdings(History(store, head), gone, head.removed.ranges)
    known = with_waiting(store, head.topic, all_kept, policy, now, trimmed)
    found = (next_due(each, goes.get(each.incarnation), policy, now, trimmed) for each in known)
    waiting = tuple(each for each in found if each is not None)
    return RetentionOutlook(plan, now + grace_ms, waiting, plan.held or ("" if plan.due else NOT_DUE))


def _behind_pending(store: ObjectStore, head: CatalogHead, policy: RetentionPolicy, now: int) -> tuple[NextDue, ...]:
    """What comes next where a deletion is under way: one at a time."""
    if head.removed.pending is None or policy.hold or not policy.says_anything:
        return ()
    found, trimmed = list[NextDue | None](), head.removed.trimmed
    all_kept = holdings(History(store, head), recorded_gone(head), head.removed.told)
    for each in with_waiting(store, head.topic, all_kept, policy, now, trimmed):
        goes = due(each, policy, now, trimmed)
        if goes is None:
            found.append(next_due(each, None, policy, now, trimmed))
        else:
            first = goes.due[0]
            words = f"{first.words}, once deletion {head.removed.pending.number} is done"
            found.append(NextDue(first.segment, first.since or None, words, each.size))
    return tuple(each for each in found if each is not None)


def _of_pending(head: CatalogHead, policy: RetentionPolicy) -> str:
    if head.removed.pending is None or not policy.hold:
        return ""
    if head.removed.begun is None:
        return f"held by {policy.hold}: the next look takes back what is under way"
    return f"held by {policy.hold}: the deletion has begun, and what is left of it stays as long"


@dataclass(frozen=True)
class _Foreseen(ArchiveDeletion):
    """Writes nothing: what would be recorded is `found`."""

    found: list[tuple[DueRange, ...]] = field(default_factory=list)

    def record(self, head: CatalogHead, due: Sequence[DueRange], by: str, grace_ms: int) -> CatalogHead:  # noqa: ARG002
        self.found.append(tuple(due))
        return head


def foreseen_deletion(
    catalogs: Catalogs,
    store: ObjectStore,
    topic: TopicName,
    policy: RetentionPolicy,
    by: str,
    clock_ms: Callable[[], int],
) -> tuple[DueRange, ...]:
    """What a deletion on request comes to, by the very code that carries it out; but whether the topic is gone is what
    is recorded of it. `by`: the application that is asked. Raises ClaimedByOtherError, IntegrityError, as that does."""
    deletion = _Foreseen(store, catalogs, _never, lambda: None, clock_ms, "", by)
    ArchiveRetention(deletion, lambda _: policy, recorded_gone, 0).delete(topic, "somebody")
    return tuple(each for ranges in deletion.found for each in ranges)


def recorded_gone(head: CatalogHead) -> int | None:
    """Since when Pulsar has no such topic, as far as that is recorded."""
    return None if head.removed.gone is None else head.removed.gone.at


def _never(head: CatalogHead, _: Said) -> CatalogHead:
    raise FatalError(f"{head.topic}: nothing is written here")

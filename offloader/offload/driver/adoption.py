"""Taking a topic into the running application: catalog, claim, pin, incarnation."""

from __future__ import annotations

import logging
from dataclasses import replace

from offloader.config.levels import TopicPolicy
from offloader.errors import (
    ClaimedByOtherError,
    DamagedRecordError,
    FatalError,
    HeldByShardError,
    ShadowTopicError,
    TopicNotFoundError,
)
from offloader.metadata.deal import is_shard_of
from offloader.metadata.state import CatalogHead, Claim
from offloader.model import LedgerList, Loss, Position, Taking, TopicName
from offloader.offload.core import evidence, segments
from offloader.offload.core.evidence import TopicListing
from offloader.offload.core.facets import Committed, Observed, TopicRules
from offloader.offload.core.topic import Topic, source_of
from offloader.offload.driver import observed
from offloader.offload.driver.admin_queries import kept, managed_ledger
from offloader.offload.driver.committing import append_record, there_again
from offloader.offload.driver.context import Context
from offloader.offload.driver.inquiries import inquire
from offloader.offload.driver.losses import CREATED_AGAIN, NOT_KEPT, RELEASE
from offloader.offload.driver.undelivered import explain_tail
from offloader.offload.driver.work import Attempt
from offloader.ports.admin import TopicInfo
from offloader.ports.pins import TopicEnd

log = logging.getLogger(__name__)


def rules_of(policy: TopicPolicy) -> TopicRules:
    """The planner's rules from a merged policy."""
    return TopicRules(
        max_size=policy.max_segment_size,
        roll_ms=policy.max_rollover_ms,
        cuts=policy.layout,
        source=policy.source,
        fail_on_data_loss=policy.fail_on_data_loss,
        min_roll_ms=policy.min_rollover_ms,
        pin_holds_last_entry=policy.pin_holds_last_entry,
        broker_readable=policy.broker_readable,
    )


def adopt(
    context: Context,
    name: TopicName,
    policy: TopicPolicy,
    attempt: Attempt,
    taking: Taking | None = None,
    *,
    until_caught_up: bool = False,
) -> Topic:
    """Open the topic's pin and catalog; claim it where nobody has, `taking` over ledgers that brokers have offloaded,
    where somebody wants that. `until_caught_up`: what no broker delivers of its tail is explained at once. Not in the
    driver's thread. Raises ClaimedByOtherError, SubscriptionBusyError, TopicNotFoundError, FatalError (stock offload
    beside us) and whatever the store and Pulsar raise."""
    attempt.began = context.clock_ms()
    catalog = context.catalogs.head(name)
    _mind_other_owner(context, catalog)
    _mind_deal(context, catalog)
    if name.partition >= 0:  # first: brokers cannot describe a shadow's partition whose source was never loaded
        _mind_shadow(catalog, context.admin.shadow_source(TopicName.parse(name.partitioned_name)))
    _mind_lost_end(context, catalog)
    if catalog.claim is not None and catalog.claim.application:
        context.catalogs.mark(name)
    try:
        info = context.admin.topic_info(name)
    except TopicNotFoundError:
        ours = catalog.claim is not None and catalog.claim.application == context.application
        # What was uploaded of it may be the only copy; and what is begun for brokers nobody else takes away.
        if not ours or not _is_unfinished(context, name):
            raise
        return _in_question(context, rules_of(policy), catalog)
    _mind_shadow(catalog, info.shadow_of)
    begin_after = None if taking is not None else _stock_offload(context, policy, info, catalog)
    _mind_lost_pin(context, catalog, info)
    end = context.pins.open(name)
    if catalog.claim is None or not catalog.claim.application:
        info = kept(context.admin, catalog, context.subscription)
        catalog = _claim(context, catalog, info, begin_after or _beginning(end, info), attempt, taking=taking)
    elif evidence.needs_token(catalog):
        info = managed_ledger(context.admin, catalog, context.subscription)
    if not catalog.is_of(info.created, info.ledgers):
        return _in_question(context, rules_of(policy), catalog)
    catalog = there_again(context.catalogs, catalog, context.clock_ms(), attempt)
    topic = _topic(context, rules_of(policy), catalog, info, end)
    if until_caught_up and topic.hidden_tail() is not None:
        explain_tail(context, topic)
    return topic


def _mind_other_owner(context: Context, catalog: CatalogHead) -> None:
    """Raises HeldByShardError where a shard of this application has the topic, ClaimedByOtherError where another
    application has."""
    owner = "" if catalog.claim is None else catalog.claim.application
    if owner in ("", context.application):
        return
    name = catalog.topic
    if not is_shard_of(owner, context.application):
        raise ClaimedByOtherError(
            f"{name} is claimed by application {owner!r}; stop that one and run `offloader takeover {owner}`, or "
            "disable the topic here"
        )
    if not context.deal.sharded:
        raise ClaimedByOtherError(
            f"{name} is with {owner}, a shard of this application: with shards: {{count: 1}} in the configuration its "
            "topics come here"
        )
    if context.deal.is_dealt(name):
        context.catalogs.mark_for(owner, name)  # or it may not know: what is dealt to others only the list tells it
    else:
        context.catalogs.unmark(name)  # it was passed on by a process that did not live to say so
    raise HeldByShardError(f"{name} is with {owner}, which passes it on once it runs with the same section `shards`")


def _mind_deal(context: Context, catalog: CatalogHead) -> None:
    """Raises HeldByShardError for a topic that is another shard's to claim."""
    unclaimed = catalog.claim is None or not catalog.claim.application
    if unclaimed and not context.deal.is_dealt(catalog.topic) and catalog.topic not in context.journal.topics:
        context.catalogs.unmark(catalog.topic)
        raise HeldByShardError(f"{catalog.topic} is dealt to shard {context.deal.owner_of(catalog.topic)}")


def _mind_shadow(catalog: CatalogHead, source: str) -> None:
    """Raises ShadowTopicError where a new topic has a `source`, with which its data is offloaded."""
    if source and (catalog.claim is None or not catalog.claim.application):
        raise ShadowTopicError(f"{catalog.topic} is a shadow of {source}, with which its data is offloaded")


def _mind_lost_end(context: Context, catalog: CatalogHead) -> None:
    """Raises DamagedRecordError where the catalog has less than when the open segment was assigned."""
    segment, last = context.state(catalog.topic).open, catalog.last
    known = None if segment is None else segment.predecessor_end
    if known is not None and (last is None or last.end < known):
        raise DamagedRecordError(
            f"{catalog.topic}: the catalog ends with {'nothing' if last is None else last.end}, and {known} was "
            f"committed: it has lost its end; `offloader catalog rebuild {catalog.topic}` makes it anew"
        )


def _is_unfinished(context: Context, name: TopicName) -> bool:
    return name in context.journal.topics or any(feature.has_open_record(name) for feature in context.features)


def _in_question(context: Context, rules: TopicRules, catalog: CatalogHead) -> Topic:
    """It is said to be gone, or another one is in its place: nothing is read of it before that is certain."""
    nothing = TopicInfo(0, LedgerList(()), {}, None, terminated=False, offloaded=frozenset())
    topic = _topic(context, rules, catalog, nothing, TopicEnd(None, (-1, -1)))
    unfinished = context.state(topic.name).unfinished
    for segment in unfinished:  # it had at least what that was assigned for
        observed.remember(topic, segment.closing_end or segment.covered or segment.start)
    inquire(topic, adopted=False, seen_at=max((segment.assigned_at for segment in unfinished), default=0))
    return topic


def _topic(context: Context, rules: TopicRules, catalog: CatalogHead, info: TopicInfo, end: TopicEnd) -> Topic:
    now = context.clock_ms()
    state = segments.not_of_the_future(context.state(catalog.topic), now)
    context.record(state)
    seen = Observed(info, end, seen_at=now, moved_at=now, adopted_at=now)
    topic = Topic(catalog.topic, rules, Committed(catalog), seen, source_of(state, rules))
    observed.remember(topic, topic.last)
    if state.let_go:
        observed.doubt(topic)  # the list may have been read before the pin was made anew
    return topic


def _mind_lost_pin(context: Context, catalog: CatalogHead, info: TopicInfo) -> None:
    """Our subscription was deleted, or expired, while nothing ran. The journal notes what that puts in doubt."""
    claim, state = catalog.claim, context.state(catalog.topic)
    if claim is None or claim.application != context.application or not catalog.is_of(info.created, info.ledgers):
        return
    if context.subscription in info.subscriptions or not evidence.doubtful(catalog, TopicListing(info.ledgers, None)):
        return
    log.error(
        "the subscription of topic=%s was deleted: what followed %s may be gone",
        catalog.topic,
        catalog.accounted,
        extra={"see": "subscription-deleted"},
    )
    if state.open is None:
        context.record(replace(state, lost_after=catalog.accounted))


def _claim(
    context: Context,
    catalog: CatalogHead,
    info: TopicInfo,
    begin: Position,
    attempt: Attempt,
    reason: str = "",
    taking: Taking | None = None,
) -> CatalogHead:
    incarnation = 0 if catalog.claim is None else catalog.claim.incarnation
    if not catalog.is_of(info.created, info.ledgers):
        incarnation += 1
    claim = Claim(
        application=context.application,
        incarnation=incarnation,
        created=info.created,
        begin=begin._replace(incarnation=incarnation),
        at=context.clock_ms(),
        reason=reason,
        token=info.token or "",
        taking=taking or (None if catalog.claim is None else catalog.claim.taking),
    )
    log.info("claim topic=%s begin=%s incarnation=%d", catalog.topic, begin, incarnation)
    claimed = append_record(context.catalogs, catalog, claim, attempt)
    begun = claimed.claim or claim  # perhaps one that was begun before
    return _record_not_ours(context, claimed, info, begun.begin, attempt)


def _record_not_ours(
    context: Context, catalog: CatalogHead, info: TopicInfo, begin: Position, attempt: Attempt
) -> CatalogHead:
    """Record as lost what came between a release, or the first claim, and a new claim: nobody kept it."""
    after = catalog.end or (catalog.begin or begin).previous_entry
    first, last = after.next_entry, begin.previous_entry
    kept = after.ledger in info.ledgers and info.ledgers.successor(after) == begin
    if begin <= first or kept:
        return catalog
    loss = Loss(first, last, NOT_KEPT, RELEASE, context.clock_ms())
    return append_record(context.catalogs, catalog, loss, attempt)


def next_incarnation(context: Context, topic: Topic, attempt: Attempt) -> Topic:
    """The topic was deleted and created again: from here on the records are of another one."""
    info = context.admin.topic_info(topic.name)
    context.pins.drop(topic.name)
    end = context.pins.open(topic.name)
    catalog = context.catalogs.head(topic.name)
    if catalog.claim is None or not catalog.is_of(info.created, info.ledgers):
        info = kept(context.admin, catalog, context.subscription)
        begin = _with_trimmed(context, catalog, info, _beginning(end, info))
        catalog = _claim(context, catalog, info, begin, attempt, CREATED_AGAIN)
    return _topic(context, topic.rules, catalog, info, end)


def _with_trimmed(context: Context, catalog: CatalogHead, info: TopicInfo, begin: Position) -> Position:
    """Where a new incarnation begins: before what may have been trimmed before it had our subscription, if anything.
    The journal notes that first, and the loss is recorded behind the claim."""
    if begin.ledger <= 0 or not info.may_have_trimmed:
        return begin
    former = catalog.accounted  # ledger ids grow, except in a cluster that was built anew
    after = former.ledger + 1 if former is not None and former.ledger + 1 < begin.ledger else 0
    incarnation = 1 if catalog.claim is None else catalog.claim.incarnation + 1
    begin = Position(incarnation, after, 0)
    context.record(replace(context.state(catalog.topic), lost_after=begin.previous_entry, let_go=True))
    return begin


def _beginning(end: TopicEnd, info: TopicInfo) -> Position:
    """The successor of the new pin's mark-delete."""
    mark = Position(0, *end.mark_delete)
    following = info.ledgers.next_ledger(mark.ledger)
    if mark.ledger not in info.ledgers and following is not None:
        return Position(0, following, 0)
    return info.ledgers.successor(mark) or mark.next_entry


def _stock_offload(context: Context, policy: TopicPolicy, info: TopicInfo, catalog: CatalogHead) -> Position | None:
    """Where to begin after ledgers that Pulsar's own offloader has copied. Raises FatalError unless that is wanted."""
    if not info.offloaded or catalog.claim is not None:
        return None
    theirs = info.offloaded.difference(*(feature.offloaded_by_us(catalog.topic) for feature in context.features))
    if not theirs:
        return None
    if not policy.start_after_offloaded:
        raise FatalError(
            f"{catalog.topic}: Pulsar's own offloader has copied {len(theirs)} of its ledgers; `offloader migrate "
            f"to-streaming {catalog.topic}` takes them over, startAfterOffloaded: true begins after them; or disable "
            "the topic here"
        )
    following = info.ledgers.next_ledger(max(theirs))
    return None if following is None else Position(0, following, 0)

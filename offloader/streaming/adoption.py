"""Taking a topic into the running application: catalog, claim, pin, incarnation."""

from __future__ import annotations

import logging
from dataclasses import replace

from offloader.config.levels import TopicPolicy
from offloader.errors import ClaimedByOtherError, FatalError, TopicNotFoundError
from offloader.metadata.state import Claim, TopicCatalog
from offloader.model import LedgerList, Loss, Position, TopicName
from offloader.pulsar.api import TopicEnd, TopicInfo
from offloader.streaming.context import Context
from offloader.streaming.looking import DELETED, RECREATED
from offloader.streaming.planner import Rules
from offloader.streaming.topics import Topic, accounted, source_of

log = logging.getLogger(__name__)


def rules_of(policy: TopicPolicy) -> Rules:
    """The planner's rules from a merged policy."""
    return Rules(
        max_size=policy.max_segment_size,
        roll_ms=policy.max_rollover_ms,
        cuts=policy.cuts,
        source=policy.source,
        fail_on_data_loss=policy.fail_on_data_loss,
        min_roll_ms=policy.min_rollover_ms,
    )


def adopt(context: Context, name: TopicName, policy: TopicPolicy) -> Topic:
    """Open the topic's pin and catalog; claim it where nobody has.

    Raises ClaimedByOtherError, SubscriptionBusyError, TopicNotFoundError, FatalError (stock offload beside us) and whatever
    the store and Pulsar raise.
    """
    catalog = context.catalogs.load(name)
    if catalog.claim is not None and catalog.claim.application not in ("", context.application):
        raise ClaimedByOtherError(
            f"{name} is claimed by application {catalog.claim.application!r}; stop that one and run "
            f"`offloader takeover {catalog.claim.application}`, or disable the topic here"
        )
    try:
        info = context.admin.topic_info(name)
    except TopicNotFoundError:
        if not _deleted_meanwhile(context, catalog):
            raise
        return _without_source(context, name, rules_of(policy), catalog)
    begin_after = _stock_offload(name, policy, info, catalog)
    _mind_lost_pin(context, catalog, info)
    end = context.pins.open(name)
    if catalog.claim is None or not catalog.claim.application:
        catalog = _claim(context, catalog, info, begin_after or _beginning(end, info))
    topic = _topic(context, name, rules_of(policy), catalog, info, end)
    if catalog.claim is not None and catalog.claim.created != info.created:
        topic.gone = RECREATED
        topic.last_seen = _last_known(context, name)
    return topic


def _deleted_meanwhile(context: Context, catalog: TopicCatalog) -> bool:
    """Whether the topic went while nothing ran, and the journal still has something of it: what was uploaded may be the only copy."""
    ours = catalog.claim is not None and catalog.claim.application == context.application
    return ours and catalog.topic in context.journal.topics and catalog.topic not in context.admin.topics(catalog.topic.namespace)


def _without_source(context: Context, name: TopicName, rules: Rules, catalog: TopicCatalog) -> Topic:
    log.warning("deleted topic=%s", name)
    nothing = TopicInfo("", LedgerList(()), {}, None, terminated=False, offloaded=frozenset())
    topic = _topic(context, name, rules, catalog, nothing, TopicEnd(None, (-1, -1)))
    topic.gone = DELETED
    topic.last_seen = _last_known(context, name)
    return topic


def _topic(context: Context, name: TopicName, rules: Rules, catalog: TopicCatalog, info: TopicInfo, end: TopicEnd) -> Topic:
    now = context.clock_ms()
    source = source_of(context.state(name), rules)
    topic = Topic(name=name, rules=rules, catalog=catalog, info=info, end=end, looked_at=now, source=source, seen_at=now)
    topic.last_seen = topic.last
    return topic


def _last_known(context: Context, name: TopicName) -> Position | None:
    """Of an incarnation that ended while nobody looked: at least what its open segment was assigned for."""
    segment = context.state(name).open
    return None if segment is None else segment.closing_end or segment.covered or segment.start


def _mind_lost_pin(context: Context, catalog: TopicCatalog, info: TopicInfo) -> None:
    """Our topic has no subscription: somebody deleted it, or it expired, while nothing ran. Unless the ledger of the catalog's end is still
    there, and so all that follows it, nobody knows what has been trimmed: that is remembered before the pin is made again. A topic that was
    claimed while it was empty has no end yet: what lies before its claim stands for it."""
    claim, end = catalog.claim, accounted(catalog)
    if claim is None or claim.application != context.application or claim.created != info.created or end is None:
        return
    if context.subscription in info.subscriptions or end.ledger in info.ledgers:
        return
    state = context.state(catalog.topic)
    log.error("the subscription of topic=%s was deleted: what followed %s may be gone", catalog.topic, end)
    if state.open is None:
        context.record(replace(state, lost_after=end))


def _claim(context: Context, catalog: TopicCatalog, info: TopicInfo, begin: Position, reason: str = "") -> TopicCatalog:
    incarnation = 0 if catalog.claim is None else catalog.claim.incarnation
    if catalog.claim is not None and catalog.claim.created != info.created:
        incarnation += 1
    claim = Claim(
        application=context.application,
        incarnation=incarnation,
        created=info.created,
        begin=begin._replace(incarnation=incarnation),
        at=context.clock_ms(),
        reason=reason,
    )
    log.info("claim topic=%s begin=%s incarnation=%d", catalog.topic, begin, incarnation)
    claimed = context.catalogs.append(catalog, claim, token=context.new_uuid())
    return _record_not_ours(context, claimed, info, claim.begin)


def _record_not_ours(context: Context, catalog: TopicCatalog, info: TopicInfo, begin: Position) -> TopicCatalog:
    """A topic that was released and is claimed again: what came in between was not kept for us."""
    end = catalog.end
    kept = end is not None and end.ledger in info.ledgers and info.ledgers.successor(end) == begin
    if end is None or begin <= end or kept:
        return catalog
    first, last = end._replace(entry=end.entry + 1), begin._replace(entry=begin.entry - 1)
    loss = Loss(first, last, "nobody kept it between release and claim", "release", context.clock_ms())
    return context.catalogs.append(catalog, loss, token=context.new_uuid())


def next_incarnation(context: Context, topic: Topic) -> Topic:
    """The topic was deleted and created again: the records from here on speak of another one."""
    info = context.admin.topic_info(topic.name)
    context.pins.drop(topic.name)
    end = context.pins.open(topic.name)
    catalog = context.catalogs.load(topic.name)
    if catalog.claim is None or catalog.claim.created != info.created:
        catalog = _claim(context, catalog, info, _beginning(end, info), "created again")
    return _topic(context, topic.name, topic.rules, catalog, info, end)


def _beginning(end: TopicEnd, info: TopicInfo) -> Position:
    """The successor of the new pin's mark-delete."""
    mark = Position(0, *end.mark_delete)
    return info.ledgers.successor(mark) or Position(0, mark.ledger, mark.entry + 1)


def _stock_offload(name: TopicName, policy: TopicPolicy, info: TopicInfo, catalog: TopicCatalog) -> Position | None:
    """Where to begin after ledgers that Pulsar's own offloader has copied. Raises FatalError where that is not wanted."""
    if not info.offloaded or catalog.claim is not None:
        return None
    if not policy.start_after_offloaded:
        raise FatalError(
            f"{name}: Pulsar's own offloader has copied {len(info.offloaded)} of its ledgers; set startAfterOffloaded: true to begin "
            "after them, or disable the topic here"
        )
    following = info.ledgers.next_ledger(max(info.offloaded))
    return None if following is None else Position(0, following, 0)

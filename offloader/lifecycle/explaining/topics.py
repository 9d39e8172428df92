"""Why a topic's data is still there, and what to do. Pure.

A broker drops a ledger once every subscription is past it, retention has passed since it was closed, and the topic is
loaded; never the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from offloader.lifecycle.explaining.places import TopicPlaces, places_told
from offloader.lifecycle.explaining.words import Explanation, counted, moment_text, size_text, span_text
from offloader.lifecycle.topics.broker_retention import BrokerRetention
from offloader.lifecycle.topics.cursors.held import needs_any
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind
from offloader.lifecycle.topics.cursors.stored import ListedSubscription, StoredTopic, by_bytes_held
from offloader.lifecycle.topics.unloaded import PassedOver, UnloadedTopic
from offloader.lifecycle.topics.why_not import StayReason, stay_reasons
from offloader.model import Place


@dataclass(frozen=True, slots=True)
class ExplainedTopic:
    """What was read. `loaded`: whether a broker has it; None: nobody could say. `found`: what retention comes to, and
    what stands against it; None: the same.

    `archived`: the last position that the archive accounts for; None: nothing of it is archived. `deletion_lag_ms`: how
    long Pulsar keeps in BookKeeper what it has offloaded itself. `places`: where its ledgers can be read from.
    `unknown`: what could not be asked.
    """

    stored: StoredTopic
    subscriptions: Sequence[ListedSubscription]
    now_ms: int
    loaded: bool | None = None
    found: UnloadedTopic | PassedOver | None = None
    archived: Place | None = None
    deletion_lag_ms: int | None = None
    places: TopicPlaces | None = None
    unknown: tuple[str, ...] = ()


def explain_topic(facts: ExplainedTopic) -> Explanation:
    """What keeps its data, in sentences: the greatest holders first."""
    said = (_size, _holders, _pin, _retained, _offloaded, _last, _loaded, _places)
    because = [one for each in said for one in each(facts)]
    reasons = _reasons(facts)
    return Explanation.of(
        [*because, *(f"{one.why[:1].upper()}{one.why[1:]}." for one in reasons)],
        [*(one.do for one in reasons), *_advice(facts)],
        facts.unknown,
    )


def _reasons(facts: ExplainedTopic) -> tuple[StayReason, ...]:
    """The same as those of plans and visits."""
    if facts.found is None:
        return ()
    used = {one.subscription for one in facts.subscriptions if one.consumers}
    return stay_reasons(facts.found, facts.now_ms, loaded=facts.loaded, used=used)


def _size(facts: ExplainedTopic) -> Iterator[str]:
    ledgers = facts.stored.ledgers
    size = sum(one.size or 0 for one in ledgers)
    dated = [one.timestamp_ms for one in facts.stored.listed if one.timestamp_ms]
    closed = f"; the oldest was closed at {moment_text(dated[0])}" if dated else ""
    uncounted = ", without one that is open" if any(one.size is None for one in ledgers) else ""
    yield f"{facts.stored.topic} has {counted(len(ledgers), 'ledger')} of {size_text(size)} in all{uncounted}{closed}."


def _holders(facts: ExplainedTopic) -> Iterator[str]:
    if not facts.subscriptions:
        yield "It has no subscription: none holds anything back."
    for one in by_bytes_held(list(facts.subscriptions)):
        name = f"The subscription {one.subscription}{_who(one)}"
        if one.held is None:
            yield f"{name} cannot be understood ({one.problem}): what it holds back is not known."
        elif (one.held.size or one.held.uncounted) and _needs_any(facts, one.subscription):
            yield f"{name} holds back {size_text(one.held.size)}{_alone(one)}: {_entries(one)}.{_used(one)}"
        elif one.kind is SubscriptionKind.USER:
            yield f"{name} has acknowledged everything that is counted, and holds nothing back."


def _needs_any(facts: ExplainedTopic, subscription: str) -> bool:
    cursor = facts.stored.cursors.get(subscription)
    state = None if cursor is None else cursor.state
    return state is None or needs_any(facts.stored.ledgers, state.mark_delete)


def _who(one: ListedSubscription) -> str:
    owner = f"of {one.owner}" if one.owner else ""
    kind = "" if one.kind is SubscriptionKind.USER else f"{one.kind}, not a user's"
    words = ", ".join(filter(None, (owner, kind)))
    return f" ({words})" if words else ""


def _alone(one: ListedSubscription) -> str:
    held = one.held
    return f", {size_text(held.alone)} of it alone" if held and held.alone else ""


def _entries(one: ListedSubscription) -> str:
    held = one.held
    more = ", and those of a ledger that is still open" if held and held.uncounted else ""
    number = held.entries if held else 0
    return f"{counted(number, 'entry')} {'is' if number == 1 else 'are'} not acknowledged{more}"


def _used(one: ListedSubscription) -> str:
    active = "" if one.last_active_ms is None else f" It was last used at {moment_text(one.last_active_ms)}, or later."
    if one.consumers is None:
        return active
    consumers = counted(one.consumers, "consumer")
    return f"{active} It has {consumers if one.consumers else 'no consumer'} now."


def _pin(facts: ExplainedTopic) -> Iterator[str]:
    if not any(one.kind is SubscriptionKind.PIN for one in facts.subscriptions):
        return
    if facts.archived is None:
        yield "Our own subscription keeps it because nothing of it is in the archive yet."
    else:
        ledger, entry = facts.archived
        yield f"Our own subscription keeps what follows {ledger}:{entry}: the archive has everything up to there."


def _retained(facts: ExplainedTopic) -> Iterator[str]:
    found = facts.found
    if not isinstance(found, UnloadedTopic) or found.retention.for_ever:
        return
    yield _retention_text(found.retention)
    if found.overdue:
        yield f"So {size_text(found.overdue)} should be gone by now: no subscription needs them any more."


def _retention_text(retention: BrokerRetention) -> str:
    if retention.minutes == 0 or retention.megabytes == 0:
        return f"Retention (the {retention.level}'s) keeps nothing that all subscriptions have acknowledged."
    time = "any time" if retention.minutes < 0 else span_text(60 * retention.minutes)
    size = "whatever its size" if retention.megabytes < 0 else f"up to {retention.megabytes} MiB"
    return f"Retention (the {retention.level}'s) keeps what is acknowledged for {time}, {size}."


def _offloaded(facts: ExplainedTopic) -> Iterator[str]:
    copies = [one for one in facts.stored.listed if one.copy.complete]
    waiting = [one for one in copies if not one.copy.bookkeeper_deleted]
    if len(copies) > len(waiting):
        gone = counted(len(copies) - len(waiting), "ledger")
        yield f"Pulsar's own offloader has {gone} in its bucket only; they take no room in BookKeeper."
    if waiting:
        lag = f", {span_text(facts.deletion_lag_ms / 1000)} after the copy" if facts.deletion_lag_ms is not None else ""
        size = size_text(sum(one.size for one in waiting))
        yield (
            f"Pulsar's own offloader has copied {counted(len(waiting), 'ledger')} of {size}, and BookKeeper keeps them "
            f"until the deletion lag has passed{lag}."
        )


def _last(facts: ExplainedTopic) -> Iterator[str]:
    if not facts.stored.listed:
        return
    last, counts = facts.stored.listed[-1], facts.stored.ledgers[-1]
    if last.timestamp_ms:
        yield f"Its last ledger, {last.ledger}, is closed, and stays until there is another one."
    elif counts.size is None or counts.is_open:
        size = f" of {size_text(counts.size)}," if counts.size is not None else ""
        yield f"Its last ledger, {last.ledger},{size} is open: retention counts from when it is closed."
    else:
        yield (
            f"Its last ledger, {last.ledger}, of {size_text(counts.size)}, is closed in BookKeeper and not in the "
            "topic's list: retention counts from the next time that the topic is loaded."
        )


def _loaded(facts: ExplainedTopic) -> Iterator[str]:
    if facts.loaded:
        yield "A broker has it loaded, and looks every few minutes what may go."
    elif facts.loaded is not None:
        yield "No broker has it loaded, so nobody drops anything of it, whatever retention says."


def _places(facts: ExplainedTopic) -> Iterator[str]:
    if facts.places is not None:
        yield from places_told(facts.places)


def _advice(facts: ExplainedTopic) -> Iterator[str]:
    """Where nobody could say what retention comes to."""
    for one in by_bytes_held(list(facts.subscriptions)) if facts.found is None else ():
        if one.kind is SubscriptionKind.USER and one.held and one.held.alone and not one.consumers:
            yield (
                f"If nobody needs {one.subscription} any more: `offloader topics cursors remove "
                f"{quote(str(facts.stored.topic))} {quote(one.subscription)}`; that frees {size_text(one.held.alone)}."
            )
    if facts.archived is None and any(one.kind is SubscriptionKind.PIN for one in facts.subscriptions):
        yield f"`offloader topics offload-status {facts.stored.topic}` says how our own offload of it stands."

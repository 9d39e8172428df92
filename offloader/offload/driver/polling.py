"""What the driver asks Pulsar of topics: ends often and together, ledger lists only where something moved. And when
entries were published, as far as the borders of a topic's history depend on it: a few look-ups a border."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from offloader.errors import AbsentError, OffloadError
from offloader.format.entry import inspect
from offloader.model import KIB, Position, TopicName
from offloader.offload.core.borders import BorderSearch, Times
from offloader.offload.core.changes import TopicAgenda
from offloader.offload.core.facets import PublishTimes
from offloader.offload.core.topic import Topic
from offloader.offload.driver import observed
from offloader.offload.driver.admin_queries import managed_ledger
from offloader.offload.driver.context import Context
from offloader.offload.driver.inquiries import inquire, subscribe_soon
from offloader.offload.driver.undelivered import have_tail_explained
from offloader.offload.driver.work import WorkKind, foreseen
from offloader.ports.admin import TopicInfo
from offloader.ports.entry_source import EntrySource
from offloader.ports.pins import TopicEnd

log = logging.getLogger(__name__)

LEAST_MS = 250  # between two looks at a topic
QUIETEST_MS = 60_000  # a quiet topic is looked at this often at least
# A ledger may be closed while the end stays where it is: soon after its last entry, or much later (roll-over by age,
# unload).
CLOSED_SOON_MS = 2_000
CLOSED_LATER_MS = 30_000
LIST_TRUSTED_MS = 30_000  # how long an end that moves in the open ledger does not have the list read again
LIST_CHECKS = 8  # ledger lists read in one look though no consumer's end moved: two REST calls each
# What a broker says of bridged ledgers is heard every ten minutes at least: behind this the topic is due, and of those
# that are looked at together, a part each minute.
HEARD_MS = 300_000
HEARD_PART = 5

# Look-ups of publish times:
MOST_LOOKUPS = 200  # of one search; then what is found is enough
MOST_IN_VAIN = 3  # of one search: few threads look up the times of all topics, and none of them waits for long
READS = 10  # of one entry, before it counts as one that no broker delivers
READ_TIMEOUT = 0.2


def look(
    context: Context, agenda: TopicAgenda, topics: Mapping[TopicName, Topic], is_free: Callable[[Topic], bool]
) -> None:
    """Have ends refreshed and, where they moved, ledger lists. Topics of one group are asked at once."""
    now = context.clock_ms()
    due = dict[TopicName, Topic]()
    for topic in agenda.take(topics, now):
        due_at = max(topic.poll.again_at, topic.observed.seen_at + LEAST_MS)
        if topic.poll.under_way or due_at > now:
            agenda.rest(topic.name, due_at if due_at > now else None)
        elif is_free(topic) and _may_be_looked_at(context, topic):
            due[topic.name] = topic
    for group in context.pins.groups(list(due)):
        asked = [due[name] for name in group]
        observed.asked(asked)
        call, then = partial(context.pins.ends, group), partial(_take_ends, context, asked, now)
        wakes = partial(_some_differ, {topic.name: topic.end if topic.rest else None for topic in asked})
        context.work.post(WorkKind.LOOK, tuple(group), call, then, wakes)


def notice_disconnected(context: Context, topics: Mapping[TopicName, Topic]) -> None:
    """Have topics subscribed to again at once whose consumers were closed: they may have been deleted, and another one
    in their place keeps nothing for us before."""
    for name in context.pins.take_disconnected():
        topic = topics.get(name)
        if topic is not None and topic.in_question:
            subscribe_soon(topic)
        elif topic is not None:
            observed.soon(topic)


def _some_differ(known: Mapping[TopicName, TopicEnd | None], ends: Mapping[TopicName, TopicEnd | Exception]) -> bool:
    """Whether an answer is worth a round of its own: of thousands of idle topics some answer at any time. `known`: None
    where something is to be decided, which waits for the answer."""
    return any(ends[name] != end for name, end in known.items())


def _may_be_looked_at(context: Context, topic: Topic) -> bool:
    ended = topic.gone or topic.in_question or topic.release.done
    under_way = any(context.work.has(kind, topic.name) for kind in (WorkKind.LEDGERS, WorkKind.RELEASE))
    # Else nothing would ever be decided where brokers answer late and the end moves all the time.
    decided_first = topic.poll.undecided and topic.readable and not context.busy(topic)
    return not (ended or under_way or topic.planned.travels or topic.poll.under_way or decided_first)


def _take_ends(
    context: Context, topics: list[Topic], began: int, ends: dict[TopicName, TopicEnd | Exception] | OffloadError
) -> None:
    now = context.clock_ms()
    waiting, unheard = list[Topic](), list[Topic]()
    answers = dict[TopicName, TopicEnd]()
    for topic in topics:
        end = ends if isinstance(ends, OffloadError) else ends[topic.name]
        observed.answered(topic, None if isinstance(end, Exception) else end)
        if isinstance(end, Exception):
            _failed(context, topic, began, foreseen(end))
            continue
        answers[topic.name] = end
        if end != topic.end or _end_is_awaited(context, topic):
            if _is_in_open_ledger(context, topic, end, now):
                _take_end(topic, end, began)
            else:
                _refresh_ledgers(context, topic, end, began)
            continue
        quiet_for = now - topic.observed.moved_at
        wait = min(quiet_for // 4, QUIETEST_MS, max(topic.rules.roll_ms // 10, 1_000))
        observed.same(topic, began, began + wait)
        list_too = _list_is_older(topic) or _close_not_seen(topic, now) or _may_have_hidden(topic, now)
        if topic.observed.doubted or list_too or end.subscribed != topic.end.subscribed:
            waiting.append(topic)
        elif _broker_unheard(context, topic, now):
            unheard.append(topic)
    waiting.sort(key=lambda topic: (not topic.observed.doubted, topic.observed.listed_at))
    unheard.sort(key=lambda topic: topic.observed.listed_at)
    for topic in (*waiting[:LIST_CHECKS], *unheard[: len(topics) // HEARD_PART + 1]):
        _refresh_ledgers(context, topic, answers[topic.name], began)


def _is_in_open_ledger(context: Context, topic: Topic, end: TopicEnd, now: int) -> bool:
    """Whether the end has only moved on in the open ledger of a list that is hardly old. While the subscription is held
    and stands where it stood, nothing that it keeps goes, and the topic is the same."""
    spans = topic.info.ledgers.spans
    if end.last is None or not spans or topic.observed.doubted or _end_is_awaited(context, topic):
        return False
    kept = (end.subscribed, end.mark_delete) == (topic.end.subscribed, topic.end.mark_delete)
    entries, _ = topic.info.sizes.get(end.last[0], (0, 0))
    forward = entries > 0 and (topic.end.last is None or end.last > topic.end.last)
    is_open = spans[-1].ledger == end.last[0] and spans[-1].last is None
    return kept and forward and is_open and 0 <= now - topic.observed.listed_at < LIST_TRUSTED_MS


def _take_end(topic: Topic, end: TopicEnd, began: int) -> None:
    observed.advanced(topic, end, began)
    observed.moved(topic, began)
    observed.remember(topic, topic.last)


def _failed(context: Context, topic: Topic, began: int, error: OffloadError) -> None:
    observed.failed(topic, began, context.clock_ms())
    if isinstance(error, AbsentError):
        inquire(topic)
    elif str(error) != topic.poll.error:
        observed.explain(topic, str(error))
        log.warning("cannot look at topic=%s: %s", topic.name, error, extra={"see": "topic-silent"})


def _end_is_awaited(context: Context, topic: Topic) -> bool:
    """Somebody asked for everything up to the very end, also what consumers do not get."""
    retires = topic.retirement is not None and topic.retirement.at is None
    return topic.source.complete and (retires or bool(context.state(topic.name).requests))


def _list_is_older(topic: Topic) -> bool:
    """The end is in a ledger that the list lacks: they were read at two times, or from two brokers."""
    last = topic.last
    return last is not None and not topic.info.ledgers.reaches(last.ledger)


def _broker_unheard(context: Context, topic: Topic, now: int) -> bool:
    """A feature goes by what the topic's broker lists, and that was not asked for long: what somebody has changed there
    does not show by any new entry."""
    return now - topic.observed.listed_at >= HEARD_MS and any(f.needs_list(topic) for f in context.features)


def _may_have_hidden(topic: Topic, now: int) -> bool:
    """Markers and entries of open or aborted transactions move the ledger's end and not the consumers'."""
    quiet_for = now - topic.observed.moved_at
    every = max(min(quiet_for // 4, topic.rules.roll_ms // 4), 1_000)
    return topic.source.complete and now - topic.observed.listed_at >= every


def _close_not_seen(topic: Topic, now: int) -> bool:
    """Everything is offloaded, its last ledger is not known to be closed, and it is time to ask again."""
    end, ledgers = topic.catalog.end, topic.info.ledgers
    if end is None or (topic.last is not None and topic.last > end):
        return False
    # A tail that was explained before a restart is past what can be read: `last` is then before the catalog's end.
    if end.ledger not in ledgers or ledgers.closed_with(end.ledger) is not None:
        return False
    asked_soon_after = topic.observed.listed_at - topic.observed.moved_at >= CLOSED_SOON_MS
    return now - topic.observed.listed_at >= (CLOSED_LATER_MS if asked_soon_after else CLOSED_SOON_MS)


def _refresh_ledgers(context: Context, topic: Topic, end: TopicEnd, began: int) -> None:
    call = partial(managed_ledger, context.admin, topic.catalog, context.subscription)
    context.work.post(WorkKind.LEDGERS, topic.name, call, partial(_take_ledgers, context, topic, end, began))


def _take_ledgers(context: Context, topic: Topic, end: TopicEnd, began: int, info: TopicInfo | OffloadError) -> None:
    if isinstance(info, OffloadError):
        _failed(context, topic, began, info)
        return
    if not topic.catalog.is_of(info.created, info.ledgers):
        inquire(topic)
        return
    before, moved = topic.last, end.last != topic.end.last
    observed.listed(topic, info, end, began)
    if _end_is_awaited(context, topic):
        have_tail_explained(context, topic)
    if moved or topic.last != before:
        observed.moved(topic, began)
    observed.remember(topic, topic.last)


def have_looked_up(context: Context, topic: Topic, search: BorderSearch) -> None:
    """Have looked up what a search wants to know. The topic is read meanwhile, as the live end is."""
    call = partial(_searched, context.source, topic.name, search, topic.times.known)
    context.work.post(WorkKind.TIMES, topic.name, call, partial(_take_times, topic, search))


def _take_times(topic: Topic, search: BorderSearch, answer: Times | OffloadError) -> None:
    """Where the entries cannot be asked for, size alone says where segments end: nothing waits for that."""
    if isinstance(answer, OffloadError):
        log.info("borders of topic=%s follow from sizes alone: %s", topic.name, answer)
        answer = search.untimed(topic.times.known)
    done = topic.catalog.end
    kept = {p: at for p, at in topic.times.known.items() if done is None or p > done}
    topic.times = PublishTimes(kept | {**answer})


def _searched(source: EntrySource, topic: TopicName, search: BorderSearch, known: Times) -> Times:
    """Not in the driver's thread: what is known once nothing more is wanted."""
    times, in_vain = dict(known), 0
    for _ in range(MOST_LOOKUPS):
        wanted = search.cut(times).wanted
        if not wanted:
            return times
        for position in wanted:
            times[position] = _publish_time(source, topic, position)
            in_vain += times[position] is None
        if in_vain >= MOST_IN_VAIN:
            break
    return search.untimed(times)


def _publish_time(source: EntrySource, topic: TopicName, position: Position) -> int | None:
    """Of the entry, or of the first one behind it that a broker delivers; None: none came, or it says no time."""
    with closing(source.open(topic, position.ledger, position.entry, max_bytes=64 * KIB)) as reader:
        for _ in range(READS):
            for _, _, data in reader.read(READ_TIMEOUT):
                return inspect(data).publish_time
    return None

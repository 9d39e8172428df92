"""When entries were published, as far as the borders of a topic's history depend on it: a few look-ups a border."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial

from offloader.errors import OffloadError
from offloader.format.entry import inspect
from offloader.model import KIB, Position, TopicName
from offloader.offload.core.borders import BorderSearch, Times
from offloader.offload.driver.context import Context
from offloader.offload.driver.facets import PublishTimes
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind
from offloader.ports.entry_source import EntrySource

log = logging.getLogger(__name__)

MOST_LOOKUPS = 200  # of one search; then what is found is enough
MOST_IN_VAIN = 3  # of one search: few threads look up the times of all topics, and none of them waits for long
READS = 10  # of one entry, before it counts as one that no broker delivers
READ_TIMEOUT = 0.2


def have_looked_up(context: Context, topic: Topic, search: BorderSearch) -> None:
    """Have looked up what a search wants to know. The topic is read meanwhile, as the live end is."""
    call = partial(_searched, context.source, topic.name, search, topic.times.known)
    context.work.post(WorkKind.TIMES, topic.name, call, partial(_take, topic, search))


def _take(topic: Topic, search: BorderSearch, answer: Times | OffloadError) -> None:
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

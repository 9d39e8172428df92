"""What is committed of each topic, with the application's only call of `Catalogs.append` (takeover and rebuild write
beside it). It also has manifests sum up what is old."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.compaction import compact
from offloader.metadata.manifest import FAN
from offloader.metadata.state import CatalogHead, Said, TopicState
from offloader.model import Failure, FailureKind, TopicName
from offloader.offload.core.facets import Committed
from offloader.offload.core.retry_schedule import back_off_ms
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import Attempt, WorkKind

log = logging.getLogger(__name__)

COMPACT_AGAIN_MS = 60_000


def append_record(
    catalogs: Catalogs, catalog: CatalogHead, record: Said, attempt: Attempt | None = None
) -> CatalogHead:
    """All that the application appends passes here: see `Catalogs.append`. Not in the driver's thread. `attempt`
    learns whether this is what failed."""
    if attempt is not None:
        attempt.committing = True
    appended = catalogs.append(catalog, record)
    if attempt is not None:
        attempt.committing = False
    return appended


def there_again(catalogs: Catalogs, catalog: CatalogHead, now: int, attempt: Attempt | None = None) -> CatalogHead:
    """The topic is there, whatever is recorded of its end: its claim, once more, takes that back. Else the time of what
    is kept would count from that end once it is deleted. Not in the driver's thread."""
    claim, gone = catalog.claim, catalog.removed.gone
    if claim is None or gone is None:
        return catalog
    log.info("there again topic=%s", catalog.topic)
    at = max(now, gone.at + 1)  # whoever recorded the end may have had another clock
    return append_record(catalogs, catalog, replace(claim, at=at, reason="it is there again"), attempt)


def take(topic: Topic, catalog: CatalogHead) -> None:
    """This is what the topic's catalog has by now: something was committed."""
    topic.committed = replace(topic.committed, catalog=catalog, failure=None)


def have_recorded(context: Context, topic: Topic, record: Said, then: Callable[[], None] = lambda: None) -> None:
    """Have a record appended, and `then` called. Nothing else is decided about the topic before that."""
    call = partial(append_record, context.catalogs, topic.catalog, record)
    context.work.post(WorkKind.CATALOG, topic.name, call, partial(_recorded, context, topic, then))


def _recorded(context: Context, topic: Topic, then: Callable[[], None], answer: CatalogHead | OffloadError) -> None:
    if isinstance(answer, OffloadError):
        in_doubt(context, topic, answer)
    else:
        take(topic, answer)
        then()


def in_doubt(context: Context, topic: Topic, error: OffloadError) -> None:
    """Nothing is decided about the topic until its catalog was loaded anew, later each time. Not for seals: each try of
    one loads the head by itself."""
    log.warning("loading the catalog anew topic=%s: %s", topic.name, error, extra={"see": "catalog-reloaded"})
    attempts = 1 if topic.committed.failure is None else topic.committed.failure.attempts + 1
    retry_at = context.clock_ms() + back_off_ms(attempts, context.jitter())
    failure = Failure(FailureKind.of(error), str(error), attempts, retry_at, of_catalog=True)
    topic.committed = Committed(topic.catalog, str(error), failure)
    context.metrics.failure(failure.kind, topic.name)


def settle(topic: Topic) -> bool:
    """Nothing is to be recorded of the topic, and what is known of it adds up: failures before that are over. Returns
    whether there were any."""
    committed = topic.committed
    if committed.failure is None or committed.catalog_error:
        return False
    topic.committed = Committed(committed.catalog)
    return True


def remembered(state: TopicState, committed: Committed) -> TopicState:
    """The topic's state with the failure of its catalog, which others read in the journal, or without the last one."""
    if committed.failure is not None:
        return replace(state, failure=committed.failure)
    return replace(state, failure=None) if state.failure is not None and state.failure.of_catalog else state


def have_reloaded(context: Context, topic: Topic) -> None:
    """Have the catalog of a topic in doubt loaded anew: it may have what a lost answer was about."""
    if topic.committed.failure is None or context.clock_ms() >= topic.committed.failure.retry_at:
        call = partial(context.catalogs.head, topic.name)
        context.work.post(WorkKind.CATALOG, topic.name, call, partial(_reloaded, context, topic))


def _reloaded(context: Context, topic: Topic, answer: CatalogHead | OffloadError) -> None:
    if isinstance(answer, OffloadError):
        in_doubt(context, topic, answer)
    else:
        topic.committed = Committed(answer, failure=topic.committed.failure)


def end_claim(context: Context, name: TopicName, attempt: Attempt) -> None:
    """Nobody's topic from here on: any application may claim it. Not in the driver's thread."""
    catalog = context.catalogs.head(name)
    if catalog.claim is not None and catalog.claim.application:
        append_record(context.catalogs, catalog, released(catalog.claim, context.clock_ms(), "released"), attempt)


class Compacting:
    """Which topics' manifests are written, and when that is tried again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._leaves: dict[TopicName, int] = {}
        self._again_at: dict[TopicName, int] = {}
        self._agenda = context.changes.agenda()

    def look(self, topics: Mapping[TopicName, Topic]) -> None:
        """Begin what is due."""
        now = self._context.clock_ms()
        for topic in self._agenda.take(topics, now):
            leaves, again_at = topic.catalog.next_slot // FAN, self._again_at.get(topic.name, 0)
            if leaves <= self._leaves.get(topic.name, 0):
                self._agenda.rest(topic.name)
            elif now < again_at:
                self._agenda.rest(topic.name, again_at)
            else:
                call = partial(compact, self._context.store, topic.catalog)
                self._context.work.post(WorkKind.COMPACT, topic.name, call, partial(self._taken, topic.name, leaves))

    def _taken(self, name: TopicName, leaves: int, answer: int | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._again_at[name] = self._context.clock_ms() + COMPACT_AGAIN_MS
            log.warning(
                "cannot write manifests of topic=%s yet, readers read its records one by one: %s",
                name,
                answer,
                extra={"see": "manifests-wait"},
            )
        else:
            self._leaves[name] = leaves

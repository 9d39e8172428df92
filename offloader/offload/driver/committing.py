"""What is committed of each topic, with the application's only call of `Catalogs.append` (takeover and rebuild write
beside it). It also has manifests sum up what is old."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.compaction import compact
from offloader.metadata.manifest import FAN
from offloader.metadata.state import CatalogHead, Said
from offloader.model import TopicName
from offloader.offload.driver.context import Context
from offloader.offload.driver.facets import Committed
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

RELOAD_MS = 2_000
COMPACT_AGAIN_MS = 60_000


def append_record(catalogs: Catalogs, catalog: CatalogHead, record: Said) -> CatalogHead:
    """All that the application appends passes here: see `Catalogs.append`. Not in the driver's thread."""
    return catalogs.append(catalog, record)


def there_again(catalogs: Catalogs, catalog: CatalogHead, now: int) -> CatalogHead:
    """The topic is there, whatever is recorded of its end: its claim, once more, takes that back. Else the time of what
    is kept would count from that end once it is deleted. Not in the driver's thread."""
    claim, gone = catalog.claim, catalog.removed.gone
    if claim is None or gone is None:
        return catalog
    log.info("there again topic=%s", catalog.topic)
    at = max(now, gone.at + 1)  # whoever recorded the end may have had another clock
    return append_record(catalogs, catalog, replace(claim, at=at, reason="it is there again"))


def take(topic: Topic, catalog: CatalogHead) -> None:
    """This is what the topic's catalog has by now."""
    topic.committed = replace(topic.committed, catalog=catalog)


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
    """Nothing is decided about the topic until its catalog was loaded anew, a little later. Not for seals: each try of
    one loads the head by itself."""
    log.warning("loading the catalog anew topic=%s: %s", topic.name, error, extra={"see": "catalog-reloaded"})
    topic.committed = Committed(topic.catalog, str(error), context.clock_ms() + RELOAD_MS)


def have_reloaded(context: Context, topic: Topic) -> None:
    """Have the catalog of a topic in doubt loaded anew: it may have what a lost answer was about."""
    if context.clock_ms() >= topic.committed.reload_at:
        call = partial(context.catalogs.head, topic.name)
        context.work.post(WorkKind.CATALOG, topic.name, call, partial(_reloaded, context, topic))


def _reloaded(context: Context, topic: Topic, answer: CatalogHead | OffloadError) -> None:
    if isinstance(answer, OffloadError):
        in_doubt(context, topic, answer)
    else:
        topic.committed = Committed(answer)


def end_claim(context: Context, name: TopicName) -> None:
    """Nobody's topic from here on: any application may claim it. Not in the driver's thread."""
    catalog = context.catalogs.head(name)
    if catalog.claim is not None and catalog.claim.application:
        append_record(context.catalogs, catalog, released(catalog.claim, context.clock_ms(), "released"))


class Compacting:
    """Which topics' manifests are written, and when that is tried again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._leaves: dict[TopicName, int] = {}
        self._again_at: dict[TopicName, int] = {}

    def look(self, topics: Iterable[Topic]) -> None:
        """Begin what is due."""
        now = self._context.clock_ms()
        for topic in topics:
            leaves = topic.catalog.next_slot // FAN
            if leaves > self._leaves.get(topic.name, 0) and now >= self._again_at.get(topic.name, 0):
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

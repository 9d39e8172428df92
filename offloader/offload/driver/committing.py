"""What is committed of each topic. Nothing else appends to catalogs, or changes what a topic knows of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.state import CatalogHead, Said
from offloader.model import TopicName
from offloader.offload.driver.context import Context
from offloader.offload.driver.parts import Committed
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

RELOAD_MS = 2_000


def append(catalogs: Catalogs, catalog: CatalogHead, record: Said) -> CatalogHead:
    """Append a record to a catalog as it was loaded. Not in the driver's thread. See `Catalogs.append`."""
    return catalogs.append(catalog, record)


def take(topic: Topic, catalog: CatalogHead) -> None:
    """This is what the topic's catalog has by now."""
    topic.committed = replace(topic.committed, catalog=catalog)


def have_recorded(context: Context, topic: Topic, record: Said, then: Callable[[], None] = lambda: None) -> None:
    """Have a record appended, and `then` called. Nothing else is decided about the topic before that."""
    call = partial(append, context.catalogs, topic.catalog, record)
    context.work.post(WorkKind.CATALOG, topic.name, call, partial(_recorded, context, topic, then))


def _recorded(context: Context, topic: Topic, then: Callable[[], None], answer: CatalogHead | OffloadError) -> None:
    if isinstance(answer, OffloadError):
        in_doubt(context, topic, answer)
    else:
        take(topic, answer)
        then()


def in_doubt(context: Context, topic: Topic, error: OffloadError) -> None:
    """Nothing is decided about the topic until its catalog was loaded anew, a little later."""
    log.warning("loading the catalog anew topic=%s: %s", topic.name, error, extra={"see": "catalog-reloaded"})
    topic.committed = Committed(topic.catalog, str(error), context.clock_ms() + RELOAD_MS)


def have_reloaded(context: Context, topic: Topic) -> None:
    """Have the catalog of a topic in doubt loaded anew, a little later: an answer that was lost may be in it."""
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
        append(context.catalogs, catalog, released(catalog.claim, context.clock_ms(), "released"))

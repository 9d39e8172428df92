"""Seals: posts them, does the steps that write to the store in a thread beside the driver's, and journals what came of
them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import IntegrityError, ObjectNotFoundError, OffloadError, UploadGoneError
from offloader.format.index import OBJECT_META, IndexEntry, decode_part_index, index_of_segment, part_index_size
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import TOPIC
from offloader.metadata.log import READERS
from offloader.metadata.state import Abandoned, CatalogHead, OpenTopic, TopicState
from offloader.model import SINGLE_PUT, V1, FailureKind, OpenSegment, Part, SealedFacts, Segment, TopicName
from offloader.offload.core import segments
from offloader.offload.core.topic import Topic
from offloader.offload.driver import committing
from offloader.offload.driver.context import Context
from offloader.offload.driver.receiving import tell_of_abandoned, wants_anything
from offloader.offload.driver.work import WorkKind
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.bounded_reads import naming

log = logging.getLogger(__name__)

Tell = Callable[[], None]
DRIVER = "streaming"


@dataclass
class _Done:
    """A seal that has ended. `sealed`: what it sealed. `tell` counts and logs it, once it is journaled."""

    topic: Topic
    sealed: OpenTopic
    answer: CatalogHead | OffloadError
    tell: Tell | None = None

    def concerns(self, state: TopicState) -> bool:
        """Whether the journal does not have its outcome yet: a record of it may have been written unseen."""
        known = isinstance(state, OpenTopic) and state.open == self.sealed.open
        return known and state.attempts <= self.sealed.attempts


class Sealing:
    """The seals under way, and those that have ended and are not journaled yet.

    Nothing is journaled in between. A seal whose answer is lost counts as a failed attempt: the state stays Sealing
    with `retry_at`, and the planner seals again from then on. After a crash the next process finds the state in the
    journal."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._done: list[_Done] = []

    def start(self, topic: Topic, state: OpenTopic) -> None:
        """Have a segment sealed, unless the topic's is being sealed."""

        def then(answer: CatalogHead | OffloadError) -> None:
            self._done.append(_Done(topic, state, answer))

        self._context.work.post(WorkKind.SEAL, topic.name, partial(self._seal, topic.catalog, state), then)

    def _seal(self, catalog: CatalogHead, state: OpenTopic) -> CatalogHead:
        """Not in the driver's thread."""
        context, began = self._context, self._context.clock_ms()
        try:
            return seal(context.store, context.catalogs, catalog, state)
        finally:
            context.metrics.seal((context.clock_ms() - began) / 1000)

    def collect(self) -> None:
        """Journal what came of all seals that have ended, in one record."""
        states = []
        for done in self._done:
            state = self._context.state(done.topic.name)
            if isinstance(state, OpenTopic) and done.concerns(state):
                after, done.tell = self._outcome(done.topic, state, done.answer)
                states.append(after)
        self._context.journal.record(states)
        for done in self._done:
            if done.tell is not None:
                done.tell()
        self._done.clear()

    def _outcome(self, topic: Topic, state: OpenTopic, answer: CatalogHead | OffloadError) -> tuple[TopicState, Tell]:
        segment = state.open
        if isinstance(answer, OffloadError):
            return self._failed(state, answer), partial(self._tell_failure, segment, state.topic, answer)
        committing.take(topic, answer)
        newest = topic.catalog.newest
        if newest is None or newest.uuid != segment.uuid:
            dropped = segments.dropped(state, "the catalog went on without it")
            return dropped, partial(_tell_dropped, segment.uuid, topic.name)
        wants_anything(topic)
        after = segments.offloaded(state)
        if not segment.parts and segment.upload not in (None, SINGLE_PUT):
            unused = Abandoned("", segment.upload, "the segment holds no entry")
            after = replace(after, abandoned=(*after.abandoned, unused))
        return after, partial(self._tell, segments.as_record(state, "", ()), topic.name)

    def _failed(self, state: OpenTopic, error: OffloadError) -> OpenTopic:
        if segments.must_abandon(error):
            state = segments.abandoned(state, self._context.new_uuid(), str(error))
        return self._context.failed(state, error)

    def _tell_failure(self, segment: OpenSegment, topic: TopicName, error: OffloadError) -> None:
        log.warning("seal failed topic=%s segment=%s: %s", topic, segment.uuid, error, extra={"see": "seal-failed"})
        self._context.metrics.failure(FailureKind.of(error), topic)
        if segments.must_abandon(error):
            tell_of_abandoned(self._context, topic, str(error))

    def _tell(self, s: Segment, topic: TopicName) -> None:
        self._context.metrics.segment(s.roll_reason, topic, s.size)
        log.info(
            "offloaded topic=%s segment=%s start=%s end=%s entries=%d bytes=%d reason=%s",
            topic, s.uuid, s.start, s.end, s.entries, s.size, s.roll_reason,
        )  # fmt: skip


def _tell_dropped(uuid: str, topic: TopicName) -> None:
    log.warning(
        "the catalog went on without segment=%s topic=%s: it is dropped", uuid, topic, extra={"see": "overtaken"}
    )


# The steps of a seal:
#
# 1. `segments.complete`: the driver journals the Sealing record, which fixes all bytes. Then, in `seal`:
# 2. complete the upload, unless the object was written by a single PUT,
# 3. write the index object,
# 4. append to the catalog: the commit.
# 5. `Sealing.collect`: the driver journals that the topic has no open segment.
# 6. `acknowledging`: the pin moves.
#
# Steps 2 to 4 can be repeated and write the same bytes. The first try begins with the catalog that the driver has:
# where another process has appended since, the commit is refused. Each later try begins with the catalog's newest head,
# which shows whether an earlier one got through though its answer was lost.


def seal(store: ObjectStore, catalogs: Catalogs, catalog: CatalogHead, state: OpenTopic) -> CatalogHead:
    """Make a segment in Sealing durable and commit it behind `catalog`, a head that may be old. Returns the newest.
    The segment is not in it where another process has committed its range under another uuid. Raises UploadGoneError or
    PartRejectedError when its upload must be abandoned; IntegrityError where the first try finds such a commit only
    when it appends."""
    segment = state.open
    facts = segment.sealed
    if facts is None:
        raise IntegrityError(f"{state.topic}: segment {segment.uuid} is not complete")
    current = catalogs.refresh_head(catalog) if state.attempts else catalog
    if current.end is not None and segment.start <= current.end:
        return current  # it is there already, or the catalog went on without it
    if segment.parts:
        _write_objects(store, state, facts)
    record = segments.as_record(state, DRIVER, (("root", store.url), (TOPIC, str(state.topic))))
    return committing.append_record(catalogs, current, record)


def _write_objects(store: ObjectStore, state: OpenTopic, facts: SealedFacts) -> None:
    segment = state.open
    if segment.cuts.version == V1:
        _check_copy(store, state, facts)
        return
    if segment.upload is None:
        raise IntegrityError(f"{state.topic}: segment {segment.uuid} has parts but no upload")
    if segment.upload != SINGLE_PUT:
        store.commit(segment.upload, [UploadedPart(p.number, p.size, p.etag, p.crc32c) for p in segment.parts])
    held = [r for r in facts.ledgers if r.count]
    entries = _index_entries(store, layout.data_key(state.topic, segment.uuid), segment.parts, facts.size)
    index = index_of_segment(entries, held, facts.size, facts.offloaded_at)
    key = layout.index_key(state.topic, segment.uuid)
    if store.put(key, index, meta=OBJECT_META, if_absent=True) is None:
        raise IntegrityError(f"{state.topic}: another index object is at {key}")


def _check_copy(store: ObjectStore, state: OpenTopic, facts: SealedFacts) -> None:
    """Copying has written both objects, and read them."""
    data, index = layout.data_key(state.topic, state.open.uuid), layout.index_key(state.topic, state.open.uuid)
    stat = store.stat(data)
    if stat is None or stat.size != facts.size or store.stat(index) is None:
        raise UploadGoneError(f"{data}: the copy of ledger {state.open.start.ledger} is not there any more")


def _index_entries(store: ObjectStore, key: str, parts: Sequence[Part], size: int) -> Iterator[IndexEntry]:
    """As they stand at the ends of the parts of a complete object of `size` bytes; several parts are read at the same
    time. Raises UploadGoneError where the object is gone, IntegrityError where it is another one."""

    def entries(part: Part) -> list[IndexEntry]:
        length = part_index_size(part.indexed)
        try:
            data, stat = store.read(key, part.offset + part.size - length, length)
        except ObjectNotFoundError as error:
            raise UploadGoneError(f"{key} is not there any more") from error
        if stat.size != size:
            raise IntegrityError(f"{key} has {stat.size} bytes, its parts have {size}")
        with naming(key):
            return list(decode_part_index(data, part))

    with unawaited_pool(min(READERS, len(parts)), "part-index") as pool:
        for each in map_ahead(pool, entries, parts, 2 * READERS):
            yield from each

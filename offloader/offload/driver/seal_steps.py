"""The steps of a seal that write to the store, in a thread beside the driver's.

1. `segments.complete`: the driver journals the Sealing record, which fixes all bytes. Then, here:
2. complete the upload, unless the object was written by a single PUT,
3. write the index object,
4. append to the catalog: the commit.
5. `Sealing.collect`: the driver journals that the topic has no open segment.
6. `acknowledging`: the pin moves.

Steps 2 to 4 can be repeated and write the same bytes. The first try begins with the catalog that the driver has: where
another process has appended since, the commit is refused. Each later try begins with the catalog's newest head, which
shows whether an earlier one got through though its answer was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import IntegrityError, ObjectNotFoundError, UploadGoneError
from offloader.format.index import OBJECT_META, IndexEntry, decode_part_index, index_of_segment, part_index_size
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import TOPIC
from offloader.metadata.log import READERS
from offloader.metadata.state import CatalogHead, OpenTopic
from offloader.model import SINGLE_PUT, V1, Part, SealedFacts
from offloader.offload.core import segments
from offloader.offload.driver.committing import append_record
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.bounded_reads import naming

DRIVER = "streaming"


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
    return append_record(catalogs, current, record)


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

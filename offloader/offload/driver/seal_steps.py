"""The steps of a seal that write to the store, in a thread beside the driver's.

1. `segments.complete`: the driver journals the Sealing record, which fixes all bytes. Then, here:
2. complete the upload,
3. write the index object,
4. append to the catalog: the commit.
5. `Sealing.collect`: the driver journals that the topic has no open segment.
6. `acknowledging`: the pin moves.

Steps 2 to 4 can be repeated and write the same bytes. Each try begins with the catalog's newest head, which shows
whether an earlier try got through though its answer was lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from offloader.errors import IntegrityError, UploadGoneError
from offloader.format.index import index_of_segment
from offloader.format.part_index import IndexEntry, decode_part_index, part_index_size
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import TOPIC
from offloader.metadata.state import CatalogHead, OpenTopic
from offloader.model import V1, Part, SealedFacts
from offloader.offload.core import segments
from offloader.offload.driver.committing import append_record
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.bounded_reads import naming

# Pulsar's readers check this one key; there is no version 2 (see docs/format.md).
OBJECT_META = {"s3managedledgeroffloaderformatversion": "1"}
DRIVER = "streaming"


def seal(store: ObjectStore, catalogs: Catalogs, catalog: CatalogHead, state: OpenTopic) -> CatalogHead:
    """Make a segment in Sealing durable and commit it behind `catalog`, a head that may be old. Returns the newest.
    The segment is not in it where an overtaken process has committed its range under another uuid. Raises
    UploadGoneError or PartRejectedError when its upload must be abandoned."""
    segment = state.open
    facts = segment.sealed
    if facts is None:
        raise IntegrityError(f"{state.topic}: segment {segment.uuid} is not complete")
    current = catalogs.refresh_head(catalog)
    if current.end is not None and segment.start <= current.end:
        return current  # it is there already, or the catalog went on without it
    if segment.parts:
        _write_objects(store, state, facts)
    record = segments.as_record(state, DRIVER, (("root", store.url), (TOPIC, str(state.topic))))
    return append_record(catalogs, current, record)


def _write_objects(store: ObjectStore, state: OpenTopic, facts: SealedFacts) -> None:
    segment = state.open
    if segment.brokers is not None:
        return  # referring has read them, and they are not ours
    if segment.cuts.version == V1:
        _check_copy(store, state, facts)
        return
    if segment.upload is None:
        raise IntegrityError(f"{state.topic}: segment {segment.uuid} has parts but no upload")
    stat = store.commit(segment.upload, [UploadedPart(p.number, p.size, p.etag, p.crc32c) for p in segment.parts])
    if stat.size != facts.size:
        raise IntegrityError(f"{state.topic}: object {segment.uuid} has {stat.size} bytes, its parts have {facts.size}")
    held = [r for r in facts.ledgers if r.count]
    entries = _index_entries(store, layout.data_key(state.topic, segment.uuid), segment.parts)
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


def _index_entries(store: ObjectStore, key: str, parts: Iterable[Part]) -> Iterator[IndexEntry]:
    """As they stand at the ends of the parts of an object that is complete."""
    for part in parts:
        size = part_index_size(part.indexed)
        data, _ = store.read(key, part.offset + part.size - size, size)
        with naming(key):
            yield from decode_part_index(data, part)

"""Manifests, to and from bytes: columns of integers, a value for each row."""

from __future__ import annotations

from collections.abc import Sequence

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import LARGEST, unwrap, wrap
from offloader.metadata.manifest import FAN, Manifest, ManifestNode, ManifestRow, frontier
from offloader.metadata.value_codec import damage_of, deltas, read_topic, sums, topic_message
from offloader.model import MIB, Position, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_whole

PLACED, TIMED, UNTIMED = 1, 2, 4
LONGEST = 2 * LARGEST  # no record is, with what stands around it
LARGEST_MANIFEST = MIB  # some 300 rows at most, of some 100 bytes


def encode_manifest(topic: TopicName, manifest: Manifest) -> bytes:
    """A manifest's bytes: the same for the same manifest."""
    node = manifest.node
    body = pb.Manifest(
        topic=topic_message(topic),
        level=node.level,
        number=node.number,
        rows=_rows_message(manifest.rows),
        before=_rows_message(manifest.before),
        lengths=manifest.lengths,
    )
    return wrap(f"manifest {node.level} {node.number}", pb.Body(manifest=body))


def read_manifest(store: ObjectStore, key: str) -> bytes:
    """A manifest's bytes. Raises ObjectNotFoundError; DamagedRecordError for an object larger than any manifest."""
    return read_whole(store, key, LARGEST_MANIFEST, DamagedRecordError)[0]


def decode_manifest(topic: TopicName, node: ManifestNode, key: str, data: bytes) -> Manifest:
    """The manifest that `key` should hold. Raises DamagedRecordError, FormatVersionError."""
    opened = unwrap(key, data)
    m = opened.body.manifest
    if opened.kind != "manifest" or (read_topic(m.topic), m.level, m.number) != (topic, *node):
        raise DamagedRecordError(f"{key}: it is not the manifest that belongs here")
    with damage_of(key):
        found = Manifest(node, _read_rows(m.rows), tuple(m.lengths), _read_rows(m.before))
    if len(found.rows) != FAN or len(found.lengths) != (0 if node.level else FAN):
        raise DamagedRecordError(f"{key}: it does not sum up {FAN}")
    if not all(0 < length <= LONGEST for length in found.lengths):
        raise DamagedRecordError(f"{key}: it says lengths that no record has")
    if len(found.before) != (0 if node.level else len(frontier(node.number))):
        raise DamagedRecordError(f"{key}: it does not say what is before it")
    return found


def _rows_message(rows: Sequence[ManifestRow]) -> pb.Rows:
    nowhere = Position(0, 0, 0)
    starts, ends = [row.start or nowhere for row in rows], [row.end or nowhere for row in rows]
    return pb.Rows(
        known=[_known(row) for row in rows],
        start_incarnation=deltas(p.incarnation for p in starts),
        start_ledger=deltas(p.ledger for p in starts),
        start_entry=[p.entry for p in starts],
        end_incarnation=deltas(p.incarnation for p in ends),
        end_ledger=deltas(p.ledger for p in ends),
        end_entry=[p.entry for p in ends],
        early=deltas(row.early or 0 for row in rows),
        late=deltas(row.late or 0 for row in rows),
        segments=[row.segments for row in rows],
        entries=[row.entries for row in rows],
        size=[row.size for row in rows],
        losses=[row.losses for row in rows],
        aborted=[row.aborted for row in rows],
    )


def _read_rows(m: pb.Rows) -> tuple[ManifestRow, ...]:
    starts = zip(sums(m.start_incarnation), sums(m.start_ledger), m.start_entry, strict=True)
    ends = zip(sums(m.end_incarnation), sums(m.end_ledger), m.end_entry, strict=True)
    columns = zip(
        m.known,
        starts,
        ends,
        sums(m.early),
        sums(m.late),
        m.segments,
        m.entries,
        m.size,
        m.losses,
        m.aborted,
        strict=True,
    )
    return tuple(
        ManifestRow(
            Position(*start) if known & PLACED else None,
            Position(*end) if known & PLACED else None,
            early if known & TIMED else None,
            late if known & TIMED else None,
            bool(known & UNTIMED),
            *totals,
        )
        for known, start, end, early, late, *totals in columns
    )


def _known(row: ManifestRow) -> int:
    return PLACED * (row.start is not None) | TIMED * (row.early is not None) | UNTIMED * row.untimed

"""Which entries an object holds that nothing names, by its own first bytes. Pure.

What is read lies in a bucket: it may be damage, or written by anybody."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from offloader.errors import DamagedObjectError, DamagedRecordError, FormatVersionError
from offloader.format.blocks import HEADER_SIZE, decode_header
from offloader.format.index import decode_index
from offloader.lifecycle.bucket.names import Place
from offloader.metadata.catalog_codec import decode_of
from offloader.model import Loss, Segment, TopicName

FIRST_BYTES = HEADER_SIZE
NO_END = 2**63 - 1


class ObjectSpan(NamedTuple):
    """First and last entry. `last` None: not known."""

    first: Place
    last: Place | None = None


class NoExtent(Enum):
    """Why an object has none."""

    JUNK = "no bytes of ours: nothing can be made of it"
    OF_BROKERS = "a copy of a ledger that brokers had offloaded: its blocks do not name the ledger"
    NEWER = "a newer version wrote it"
    NO_ENTRIES = "a record of no entries"
    BURIED = "a tombstone stands beside it"


Contents = ObjectSpan | NoExtent


def of_data(data: bytes) -> Contents:
    """From the first block's header."""
    try:
        header = decode_header(data[:FIRST_BYTES], 0)
    except DamagedObjectError:
        return NoExtent.JUNK
    if header.ledger is None:
        return NoExtent.OF_BROKERS if header.first_entry == 0 else NoExtent.JUNK
    return ObjectSpan((header.ledger, header.first_entry))


def of_index(data: bytes) -> Contents:
    """From a whole index: the last entry that it knows is not the last one there is, its ledger is the last ledger."""
    try:
        groups = decode_index(data).groups
    except DamagedObjectError:
        return NoExtent.JUNK
    if not groups or not groups[0].entries:
        return NoExtent.JUNK
    return ObjectSpan((groups[0].ledger, groups[0].entries[0].entry), (groups[-1].ledger, NO_END))


def of_record(topic: TopicName, key: str, data: bytes) -> Contents:
    """From a record beside the segments."""
    try:
        record = decode_of(topic, key, data)[1]
    except FormatVersionError:
        return NoExtent.NEWER
    except DamagedRecordError:
        return NoExtent.JUNK
    if isinstance(record, Segment | Loss):
        return ObjectSpan(record.start.place, record.end.place)
    return NoExtent.NO_ENTRIES


def together(found: list[Contents]) -> Contents:
    """Of all objects of one uuid: what is worst of them counts. Where one is junk, or does not name its ledger, the
    others tell."""
    for doubt in (NoExtent.NEWER, NoExtent.NO_ENTRIES):
        if doubt in found:
            return doubt
    extents = [each for each in found if isinstance(each, ObjectSpan)]
    if not extents:
        return NoExtent.OF_BROKERS if NoExtent.OF_BROKERS in found else NoExtent.JUNK
    lasts = [each.last for each in extents if each.last is not None]
    return ObjectSpan(min(each.first for each in extents), min(lasts, default=None))

"""Whether objects in a topic's folder are another topic's. The format does not say it: ledgers and uuids do, which no two topics share."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from offloader.archive.checking.bucket import Journals
from offloader.archive.rebuilding.found import FoundObject, is_made
from offloader.errors import DamagedRecordError, FormatVersionError
from offloader.metadata import layout
from offloader.metadata.catalog_codec import decode_catalog
from offloader.metadata.log import NumberedLog
from offloader.model import Segment, TopicName
from offloader.storage.base import ObjectStore


def of_others(
    store: ObjectStore, topic: TopicName, journals: Journals, objects: Collection[FoundObject], made: Collection[str]
) -> dict[str, str]:
    """By uuid, why they are not this topic's, or nothing says whose. `made`: those that an earlier rebuild took for its own. Every other
    topic's folder is looked at. Raises what the store raises."""
    found: dict[str, str] = {}
    others = (other for other in layout.topics(store) if other != topic) if objects else ()
    for uuid, why in chain(_by_journals(journals, topic), *(_by_topic(store, other, objects, made) for other in others)):
        found.setdefault(uuid, why)
    return {each.uuid: found[each.uuid] for each in objects if each.uuid in found}


def _by_journals(journals: Journals, topic: TopicName) -> Iterator[tuple[str, str]]:
    for application, states in journals.states.items():
        for other, state in states.items():
            held = [a.uuid for a in state.abandoned] + ([] if state.open is None else [state.open.uuid])
            if other != topic:
                yield from ((uuid, f"the journal of {application} has it for {other}") for uuid in held)


def _by_topic(
    store: ObjectStore, other: TopicName, objects: Collection[FoundObject], made: Collection[str]
) -> Iterator[tuple[str, str]]:
    segments = list(_segments(store, other))
    named = {s.uuid for s in segments if not (is_made(s) and s.uuid in made)}
    ledgers = {held.ledger for s in segments if not is_made(s) for held in s.ledgers}
    beside = {parsed.uuid for key, _ in store.list(layout.topic_folder(other)) if (parsed := layout.parse_topic_key(key))}
    for each in objects:
        shared = sorted(ledgers & each.ends.keys())
        if each.uuid in named:
            yield each.uuid, f"the catalog of {other} names it: it is a copy of that topic's"
        elif shared:
            yield each.uuid, f"ledger {shared[0]} is one of {other}, as its catalog says"
        elif each.uuid in beside and each.uuid not in made:
            yield each.uuid, f"{other} has an object of this uuid, too, and nothing says whose it is: remove the copy"


def _segments(store: ObjectStore, topic: TopicName) -> Iterator[Segment]:
    """Of a catalog, as far as it can be read."""
    log = NumberedLog(store, layout.catalog_folder(topic))
    for slot, data in log.load():
        try:
            record = decode_catalog(log.key(slot), data)
        except (DamagedRecordError, FormatVersionError):  # what it names is not known, and its topic's own repair
            continue
        if isinstance(record, Segment):
            yield record

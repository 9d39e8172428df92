"""What a topic's catalog names, and how any key below the root stands to that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple
from urllib.parse import unquote

from offloader.metadata.journal_rules import FENCE_LIMIT
from offloader.metadata.journals import Journals
from offloader.metadata.layout import (
    CATALOG,
    CLAIMS,
    DELETION,
    GATEWAYS,
    JOURNAL,
    MIGRATION,
    PROOF,
    REQUESTS,
    RESCUED,
    ROOT,
    SHARDS,
    KeyKind,
    TopicKey,
    catalog_folder,
    deletion_cluster_folder,
    parse_claim_key,
    parse_gateway_claim_key,
    parse_journal_key,
    parse_topic_key,
    topic_of,
)
from offloader.metadata.rescued_keys import parse_rescued_key
from offloader.metadata.rescues import NewestRescue
from offloader.metadata.state import CatalogHead, Record
from offloader.metadata.stock_keys import parse_key
from offloader.model import Loss, Segment, TopicName

DAMAGED = f"{CATALOG}-damaged-"
"""How operators and older versions begin the name of a folder into which they move a catalog that cannot be read."""

Place = tuple[int, int]


class ObjectKind(StrEnum):
    """What an object is that nothing names."""

    DATA = "data-object"
    INDEX = "index-object"
    RECORD = "record"
    UPLOAD = "upload"
    ABANDONED = "abandoned-object"
    DELETED = "deleted-object"
    OLD_MANIFEST = "old-manifest"
    OLD_GENERATION = "old-generation"
    UNOPENED_GENERATION = "unopened-generation"
    OLD_JOURNAL = "old-journal"
    OWNERLESS_CLAIM = "ownerless-claim"
    DAMAGED_CATALOG = "damaged-catalog"
    PROOF = "proof"
    RESCUED = "rescued-object"
    ENDED_RESCUE = "ended-rescue"
    STOCK_DATA = "stock-data"
    STOCK_INDEX = "stock-index"


class NamedSpan(NamedTuple):
    """Positions that a record accounts for, both ends included. `uuid` "": a loss."""

    start: Place
    end: Place
    uuid: str


@dataclass(frozen=True, slots=True)
class TopicNames:
    """What the catalog in force names. `records`: the uuids of all its records. `spans`: in the order of positions.
    `deleted`: segments whose deletion has ended, by its own word; only the tombstones beside them stay.

    `unreadable`: why it cannot be told what it names; empty: it can. `rebuilding`: a generation is there that is not in
    force yet.
    """

    topic: TopicName
    generation: int = 0
    next_slot: int = 0
    segments: AbstractSet[str] = frozenset()
    records: AbstractSet[str] = frozenset()
    spans: tuple[NamedSpan, ...] = ()
    unreadable: str = ""
    rebuilding: bool = False
    deleted: AbstractSet[str] = frozenset()


class KeyStanding(Enum):
    """Whether anything names a key. What is foreign is never touched."""

    NAMED = "named"
    UNNAMED = "unnamed"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class PlacedKey:
    """`by`: who names it, or what else there is to say. `folder`: of what it is one of many. `parsed`: where it is a
    topic's."""

    standing: KeyStanding
    kind: ObjectKind | None = None
    by: str = ""
    topic: TopicName | None = None
    parsed: TopicKey | None = None
    folder: str = ""


@dataclass(frozen=True, slots=True)
class NamesInForce:
    """All that names anything. `topics`: those whose catalogs were read. `rescues`: what counts of rescued ledgers, or
    why that cannot be told."""

    journals: Journals
    cluster: str
    topics: Mapping[TopicName, TopicNames] = field(default_factory=dict, hash=False)
    rescues: Mapping[int, NewestRescue | str] = field(default_factory=dict, hash=False)


_OF_KEY = {KeyKind.DATA: ObjectKind.DATA, KeyKind.INDEX: ObjectKind.INDEX, KeyKind.RECORD: ObjectKind.RECORD}
_BESIDE_CATALOG = {
    KeyKind.BRIDGE: "the bridge",  # its numbers are fences
    KeyKind.CURSORS: "the copies of the subscriptions",
    KeyKind.FACTS: "the copies of the schemas",
    KeyKind.SUBSCRIPTION: "a subscription",  # its numbers are fences
}
"""What stands by itself, and who names it."""
_FOREIGN = PlacedKey(KeyStanding.FOREIGN, by="its name is none that the offloader writes")
_PROTECTED = "_protected/"  # of a topic
_REMOVED = PlacedKey(
    KeyStanding.FOREIGN, by="`subscriptions protect` wrote it; the last commit to support that is 1db0db3f"
)


def names_of(head: CatalogHead, records: Iterable[tuple[str, Record]], *, rebuilding: bool = False) -> TopicNames:
    """What the records (each with its uuid) of a whole catalog name."""
    segments, deleted, uuids, spans = set[str](), set[str](), set[str](), list[NamedSpan]()
    for uuid, record in records:
        uuids.add(uuid)
        if isinstance(record, Segment):
            segments.add(record.uuid)
            if any(each.start <= record.start and record.end <= each.end for each in head.removed.ranges):
                deleted.add(record.uuid)
        if isinstance(record, Segment | Loss):
            of = record.uuid if isinstance(record, Segment) else ""
            spans.append(NamedSpan(record.start.place, record.end.place, of))
    return TopicNames(
        head.topic,
        head.generation,
        head.next_slot,
        segments=frozenset(segments - deleted),
        records=uuids,
        spans=tuple(sorted(spans)),
        rebuilding=rebuilding,
        deleted=deleted,
    )


def placed(key: str, size: int, names: NamesInForce) -> PlacedKey:
    """What a key is, and whether anything names it. Keys are listed before journals, these before catalogs."""
    parsed = parse_topic_key(key)
    if parsed is not None:
        known = names.topics.get(parsed.topic, TopicNames(parsed.topic, unreadable="its catalog was not read"))
        if parsed.kind in (KeyKind.CATALOG, KeyKind.MANIFEST):
            return _of_generation(parsed, known)
        if parsed.kind in _BESIDE_CATALOG:
            by = f"{_BESIDE_CATALOG[parsed.kind]} of {parsed.topic}"
            return PlacedKey(KeyStanding.NAMED, None, by, parsed.topic, parsed)
        return _of_uuid(parsed, known, names.journals)
    topic, rest = topic_of(key)
    if topic is not None:
        if rest.startswith(_PROTECTED):
            return _REMOVED
        damaged = rest.startswith(DAMAGED)
        return PlacedKey(KeyStanding.UNNAMED, ObjectKind.DAMAGED_CATALOG, topic=topic) if damaged else _FOREIGN
    return _of_root(key, size, names)


def _of_uuid(parsed: TopicKey, known: TopicNames, journals: Journals) -> PlacedKey:
    topic, uuid, kind = parsed.topic, parsed.uuid, _OF_KEY[parsed.kind]
    if uuid in (known.records if parsed.kind is KeyKind.RECORD else known.segments):
        return PlacedKey(KeyStanding.NAMED, kind, f"the catalog of {topic}", topic, parsed)
    if uuid in known.deleted:
        by = "its catalog says that retention, or a request, has deleted its segment"
        return PlacedKey(KeyStanding.UNNAMED, ObjectKind.DELETED, by, topic, parsed)
    opener = journals.opener(topic, uuid)
    if opener is not None:
        return PlacedKey(KeyStanding.NAMED, kind, f"the journal of {opener}", topic, parsed)
    reason = journals.abandoned(topic, uuid)
    if reason is None:
        return PlacedKey(KeyStanding.UNNAMED, kind, "", topic, parsed)
    return PlacedKey(KeyStanding.UNNAMED, ObjectKind.ABANDONED, reason, topic, parsed)


def _of_generation(parsed: TopicKey, known: TopicNames) -> PlacedKey:
    """Slots are fences: a writer who was paused may try any of an old generation's again, and must be refused."""
    topic, folder = parsed.topic, catalog_folder(parsed.topic, parsed.generation)
    if known.unreadable or parsed.generation == known.generation:
        return PlacedKey(KeyStanding.NAMED, None, f"the catalog of {topic}", topic, parsed)
    by = f"generation {known.generation} is in force"
    if parsed.generation > known.generation:
        return PlacedKey(KeyStanding.UNNAMED, ObjectKind.UNOPENED_GENERATION, by, topic, parsed, folder)
    if parsed.kind is KeyKind.MANIFEST:
        return PlacedKey(KeyStanding.UNNAMED, ObjectKind.OLD_MANIFEST, by, topic, parsed)
    return PlacedKey(KeyStanding.UNNAMED, ObjectKind.OLD_GENERATION, by, topic, parsed, folder)


def _of_root(key: str, size: int, names: NamesInForce) -> PlacedKey:
    folder, _, rest = key.partition("/")
    application = unquote(rest.partition("/")[0])
    if key == ROOT:
        return PlacedKey(KeyStanding.NAMED, by="this root")
    if folder == PROOF and rest:
        return PlacedKey(KeyStanding.UNNAMED, ObjectKind.PROOF)
    if folder == JOURNAL:
        return _of_journal(key, size, application, names.journals)
    if folder == REQUESTS and "/" in rest:
        return PlacedKey(KeyStanding.NAMED, by=f"the requests to {application}")
    if folder == CLAIMS and parse_claim_key(key) is not None:
        known = application in names.journals.states or not names.journals.readable
        by = f"the claims of {application}, which looks through them when it starts"
        return (
            PlacedKey(KeyStanding.NAMED, by=by)
            if known
            else PlacedKey(KeyStanding.UNNAMED, ObjectKind.OWNERLESS_CLAIM, f"there is no journal of {application}")
        )
    if folder == GATEWAYS and (claim := parse_gateway_claim_key(key)) is not None:  # its numbers are fences
        return PlacedKey(KeyStanding.NAMED, by=f"the gateways that serve {claim[0]}")
    if folder == DELETION and key.startswith(deletion_cluster_folder(names.cluster)):
        return PlacedKey(KeyStanding.NAMED, by="the deletions' own records")
    if folder == SHARDS and rest.count("/") == 1:
        return PlacedKey(KeyStanding.NAMED, by=f"the shards of {unquote(rest.partition('/')[0])}")
    if folder == MIGRATION:
        return PlacedKey(KeyStanding.NAMED, by="the record of a migration")
    if folder == RESCUED:
        return _of_rescue(key, names)
    stock = parse_key(key.rpartition("/")[2])
    if stock is not None:
        kind = ObjectKind.STOCK_INDEX if stock.is_index else ObjectKind.STOCK_DATA
        return PlacedKey(KeyStanding.FOREIGN, kind, "Pulsar's own offloader wrote it")
    return _FOREIGN


def _of_rescue(key: str, names: NamesInForce) -> PlacedKey:
    """A record's number is taken once for ever: what lies below it, and is not named by it, nobody can name."""
    found = parse_rescued_key(names.cluster, key)
    if found is None:
        return _FOREIGN
    of = f"the rescues of ledger {found.ledger}"
    if not found.uuid:
        return PlacedKey(KeyStanding.NAMED, by=of)
    newest = names.rescues.get(found.ledger, "it was not read")
    if isinstance(newest, str):
        return PlacedKey(KeyStanding.UNNAMED, ObjectKind.RESCUED, f"{of} cannot be read: {newest}")
    if newest.names(found.slot, found.uuid):
        return PlacedKey(KeyStanding.NAMED, ObjectKind.RESCUED, of)
    if found.slot <= newest.slot:
        kind, by = ObjectKind.ENDED_RESCUE, f"record {newest.slot} of {of} does not name it"
        return PlacedKey(KeyStanding.UNNAMED, kind, by)
    return PlacedKey(KeyStanding.UNNAMED, ObjectKind.RESCUED, f"no record of {of} is there yet")


def _of_journal(key: str, size: int, application: str, journals: Journals) -> PlacedKey:
    """What a former epoch left. Fences are as short as the limit, and stay; what is longer, the next start removes."""
    numbers = parse_journal_key(application, key)
    if numbers is None:
        return _FOREIGN
    newest = journals.epochs.get(application, 0)
    if numbers[0] < newest and size > FENCE_LIMIT:
        return PlacedKey(KeyStanding.UNNAMED, ObjectKind.OLD_JOURNAL, f"epoch {newest} of {application} replaces it")
    return PlacedKey(KeyStanding.NAMED, by=f"the journal of {application}")

"""Where everything lies under a root of ours: the one owner of its key names. (Those in a bucket of
Pulsar's own offloader: offloader/metadata/stock_keys.py; what is below `_rescued`: rescued_keys.py.)

    _root
    _journal/<application>/<epoch>/<slot>
    _requests/<application>/<id>, <id>.seen, <id>.done
    _claims/<application>/<tenant>/<namespace>/<topic>
    _shards/<application>/<index>
    _gateways/<tenant>/<namespace>/<topic>/<slot>
    _deletion/<cluster>/records/<name>/<slot>, switch/<slot>, system-topic-secret
    _deletion/<cluster>/cursors/<tenant>/<namespace>/<topic>/<subscription>/records/<slot>, saved/<slot>
    _deletion/<cluster>/archive/<tenant>/<namespace>/<topic>
    _deletion/<cluster>/holds/<tenant>/<namespace>/<topic>
    _rescued/<cluster>/<ledger>/records/<slot>, <slot>/<uuid>, <slot>/<uuid>-index
    _migration/<tenant>/<namespace>/<slot>
    <tenant>/<namespace>/<topic>/<uuid>, <uuid>-index, <uuid>-record, _catalog/<generation>/<slot>
    <tenant>/<namespace>/<topic>/_manifests/<generation>/<level>-<number>, records-<number>, newest
    <tenant>/<namespace>/<topic>/_bridge/<slot>
    <tenant>/<namespace>/<topic>/_cursors/<time>, _facts/<time>
    <tenant>/<namespace>/<topic>/_subscriptions/<subscription>/<epoch>/<slot>

Tenants, namespaces, topics, subscriptions, applications and clusters are URL-encoded; a leading `_` or `.` is encoded
too, so that no name is taken for one of ours, for a store's helper folder or for a parent folder. Epochs, generations,
slots, times (ms since 1970) and the ledgers of `_rescued` have 20 digits: key order is their order. The epochs of a
subscription count down from 10^20 - 1: the newest is listed first, however many there are. Former builds also wrote
`_protected` below topics (lifecycle/bucket/names.py): no key of ours may have that name again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from urllib.parse import quote, unquote

from offloader.model import TopicName

ROOT = "_root"
PROOF = "_proof"
CATALOG = "_catalog"
MANIFESTS = "_manifests"
BRIDGE = "_bridge"
CURSORS = "_cursors"
FACTS = "_facts"
SUBSCRIPTIONS = "_subscriptions"
JOURNAL = "_journal"
REQUESTS = "_requests"
CLAIMS = "_claims"
SHARDS = "_shards"
GATEWAYS = "_gateways"
DELETION = "_deletion"
RESCUED = "_rescued"
MIGRATION = "_migration"

INDEX = "-index"
RECORD = "-record"

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
OBJECT = re.compile(rf"({UUID})(|{INDEX}|{RECORD})")
LEADING = {"_": "%5F", ".": "%2E"}
SLOT = re.compile(r"[0-9]{20}")
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
LAST_SLOT = 10**20 - 1
LAST_EPOCH = 2**63 - 1  # of a subscription
MANIFEST = re.compile(r"[0-9]{20}/(([0-9]|records)-[0-9]{20}|newest)")
# Behind a folder's name it makes a key that comes after all of the folder's.
AFTER_SLASH = chr(ord("/") + 1)


class KeyKind(Enum):
    """What a topic's object is."""

    DATA = "data"
    INDEX = "index"
    RECORD = "record"
    CATALOG = "catalog"
    MANIFEST = "manifest"
    BRIDGE = "bridge"
    CURSORS = "cursors"  # a copy of the topic's subscriptions
    FACTS = "facts"  # a copy of its schemas and partitions
    SUBSCRIPTION = "subscription"  # a record of a subscription that the archive itself keeps


KINDS = {"": KeyKind.DATA, INDEX: KeyKind.INDEX, RECORD: KeyKind.RECORD}
"""By the ending of a segment's objects."""
TIMED = {CURSORS: KeyKind.CURSORS, FACTS: KeyKind.FACTS}
"""By the folder of copies that are named by their time."""


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A key of a topic: `uuid` of data, index and record objects, `generation` and `slot` of the catalog's, `slot`
    of the bridge log's, `time` (ms) of copies; `subscription`, `epoch` and `slot` of a subscription's log."""

    topic: TopicName
    kind: KeyKind
    uuid: str = ""
    generation: int = -1
    slot: int = -1
    time: int = -1
    subscription: str = ""
    epoch: int = -1


def topic_folder(topic: TopicName) -> str:
    """Where all of a topic's objects lie, with the closing slash."""
    return f"{encoded(topic.tenant)}/{encoded(topic.namespace_part)}/{encoded(topic.name)}/"


def name_fits(topic: TopicName, *, file_system: bool) -> bool:
    """Whether keys can hold the topic's name: on file systems each piece has at most 255 bytes, elsewhere a whole key
    1,024, of which our own part and the root's path take a quarter."""
    folder = topic_folder(topic)
    return len(folder) <= 768 and not (file_system and any(len(piece) > 255 for piece in folder.split("/")))


def data_key(topic: TopicName, uuid: str) -> str:
    """A segment's data object."""
    return topic_folder(topic) + uuid


def index_key(topic: TopicName, uuid: str) -> str:
    """A segment's index object."""
    return topic_folder(topic) + uuid + INDEX


def record_key(topic: TopicName, uuid: str) -> str:
    """A record's own object, named by its uuid, beside the segments' data. Readers use `slot_key` instead."""
    return topic_folder(topic) + uuid + RECORD


def generations_folder(topic: TopicName) -> str:
    """All generations of a topic's catalog, with the closing slash."""
    return f"{topic_folder(topic)}{CATALOG}/"


def catalog_folder(topic: TopicName, generation: int = 0) -> str:
    """One generation's records, with the closing slash."""
    return f"{generations_folder(topic)}{slot_name(generation)}/"


def slot_key(topic: TopicName, generation: int, slot: int) -> str:
    """A record as it stands in the catalog's order: what readers read."""
    return catalog_folder(topic, generation) + slot_name(slot)


def manifests_folder(topic: TopicName, generation: int = 0) -> str:
    """A generation's manifests, with the closing slash. They lie apart, so that a listing of records has only these."""
    return f"{topic_folder(topic)}{MANIFESTS}/{slot_name(generation)}/"


def manifest_key(topic: TopicName, generation: int, level: int, number: int) -> str:
    """A manifest."""
    return f"{manifests_folder(topic, generation)}{level}-{slot_name(number)}"


def records_key(topic: TopicName, generation: int, number: int) -> str:
    """Copies of the records that a manifest of level 0 sums up, one behind the other: for readers of many."""
    return f"{manifests_folder(topic, generation)}records-{slot_name(number)}"


def newest_key(topic: TopicName, generation: int) -> str:
    """How many manifests of level 0 there were when somebody last wrote one: a hint."""
    return f"{manifests_folder(topic, generation)}newest"


def bridge_folder(topic: TopicName) -> str:
    """What is recorded of a topic's bridge, with the closing slash."""
    return f"{topic_folder(topic)}{BRIDGE}/"


def cursor_copies_folder(topic: TopicName) -> str:
    """The copies of a topic's subscriptions, with the closing slash."""
    return f"{topic_folder(topic)}{CURSORS}/"


def facts_folder(topic: TopicName) -> str:
    """The copies of what else is known of a topic, with the closing slash."""
    return f"{topic_folder(topic)}{FACTS}/"


def subscriptions_folder(topic: TopicName) -> str:
    """All subscriptions of a topic that the archive itself keeps, with the closing slash."""
    return f"{topic_folder(topic)}{SUBSCRIPTIONS}/"


def subscription_folder(topic: TopicName, subscription: str) -> str:
    """The log of one of them, with the closing slash."""
    return f"{subscriptions_folder(topic)}{encoded(subscription)}/"


def journal_folder(application: str) -> str:
    """All epochs of an application's journal, with the closing slash."""
    return f"{JOURNAL}/{encoded(application)}/"


def epoch_folder(application: str, epoch: int) -> str:
    """One epoch's records, with the closing slash."""
    return f"{journal_folder(application)}{slot_name(epoch)}/"


def requests_folder(application: str) -> str:
    """An application's requests, with the closing slash."""
    return f"{REQUESTS}/{encoded(application)}/"


def deletion_cluster_folder(cluster: str) -> str:
    """All that is recorded of a cluster's deletions, with the closing slash."""
    return f"{DELETION}/{encoded(cluster)}/"


def deletion_records_folder(cluster: str) -> str:
    """What is to be deleted of a cluster's data, a folder for each, with the closing slash."""
    return f"{deletion_cluster_folder(cluster)}records/"


def deletion_folder(cluster: str, name: str) -> str:
    """The versions of one deletion's record, with the closing slash."""
    return f"{deletion_records_folder(cluster)}{name}/"


def deletion_switch_folder(cluster: str) -> str:
    """When deletion was switched on and off, with the closing slash."""
    return f"{deletion_cluster_folder(cluster)}switch/"


def cursors_folder(cluster: str) -> str:
    """The removals of subscriptions that earlier versions recorded, a folder for each, with the closing slash."""
    return f"{deletion_cluster_folder(cluster)}cursors/"


def cursor_folder(cluster: str, topic: TopicName, subscription: str) -> str:
    """One of them: `records/<slot>`, and `saved/<slot>` beside, with the closing slash."""
    return f"{cursors_folder(cluster)}{topic_folder(topic)}{encoded(subscription)}/"


def parse_cursor_record_key(cluster: str, key: str) -> tuple[tuple[TopicName, str], int] | None:
    """Topic, subscription and version of a removal's record under `cursors_folder(cluster)`, None for anything else."""
    folder = cursors_folder(cluster)
    topic, rest = topic_of(key.removeprefix(folder))
    name, _, version = rest.partition("/records/")
    slot = parse_slot(version)
    if topic is None or slot is None or not name or not key.startswith(folder):
        return None
    found = topic, unquote(name)
    return (found, slot) if key == f"{cursor_folder(cluster, *found)}records/{slot_name(slot)}" else None


def deletion_secret_key(cluster: str) -> str:
    """What only we know, to tell our messages in Pulsar's system topics from those of others."""
    return f"{deletion_cluster_folder(cluster)}system-topic-secret"


def archive_deletions_folder(cluster: str) -> str:
    """Notes of topics of whose archive something may be under way to be deleted, with the closing slash."""
    return f"{deletion_cluster_folder(cluster)}archive/"


def archive_deletion_key(cluster: str, topic: TopicName) -> str:
    """A note that something of a topic's archive may be under way to be deleted: its catalog says whether it is."""
    return _key_of(archive_deletions_folder(cluster), topic)


def parse_archive_deletion_key(cluster: str, key: str) -> TopicName | None:
    """The topic of a key under `archive_deletions_folder(cluster)`, None for anything else."""
    return _topic_of_key(archive_deletions_folder(cluster), key)


def parse_deletion_key(cluster: str, key: str) -> tuple[str, int] | None:
    """Name and version of a key under `deletion_records_folder(cluster)`, None for anything else."""
    folder = deletion_records_folder(cluster)
    name, _, rest = key.removeprefix(folder).partition("/")
    slot = parse_slot(rest)
    return None if slot is None or not key.startswith(folder) else (name, slot)


def archive_holds_folder(cluster: str) -> str:
    """Holds that were placed on topics' archives by command, with the closing slash."""
    return f"{deletion_cluster_folder(cluster)}holds/"


def archive_hold_key(cluster: str, topic: TopicName) -> str:
    """The hold on a topic's archive that was placed by command."""
    return _key_of(archive_holds_folder(cluster), topic)


def parse_archive_hold_key(cluster: str, key: str) -> TopicName | None:
    """The topic of a key under `archive_holds_folder(cluster)`, None for anything else."""
    return _topic_of_key(archive_holds_folder(cluster), key)


def _key_of(folder: str, topic: TopicName) -> str:
    """The key of an object that a folder has for a topic."""
    return folder + topic_folder(topic).removesuffix("/")


def _topic_of_key(folder: str, key: str) -> TopicName | None:
    """The topic of such a key, None for anything else."""
    return topic_of(f"{key.removeprefix(folder)}/")[0] if key.startswith(folder) else None


def claims_folder(application: str) -> str:
    """What an application has claimed, with the closing slash."""
    return f"{CLAIMS}/{encoded(application)}/"


def claim_key(application: str, topic: TopicName) -> str:
    """A note that an application may have claimed a topic: the catalog says whether it has."""
    return _key_of(claims_folder(application), topic)


def parse_claim_key(key: str) -> tuple[str, TopicName] | None:
    """Application and topic of a key under `_claims`, None for anything else."""
    folder, _, rest = key.partition("/")
    application, _, name = rest.partition("/")
    topic, _ = topic_of(f"{name}/")
    return None if folder != CLAIMS or topic is None else (unquote(application), topic)


def shards_folder(application: str) -> str:
    """The signs of life of an application's shards, with the closing slash."""
    return f"{SHARDS}/{encoded(application)}/"


def shard_key(application: str, index: int) -> str:
    """A shard's sign of life."""
    return f"{shards_folder(application)}{index}"


def parse_shard_key(application: str, key: str) -> int | None:
    """The shard of a key under `shards_folder(application)`, None for anything else."""
    folder = shards_folder(application)
    name = key.removeprefix(folder)
    return int(name) if key.startswith(folder) and _INDEX.fullmatch(name) else None


def gateway_claims_folder(topic: TopicName) -> str:
    """Which gateways have claimed a topic, with the closing slash. All topics' lie together: one listing tells them."""
    return f"{GATEWAYS}/{topic_folder(topic)}"


def parse_gateway_claim_key(key: str) -> tuple[TopicName, int] | None:
    """Topic and number of a gateway's claim, None for anything else."""
    folder, _, rest = key.partition("/")
    topic, name = topic_of(rest)
    slot = parse_slot(name)
    return None if folder != GATEWAYS or topic is None or slot is None else (topic, slot)


def proof_key(token: str) -> str:
    """A throw-away object by which a store is proven."""
    return f"{PROOF}/{token}"


def slot_name(number: int) -> str:
    """20 digits."""
    return f"{number:020d}"


def parse_slot(name: str) -> int | None:
    """The number that a record's name says, None where it is no record's name."""
    return int(name) if SLOT.fullmatch(name) else None


def newest_first(number: int) -> str:
    """20 digits that count down: the highest number comes first in a listing."""
    return slot_name(LAST_SLOT - number)


def parse_subscription_place(rest: str) -> tuple[int, int] | None:
    """(epoch, slot) of a key behind its `subscription_folder`, None for anything else, also for an epoch that no record
    can say: those of earlier builds counted up."""
    numbers = two_numbers(rest)
    if numbers is None or LAST_SLOT - numbers[0] > LAST_EPOCH:
        return None
    return LAST_SLOT - numbers[0], numbers[1]


def parse_subscription_folder(topic: TopicName, folder: str) -> str | None:
    """The subscription whose `subscription_folder` this is, None for anything else."""
    name = unquote(folder.removeprefix(subscriptions_folder(topic)).removesuffix("/"))
    return name if name and folder == subscription_folder(topic, name) else None


def parse_journal_key(application: str, key: str) -> tuple[int, int] | None:
    """(epoch, slot) of a key under `journal_folder(application)`, None for anything else."""
    return two_numbers(key.removeprefix(journal_folder(application)))


def parse_catalog_key(topic: TopicName, key: str) -> tuple[int, int] | None:
    """(generation, slot) of a key under `generations_folder(topic)`, None for anything else."""
    return two_numbers(key.removeprefix(generations_folder(topic)))


def two_numbers(rest: str) -> tuple[int, int] | None:
    """Of a key behind its folder, where records lie in folders of an epoch or generation each."""
    first, _, second = rest.partition("/")
    numbers = parse_slot(first), parse_slot(second)
    return None if numbers[0] is None or numbers[1] is None else (numbers[0], numbers[1])


def parse_topic_key(key: str) -> TopicKey | None:
    """Whose object a key names; None where it is none of a topic's."""
    topic, rest = topic_of(key)
    if topic is None:
        return None
    if found := OBJECT.fullmatch(rest):
        return TopicKey(topic, KINDS[found[2]], uuid=found[1])
    folder, _, name = rest.partition("/")
    if folder == MANIFESTS and MANIFEST.fullmatch(name):
        return TopicKey(topic, KeyKind.MANIFEST, generation=int(name.partition("/")[0]))
    if folder == SUBSCRIPTIONS:
        return _parse_subscription_key(topic, name)
    number = parse_slot(name)
    if folder in TIMED and number is not None:
        return TopicKey(topic, TIMED[folder], time=number)
    if folder == BRIDGE and number is not None:
        return TopicKey(topic, KeyKind.BRIDGE, slot=number)
    numbers = parse_catalog_key(topic, key)
    return None if numbers is None else TopicKey(topic, KeyKind.CATALOG, generation=numbers[0], slot=numbers[1])


def _parse_subscription_key(topic: TopicName, name: str) -> TopicKey | None:
    subscription, _, rest = name.partition("/")
    numbers = parse_subscription_place(rest)
    if numbers is None or not subscription or encoded(unquote(subscription)) != subscription:
        return None
    epoch, slot = numbers
    return TopicKey(topic, KeyKind.SUBSCRIPTION, subscription=unquote(subscription), epoch=epoch, slot=slot)


def topic_of(key: str) -> tuple[TopicName | None, str]:
    """The topic whose folder a key lies in, and the rest of the key; None and the key where it is in none."""
    pieces = key.split("/", 3)
    if len(pieces) < 4 or key.startswith("_"):
        return None, key
    topic = TopicName(*(unquote(p) for p in pieces[:3]))
    return (topic, pieces[3]) if key.startswith(topic_folder(topic)) else (None, key)


@lru_cache(maxsize=4096)
def encoded(name: str) -> str:
    """A name as it stands in keys."""
    encoded = quote(name, safe="")
    return LEADING.get(encoded[:1], encoded[:1]) + encoded[1:]

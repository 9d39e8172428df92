"""A bucket of Pulsar's own offloader without any context: which of its objects are a topic's ledgers.

Its keys name no topic, so every index object is asked for its metadata (one HEAD each). What is missing cannot be seen from a
bucket: nothing says which ledgers a topic had.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from offloader.archive.checking.findings import Finding, Kind
from offloader.archive.ledgers.found import FoundLedgers
from offloader.archive.ledgers.names import LedgerKey, data_key, index_key, parse_key
from offloader.archive.ledgers.pair import LedgerPair, owner_of
from offloader.bookkeeper.managed_ledgers import topic_of
from offloader.errors import DamagedObjectError, FatalError, ObjectNotFoundError
from offloader.format.v1 import decode_ledger_index
from offloader.model import TopicName
from offloader.storage.base import ObjectStore, Stat

THREADS = 16
_NAME, _VERSION, _CLUSTER = "managedledgername", "s3managedledgeroffloaderformatversion", "pulsarclustername"


@dataclass(frozen=True, slots=True)
class BucketScan:
    """What a bucket holds. `findings` are those of no topic in `topics`."""

    topics: Mapping[TopicName, FoundLedgers]
    findings: tuple[Finding, ...]


def scan(
    store: ObjectStore,
    wanted: Callable[[TopicName], bool] = lambda _: True,
    *,
    cluster: str | None = None,
    store_url: str = "",
    heads: MutableMapping[str, Stat] | None = None,
) -> BucketScan:
    """The ledgers of the topics that are wanted, by default of all. `store_url` is how readers know the bucket ("": the archive's own root).

    `heads` remembers what index objects said; given again, only new ones are asked: they never change. Of several complete
    pairs for one ledger the first that verifies fully is taken. Raises FatalError where a topic's objects are of several clusters and
    `cluster` does not say of which; what the store raises.
    """
    listing = _Listing.of(store)
    known = {} if heads is None else heads
    with ThreadPoolExecutor(THREADS, "scan") as pool:
        owned = [one for one in pool.map(lambda key: _owned(store, key, known), listing.pairs) if one is not None]
        asked = [o for o in owned if o.topic is not None and wanted(o.topic)]
        _check_clusters(asked, cluster)
        mine = [o for o in asked if cluster is None or o.cluster in ("", cluster)]
        list(pool.map(lambda o: _examine(o, listing.data[o.pair.uuid, o.pair.ledger]), mine))
    found = {topic: _chosen(topic, pairs, store_url) for topic, pairs in sorted(_by_topic(mine).items())}
    nobodys = [f for o in owned if o.topic is None for f in o.pair.findings]
    return BucketScan(found, (*listing.findings, *nobodys))


@dataclass
class _Listing:
    """The keys, sorted out. `data`: the data objects' sizes."""

    data: dict[tuple[str, int], int] = field(default_factory=dict)
    pairs: list[LedgerKey] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, store: ObjectStore) -> _Listing:
        found = cls()
        indexes: list[LedgerKey] = []
        for key, size in store.list():
            parsed = parse_key(key)
            if parsed is None:
                found._bad_name(key)
            elif parsed.is_index:
                indexes.append(parsed)
            else:
                found.data[parsed.uuid, parsed.ledger] = size
        found._match(indexes)
        return found

    def _bad_name(self, key: str) -> None:
        if "/" not in key:  # folders are not the offloader's: they may be an archive's
            self.findings.append(Finding(Kind.STRAY_OBJECT, key, "this is no name that Pulsar's offloader gives"))

    def _match(self, indexes: list[LedgerKey]) -> None:
        there = {(key.uuid, key.ledger) for key in indexes}
        self.pairs = [key for key in indexes if (key.uuid, key.ledger) in self.data]
        for key in indexes:
            if (key.uuid, key.ledger) not in self.data:
                message = f"ledger {key.ledger} has an index object, but no data object"
                self.findings.append(Finding(Kind.MISSING_OBJECT, data_key(key.uuid, key.ledger), message))
        for uuid, ledger in self.data:
            if (uuid, ledger) not in there:
                message = f"ledger {ledger} has a data object, but no index object: it was never completed, or is being written"
                self.findings.append(Finding(Kind.MISSING_INDEX, index_key(uuid, ledger), message))


@dataclass(frozen=True, slots=True)
class _Owned:
    """A pair and whose it is; `topic` None: nothing says it, and the pair's findings say why."""

    pair: LedgerPair
    topic: TopicName | None
    cluster: str


def _owned(store: ObjectStore, key: LedgerKey, heads: MutableMapping[str, Stat]) -> _Owned | None:
    """None where it has gone meanwhile."""
    name = index_key(key.uuid, key.ledger)
    stat = heads.get(name) or store.stat(name)
    if stat is None:
        return None
    heads[name] = stat
    pair = LedgerPair(store, None, key.uuid, key.ledger)
    said = stat.meta.get(_NAME) or _name_inside(store, pair)
    try:
        pair.topic = topic_of(said)
    except ValueError as error:
        pair.add(Kind.WRONG_METADATA, name, f"whose ledger it is cannot be known: {error}")
    if stat.meta and stat.meta.get(_VERSION) != "1":
        pair.add(Kind.WRONG_METADATA, name, f"its metadata {_VERSION} is {stat.meta.get(_VERSION)!r}, not '1'")
    return _Owned(pair, pair.topic, stat.meta.get(_CLUSTER, ""))


def _name_inside(store: ObjectStore, pair: LedgerPair) -> str:
    """For stores that keep no metadata: the index object's copy of BookKeeper's record."""
    try:
        return owner_of(decode_ledger_index(store.read(pair.index_key)[0], pair.ledger))
    except (DamagedObjectError, ObjectNotFoundError):
        return ""


def _check_clusters(wanted: Iterable[_Owned], cluster: str | None) -> None:
    """Ledger ids are a cluster's own: those of two clusters make no sequence."""
    clusters: defaultdict[TopicName | None, set[str]] = defaultdict(set)
    for one in wanted:
        clusters[one.topic].add(one.cluster)
    for topic, names in clusters.items():
        if cluster is None and len(names - {""}) > 1:
            raise FatalError(
                f"{topic}: the bucket has its ledgers from the clusters {', '.join(sorted(names - {''}))}; say which you want"
            )


def _examine(owned: _Owned, size: int) -> None:
    owned.pair.read_index()
    owned.pair.check_size(size)


def _by_topic(owned: Iterable[_Owned]) -> dict[TopicName, list[LedgerPair]]:
    found: defaultdict[TopicName, list[LedgerPair]] = defaultdict(list)
    for one in owned:
        if one.topic is not None:
            found[one.topic].append(one.pair)
    return found


def _chosen(topic: TopicName, pairs: list[LedgerPair], store_url: str) -> FoundLedgers:
    """One pair for each ledger, where there is a sound one."""
    copies = Counter(pair.ledger for pair in pairs)
    seen: dict[int, LedgerPair] = {}
    findings: list[Finding] = []
    for pair in sorted(pairs, key=lambda p: (p.ledger, p.uuid)):
        if copies[pair.ledger] > 1:
            pair.check_contents()
        findings += pair.findings
        if pair.sound:
            findings += _second(pair, seen.setdefault(pair.ledger, pair))
    ledgers = tuple(pair.offloaded(store_url) for _, pair in sorted(seen.items()))
    return FoundLedgers(topic, ledgers, findings=tuple(findings))


def _second(pair: LedgerPair, first: LedgerPair) -> Iterator[Finding]:
    if pair is first or pair.account is None or first.account is None:
        return
    same = "the same entries as" if pair.account.digest == first.account.digest else "OTHER entries than"
    message = f"a second complete copy of ledger {pair.ledger}, not read: it holds {same} {first.data_key}"
    yield Finding(Kind.SECOND_COPY, pair.data_key, message, pair.topic)

"""A bucket of Pulsar's own offloader: which of its objects are a topic's ledgers.

The user of an archive names a source for that (`LedgerBucket`). Without records and brokers the bucket alone is read:
its keys name no topic, so every index object is asked for its metadata (one HEAD each), and every data object without
one. What is missing as a whole cannot be seen from a bucket: nothing says which ledgers a topic had. A pair of which
something is there but not sound is a ledger all the same: readers tell of it as damaged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

from offloader.archive.findings import Finding, FindingKind
from offloader.archive.ledgers.found import Contradiction, FoundLedgers, found_in
from offloader.archive.ledgers.pair import LedgerPair, owner_of
from offloader.archive.snapshot import OffloadedLedger
from offloader.errors import DamagedObjectError, FatalError, ObjectNotFoundError, TopicNotFoundError
from offloader.format.v1 import decode_ledger_index
from offloader.metadata.stock_keys import LedgerKey, data_key, index_key, parse_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore, Stat
from offloader.pulsar.settings import PulsarSettings
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.names import topic_of
from offloader.storage.bounded_reads import read_index
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

THREADS = 16
_NAME, _VERSION, _CLUSTER = "managedledgername", "s3managedledgeroffloaderformatversion", "pulsarclustername"


@dataclass(frozen=True, slots=True)
class BucketScan:
    """What a bucket holds. `findings` are of no topic in `topics`; nothing says whose the `doubtful` ledgers are."""

    topics: Mapping[TopicName, FoundLedgers]
    findings: tuple[Finding, ...]
    doubtful: tuple[OffloadedLedger, ...] = ()

    def of(self, topic: TopicName) -> FoundLedgers:
        """What there is of a topic."""
        return replace(self.topics.get(topic, FoundLedgers(topic)), doubtful=self.doubtful)


def scan(
    store: ObjectStore,
    wanted: Callable[[TopicName], bool] = lambda _: True,
    *,
    cluster: str | None = None,
    store_url: str = "",
    heads: MutableMapping[str, Stat] | None = None,
) -> BucketScan:
    """The ledgers of these topics, by default of all.

    `store_url`: how readers know the bucket ("": the archive's own root). `heads` remembers what index objects said;
    given again, the scan asks only for new ones, since they never change. Of several pairs for one ledger it takes the
    first that verifies fully, else the least damaged.

    Raises FatalError if a topic's objects are of several clusters and `cluster` names none of them, or names one that
    has nothing here; what the store raises.
    """
    listing = _Listing.of(store)
    known = {} if heads is None else heads
    with ThreadPoolExecutor(THREADS, "scan") as pool:
        owned = [one for one in pool.map(lambda key: _owned(store, key, known), listing.named) if one is not None]
        asked = [o for o in owned if o.topic is not None and wanted(o.topic)]
        _check_clusters(asked, cluster, {one.cluster for one in owned})
        mine = [o for o in asked if cluster is None or o.cluster in ("", cluster)]
        nobodys = [o for o in owned if o.topic is None]
        list(pool.map(lambda o: _examine(o, listing.data.get((o.pair.uuid, o.pair.ledger))), (*mine, *nobodys)))
    by_topic: defaultdict[TopicName, list[LedgerPair]] = defaultdict(list)
    for one in mine:
        if one.topic is not None:
            by_topic[one.topic].append(one.pair)
    found = {topic: _chosen(topic, pairs, store_url) for topic, pairs in sorted(by_topic.items())}
    doubtful = {o.pair.ledger: o.pair.unreadable(store_url, damaged=False) for o in nobodys if not o.said}
    findings = (*listing.findings, *(f for o in nobodys for f in o.pair.findings))
    return BucketScan(found, findings, tuple(doubtful.values()))


@dataclass
class _Listing:
    """The keys, sorted. `data`: sizes of data objects. `named`: each pair's index object or, failing it, its data."""

    data: dict[tuple[str, int], int] = field(default_factory=dict)
    named: list[LedgerKey] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, store: ObjectStore) -> _Listing:
        found = cls()
        for key, size in store.list():
            parsed = parse_key(key)
            if parsed is None and "/" not in key:  # folders are not the offloader's: they may be an archive's
                message = "this is no name that Pulsar's offloader gives"
                found.findings.append(Finding(FindingKind.STRAY_OBJECT, key, message))
            if parsed is None:
                continue
            if parsed.is_index:
                found.named.append(parsed)
            else:
                found.data[parsed.uuid, parsed.ledger] = size
        there = {(key.uuid, key.ledger) for key in found.named}
        found.named += [LedgerKey(*place, is_index=False) for place in found.data if place not in there]
        return found


@dataclass(frozen=True, slots=True)
class _Owned:
    """A pair and whose it is; `topic` None: nothing says it (`said` is empty), or what is said is no topic."""

    pair: LedgerPair
    topic: TopicName | None
    cluster: str
    said: str
    by_index: bool


def _owned(store: ObjectStore, key: LedgerKey, heads: MutableMapping[str, Stat]) -> _Owned | None:
    """None where it has gone meanwhile."""
    name = index_key(key.uuid, key.ledger) if key.is_index else data_key(key.uuid, key.ledger)
    stat = heads.get(name) or store.stat(name)
    if stat is None:
        return None
    heads[name] = stat
    pair = LedgerPair(store, None, key.uuid, key.ledger)
    said = stat.meta.get(_NAME) or (_name_inside(store, pair) if key.is_index else "")
    try:
        pair.topic = topic_of(said)
    except ValueError as error:
        if key.is_index:  # without one, that is what is wrong
            pair.add(FindingKind.WRONG_METADATA, name, f"whose ledger it is cannot be known: {error}")
    if key.is_index and stat.meta and stat.meta.get(_VERSION) != "1":
        pair.add(FindingKind.WRONG_METADATA, name, f"its metadata {_VERSION} is {stat.meta.get(_VERSION)!r}, not '1'")
    return _Owned(pair, pair.topic, stat.meta.get(_CLUSTER, ""), said, key.is_index)


def _name_inside(store: ObjectStore, pair: LedgerPair) -> str:
    """For stores that keep no metadata: the index object's copy of BookKeeper's record."""
    try:
        return owner_of(decode_ledger_index(read_index(store, pair.index_key)[0], pair.ledger))
    except (DamagedObjectError, ObjectNotFoundError):
        return ""


def _check_clusters(wanted: Iterable[_Owned], cluster: str | None, there: set[str]) -> None:
    """Ledger ids are a cluster's own: those of two make no sequence. A misspelt name is no empty cluster."""
    clusters: defaultdict[TopicName | None, set[str]] = defaultdict(set)
    for one in wanted:
        clusters[one.topic].add(one.cluster)
    for topic, names in clusters.items():
        if cluster is None and len(names - {""}) > 1:
            raise FatalError(
                f"{topic}: the bucket has its ledgers from the clusters {', '.join(sorted(names - {''}))}; say which "
                "you want"
            )
    if cluster is not None and there - {""} and cluster not in there:
        raise FatalError(
            f"the bucket has ledgers from the clusters {', '.join(sorted(there - {''}))}, and none from {cluster}"
        )


def _examine(owned: _Owned, size: int | None) -> None:
    if owned.topic is not None or not owned.by_index:
        owned.pair.read_index()
    owned.pair.check_size(size)


def _chosen(topic: TopicName, pairs: list[LedgerPair], store_url: str) -> FoundLedgers:
    """One pair for each ledger: a sound one where there is one."""
    copies = Counter(pair.ledger for pair in pairs)
    seen: dict[int, LedgerPair] = {}
    findings: list[Finding] = []
    contradictions: list[Contradiction] = []
    for pair in sorted(pairs, key=lambda p: (p.ledger, p.uuid)):
        if copies[pair.ledger] > 1:
            pair.check_contents()
        findings += pair.findings
        first = seen.setdefault(pair.ledger, pair) if pair.sound else pair
        if pair is first:
            continue
        same = pair.account is None or first.account is None or pair.account.digest == first.account.digest
        holds = f"{'the same' if same else 'OTHER'} entries {'as' if same else 'than'} {first.data_key}"
        message = f"a second complete copy of ledger {pair.ledger}, not read: it holds {holds}"
        findings.append(Finding(FindingKind.SECOND_COPY, pair.data_key, message, pair.topic))
        if not same:
            contradictions.append(Contradiction(pair.ledger, first.uuid, pair.uuid))
    for pair in sorted(pairs, key=_damage):
        seen.setdefault(pair.ledger, pair)
    completed = max((pair.ledger for pair in pairs if pair.completed), default=-1)
    ledgers = tuple(
        # Brokers go from ledger to ledger: the last one may be on its way.
        pair.offloaded(store_url)
        if pair.extent_known
        else pair.unreadable(store_url, damaged=pair.completed or ledger < completed)
        for ledger, pair in sorted(seen.items())
    )
    return FoundLedgers(topic, ledgers, findings=tuple(findings), contradictions=tuple(contradictions))


def _damage(pair: LedgerPair) -> tuple[bool, bool, bool, str]:
    """The greater, the less of it can be read."""
    kinds = {finding.kind for finding in pair.findings}
    return (
        not pair.completed,
        not pair.extent_known,
        bool(kinds & {FindingKind.MISSING_OBJECT, FindingKind.WRONG_SIZE}),
        pair.uuid,
    )


@dataclass(frozen=True)
class LedgerBucket:
    """The bucket that `managedLedgerOffloadBucket` names. Can be pickled.

    Which objects are a topic's is known, in this order, from `records` (managed-ledger records as the metadata store
    has them), from the brokers at `admin`, or from the metadata of every index object in the bucket: the last cannot
    prove that no ledger is missing, and needs `cluster` where several clusters share the bucket.
    """

    store: StoreSettings
    records: Mapping[TopicName, bytes] = field(default_factory=dict)
    admin: PulsarSettings | None = None
    cluster: str | None = None
    _heads: dict[str, Stat] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find(self, topic: TopicName, scanned: BucketScan | None = None) -> FoundLedgers:
        """What is offloaded of a topic; no ledgers where it is not known. Raises DamagedRecordError and what Pulsar or
        the store raise.

        `scanned`: what `scan` has told of the bucket already, which then is not listed again.
        """
        if topic in self.records:
            return found_in(topic, decode_managed_ledger(self.records[topic]), self.url_of)
        found = None if self.admin is None else self._ask(self.admin, topic)
        return found or (scanned or self.scan(topic.__eq__)).of(topic)

    def scan(self, wanted: Callable[[TopicName], bool] = lambda _: True) -> BucketScan:
        """What the bucket alone tells of the topics that are wanted, by default of all."""
        with closing(open_store(self.store, read_only=True)) as store:
            return scan(store, wanted, cluster=self.cluster, store_url=self.store.root, heads=self._heads)

    def url_of(self, bucket: str) -> str:
        """The URL of the store with the objects of a context that names this bucket: same end point, same keys."""
        root = self.store.root
        own = not bucket or self.store.scheme != "s3" or root.partition("://")[2].split("/")[0] == bucket
        return root if own else f"s3://{bucket}"

    def _ask(self, admin: PulsarSettings, topic: TopicName) -> FoundLedgers | None:
        """None where the brokers do not know the topic."""
        from offloader.pulsar.admin import AdminClient  # httpx takes 0.1 s to import

        with closing(AdminClient(admin)) as client:
            try:
                return found_in(topic, client.managed_ledger(topic), self.url_of)
            except TopicNotFoundError:
                return None

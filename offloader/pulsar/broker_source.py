"""`EntrySource` through brokers. It finds out why an entry was not delivered by a REST look-up, which goes past the
dispatcher."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from offloader.errors import BrokerUnavailableError, NotShownError
from offloader.model import EntryRange, Gap, GapKind, TopicName
from offloader.ports.admin import TopicInfo
from offloader.ports.entry_source import Extent
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.reader import BrokerEntryReader
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.topic_rest import topic_info

POOL = 8
REMEDY = (
    "if that lasts, the entry may be one that no broker can show, such as one that is no message: with "
    "pulsar.metadataServiceUri it is copied from bookies"
)


def explain(
    rest: RestClient, topic: TopicName, missing: EntryRange, *, limit: int
) -> tuple[tuple[Gap, ...], int | None]:
    """See `EntrySource.explain`."""
    gaps: list[Gap] = []
    for entry, kind in _kinds(rest, topic, missing.ledger, missing.ids[:limit]):
        if kind is None:
            return tuple(gaps), entry
        _append(gaps, kind, missing.ledger, entry)
    return tuple(gaps), None if missing.span <= limit else missing.first + limit


def kind_of(headers: Mapping[str, str]) -> GapKind | None:
    """What an entry's headers say. None: a reader should get it, or it belongs to a transaction that may still be
    committed."""
    if headers.get("X-Pulsar-txn-uncommitted") == "true":
        return None
    if headers.get("X-Pulsar-marker-type"):
        return GapKind.MARKER
    return GapKind.ABORTED if headers.get("X-Pulsar-txn-aborted") == "true" else None


def _kinds(rest: RestClient, topic: TopicName, ledger: int, entries: range) -> Iterator[tuple[int, GapKind | None]]:
    with ThreadPoolExecutor(POOL, thread_name_prefix="explain") as pool:
        for begin in range(0, len(entries), POOL):
            some = entries[begin : begin + POOL]
            yield from zip(some, pool.map(lambda entry: _look(rest, topic, ledger, entry), some), strict=True)


def _look(rest: RestClient, topic: TopicName, ledger: int, entry: int) -> GapKind | None:
    path = f"{topic.rest_path}/ledger/{ledger}/entry/{entry}"
    response = rest.request("HEAD", path)  # the headers say it; the payload may be large
    if response.is_success:
        return kind_of(response.headers)
    listed = _listed(rest, topic)
    if entry >= listed.sizes.get(ledger, (0, 0))[0]:
        return None
    response = rest.request("GET", path)  # only with a body does an error say why
    if response.is_success:
        return kind_of(response.headers)
    error = rest.error(path, response)
    by_bookies = isinstance(error, BrokerUnavailableError) and ledger not in listed.offloaded
    raise (NotShownError if by_bookies else type(error))(f"{error}; {REMEDY}")


def _listed(rest: RestClient, topic: TopicName) -> TopicInfo:
    """The topic's ledger list: what a broker answers for an entry that is not there differs, 404 or 500."""
    stats = rest.get(f"{topic.rest_path}/internalStats")
    return topic_info(rest.get(f"{topic.rest_path}/internal-info"), stats)


def _append(gaps: list[Gap], kind: GapKind, ledger: int, entry: int) -> None:
    if gaps and gaps[-1].kind == kind:
        gaps[-1] = Gap(ledger, gaps[-1].first, entry + 1, kind=kind)
    else:
        gaps.append(Gap(ledger, entry, entry + 1, kind=kind))


class BrokerSource:
    """An `EntrySource`, one a process. Its readers share connections: permits keep a slow one from blocking others."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._pool = ConnectionPool(settings)
        self._lookup = TopicLookup(self._pool)
        self._rest = RestClient(settings)

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> BrokerEntryReader:
        del extent  # the dispatcher stops by itself
        return BrokerEntryReader(self._lookup, topic, (ledger, entry), max_bytes)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """See `EntrySource.explain`."""
        return explain(self._rest, topic, missing, limit=limit)

    def close(self) -> None:
        """End the connections."""
        self._pool.close()
        self._rest.close()

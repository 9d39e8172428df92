"""Ledgers that stock brokers offloaded by themselves, checked without Pulsar: objects against their index and Pulsar's
record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from offloader.archive.findings import Finding, FindingKind
from offloader.archive.ledgers.found import FoundLedgers
from offloader.archive.ledgers.pair import LedgerPair
from offloader.archive.snapshot import OffloadedLedger
from offloader.ports.object_store import ObjectStore

THREADS = 8
DEEP_THREADS = 2  # each holds a range of an object and an entry in memory


def verify_ledgers(
    found: FoundLedgers, store_of: Callable[[str], ObjectStore], *, quick: bool = False
) -> list[Finding]:
    """What is wrong with a topic's ledgers, the findings of the scan included. `quick`: reads no data.

    `store_of` opens the store that a ledger names. Raises what the store raises.
    """

    def check(ledger: OffloadedLedger) -> LedgerPair:
        store = store_of(ledger.store)
        pair = LedgerPair(store, found.topic, ledger.uuid, ledger.start.ledger)
        stat = store.stat(pair.data_key)
        with pair.archived_is_finding(pair.index_key):
            pair.read_index()
        pair.check_size(None if stat is None else stat.size)
        pair.check_record(ledger)
        if not quick:
            with pair.archived_is_finding(pair.data_key):
                pair.check_contents()
        return pair

    readable = [ledger for ledger in found.ledgers if ledger.unreadable is None]  # the others have findings already
    with ThreadPoolExecutor(THREADS if quick else DEEP_THREADS, "verify") as pool:
        pairs = list(pool.map(check, readable))
    of_pairs = (finding for pair in pairs for finding in pair.findings)
    return list(dict.fromkeys([*found.findings, *of_pairs, *_twins(pairs)]))


def _twins(pairs: Iterable[LedgerPair]) -> Iterator[Finding]:
    """Ledgers with the same entries: one pair has replaced another. Nothing in a pair says which ledger it is of."""
    seen: dict[str, LedgerPair] = {}
    for pair in pairs:
        if pair.account is None:
            continue
        first = seen.setdefault(pair.account.digest, pair)
        if first is not pair:
            message = f"it holds exactly the entries of ledger {first.ledger}: one of the two was replaced by the other"
            yield Finding(FindingKind.WRONG_ENTRIES, pair.data_key, message, pair.topic)

"""Ledgers and stored entries for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from offloader.bookkeeper import entry_codec
from offloader.bookkeeper.entry_codec import Digest, digest_for
from offloader.bookkeeper.model import DigestType, Fragment, LedgerMetadata, LedgerState, StoredEntry

LEDGER = 15

digest_types = st.sampled_from(DigestType)
stored_entries = st.builds(
    StoredEntry,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.integers(0, 2**62),
    st.binary(max_size=300),
)


def ledger(
    *fragments: tuple[int, tuple[str, ...]],
    quorums: tuple[int, int] = (1, 1),
    last: int | None = None,
    digest: DigestType = DigestType.CRC32C,
    password: bytes = b"",
    average: int = 100,
) -> LedgerMetadata:
    """A ledger with these fragments, closed at `last` if that is given."""
    return LedgerMetadata(
        len(fragments[0][1]),
        *quorums,
        LedgerState.OPEN if last is None else LedgerState.CLOSED,
        tuple(Fragment(*fragment) for fragment in fragments),
        digest=digest,
        password=password,
        last_entry=-1 if last is None else last,
        length=0 if last is None else (last + 1) * average,
    )


def payload(entry: int, size: int = 100) -> bytes:
    return (f"entry {entry} " * (size // 8 + 1)).encode()[:size]


def stored_entry(entry: int, digest: Digest | None = None, *, size: int = 100, ledger_id: int = LEDGER) -> bytes:
    """What a bookie keeps of entry `entry` of a ledger whose entries have `size` bytes each."""
    digest = digest or digest_for(ledger((0, ("b1",))))
    return entry_codec.encode(
        StoredEntry(ledger_id, entry, entry - 1, (entry + 1) * size, payload(entry, size)), digest
    )

"""Entries come back as they were stored; whatever was changed, mixed up or cut off is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.entry_codec import decode, decode_lac, digest_for, encode, encode_lac, raw_entries
from offloader.bookkeeper.model import DigestType, StoredEntry
from offloader.errors import IntegrityError
from tests.bookkeeper.entries import digest_types, ledger, stored_entries

passwords = st.binary(max_size=20)


def digest(kind=DigestType.CRC32C, password=b""):
    return digest_for(ledger((0, ("b1",)), digest=kind, password=password))


@given(stored_entries, digest_types, passwords)
def test_an_entry_survives(entry, kind, password):
    one = digest(kind, password)
    data = encode(entry, one)
    assert len(data) == 32 + one.size + len(entry.payload)
    assert decode(data, one, entry.ledger, entry.entry) == decode(memoryview(data), one, entry.ledger) == entry


@given(stored_entries, digest_types.filter(lambda kind: kind is not DigestType.DUMMY), st.data())
def test_a_changed_byte_is_found(entry, kind, data):
    one = digest(kind)
    spoilt = bytearray(encode(entry, one))
    at = data.draw(st.integers(0, len(spoilt) - 1))
    spoilt[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(IntegrityError, match=f"entry {entry.ledger}:{entry.entry}: "):
        decode(bytes(spoilt), one, entry.ledger, entry.entry)
    with pytest.raises(IntegrityError):
        raw_entries([bytes(spoilt)], one, entry.ledger, entry.entry)


@given(stored_entries, digest_types, st.data())
def test_an_entry_that_is_cut_off_is_found(entry, kind, data):
    one = digest(kind)
    whole = encode(entry, one)
    least = 31 if kind is DigestType.DUMMY else len(whole) - 1
    with pytest.raises(IntegrityError):
        decode(whole[: data.draw(st.integers(0, least))], one, entry.ledger, entry.entry)


def test_another_entry_than_the_one_asked_for_is_refused():
    one = digest(DigestType.DUMMY)
    data = encode(StoredEntry(1, 2, 1, 3, b"xyz"), one)
    with pytest.raises(IntegrityError, match="entry 1:3: the bookie answered with entry 1:2"):
        decode(data, one, 1, 3)
    with pytest.raises(IntegrityError, match="entry 2:2: the bookie answered with entry 1:2"):
        decode(data, one, 2, 2)
    with pytest.raises(IntegrityError, match="entry 1:3: the bookie answered with entry 1:2"):
        raw_entries([data], one, 1, 3)


def test_the_wrong_password_is_found_with_hmac():
    data = encode(StoredEntry(1, 2, 1, 3, b"xyz"), digest(DigestType.HMAC, b"right"))
    with pytest.raises(IntegrityError, match="digest does not match"):
        decode(data, digest(DigestType.HMAC, b"wrong"), 1, 2)


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 2**40), digest_types)
def test_many_entries_are_what_each_of_them_is(payloads, first, kind):
    one = digest(kind)
    data = [encode(StoredEntry(7, n, n - 1, 0, p), one) for n, p in enumerate(payloads, first)]
    assert [tuple(e) for e in raw_entries(data, one, 7, first)] == [(7, n, p) for n, p in enumerate(payloads, first)]


def test_entries_that_are_not_consecutive_are_refused():
    data = [encode(StoredEntry(7, n, n - 1, 0, b""), digest()) for n in (3, 5)]
    with pytest.raises(IntegrityError, match="entry 7:4: the bookie answered with entry 7:5"):
        raw_entries(data, digest(), 7, 3)


@given(st.integers(0, 2**62), st.integers(-1, 2**62), digest_types, passwords)
def test_a_last_confirmed_entry_survives(ledger_id, last_confirmed, kind, password):
    one = digest(kind, password)
    assert decode_lac(encode_lac(ledger_id, last_confirmed, one), one, ledger_id) == last_confirmed


def test_a_spoilt_last_confirmed_entry_is_refused():
    data = encode_lac(7, 100, digest())
    with pytest.raises(IntegrityError, match=r"ledger 8: .* of ledger 7"):
        decode_lac(data, digest(), 8)
    for spoilt in (data[:-1], data + b"x", b"", bytes([data[0] ^ 1]) + data[1:]):
        with pytest.raises(IntegrityError, match="ledger 7: the digest"):
            decode_lac(spoilt, digest(), 7)

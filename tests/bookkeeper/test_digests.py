"""The bytes are those of BookKeeper: these were made by its own DigestManager, 4.17.2, for entry 15:7 with the LAC 5,
length 1234."""

import pytest

from offloader.bookkeeper.entry_codec import decode, decode_lac, digest_for, encode, encode_lac, master_key
from offloader.bookkeeper.model import DigestType, StoredEntry
from offloader.bookkeeper.v3 import decode_availability
from tests.bookkeeper.entries import ledger

HEADER = "000000000000000f0000000000000007000000000000000500000000000004d2"
LAC_HEADER = "000000000000000f0000000000000005"
PAYLOAD = b"payload of entry 7"
ENTRY = StoredEntry(15, 7, 5, 1234, PAYLOAD)

VECTORS = [
    (DigestType.CRC32, b"", "000000008cf07526", "000000004368700b"),
    (DigestType.CRC32, b"secret", "000000008cf07526", "000000004368700b"),
    (DigestType.CRC32C, b"", "bb2764cf", "0892b27b"),
    (DigestType.CRC32C, b"secret", "bb2764cf", "0892b27b"),
    (DigestType.HMAC, b"", "daaf7d424cb2a8de06dc23c3e78eb5999400b448", "4a52dcdf7274e219a586a6af6d4c3c79d65737cd"),
    (
        DigestType.HMAC,
        b"secret",
        "08f06457c1ad7e9a8424b47881b4430a35674440",
        "8991e6f2f1b0e314379ee82ecbc4b10248f00876",
    ),
    (DigestType.DUMMY, b"", "", ""),
    (DigestType.DUMMY, b"secret", "", ""),
]


@pytest.mark.parametrize(("kind", "password", "entry_digest", "lac_digest"), VECTORS)
def test_stored_bytes_are_bookkeepers(kind, password, entry_digest, lac_digest):
    digest = digest_for(ledger((0, ("b1",)), digest=kind, password=password))
    stored = bytes.fromhex(HEADER + entry_digest) + PAYLOAD
    assert digest.size == len(entry_digest) // 2
    assert encode(ENTRY, digest) == stored
    assert decode(stored, digest, 15, 7) == ENTRY
    assert encode_lac(15, 5, digest) == bytes.fromhex(LAC_HEADER + lac_digest)
    assert decode_lac(bytes.fromhex(LAC_HEADER + lac_digest), digest, 15) == 5


@pytest.mark.parametrize(
    ("password", "key"),
    [(b"", "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"), (b"secret", "e793cbc379107648537183605cd361d3bb789a39")],
)
def test_master_keys_are_bookkeepers(password, key):
    assert master_key(password).hex() == key


def test_a_list_of_entries_is_read_as_bookkeeper_makes_it():
    groups = [
        "00000000000000000000000000000000",
        "00000000000000030000000000000003",
        "00000000000000060000000000000006",
    ]
    groups += [
        "00000000000000090000000000000009",
        "00000000000000140000000000000014",
        "000000000000001f000000000000001f",
    ]
    sizes = [2, 2, 2, 2, 1, 2]
    body = "".join(group + f"{size:08x}" + "00000000" for group, size in zip(groups, sizes, strict=True))
    held = decode_availability(bytes.fromhex("0000000000000006" + "00" * 56 + body))
    assert list(held) == [0, 1, 3, 4, 6, 7, 9, 10, 20, 31, 32]

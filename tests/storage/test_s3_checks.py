"""What S3's HEAD must say of an object made of given parts."""

from __future__ import annotations

import hashlib

import pytest
from crc32c import crc32c

from offloader.ports.object_store import NO_CRC, UploadedPart
from offloader.storage.rules import crc_text, holds_parts
from offloader.storage.s3_answers import composite_crc, composite_etag, is_made_of, plain_etag


def part(number: int, content: bytes) -> UploadedPart:
    return UploadedPart(number, len(content), hashlib.md5(content).hexdigest(), crc32c(content))


PARTS = [part(1, b"first"), part(2, b"second")]
OTHERS = [part(1, b"fIrst"), part(2, b"second")]


def test_a_crc_is_base64_of_four_bytes() -> None:
    assert crc_text(0xE3069283) == "4waSgw=="
    assert crc_text(1) == "AAAAAQ=="


def head(size: int = 11, **values: str) -> dict[str, object]:
    return {"ContentLength": size, **values}


@pytest.mark.parametrize("field", ["ChecksumCRC32C", "ETag"])
def test_what_the_store_offers_proves_an_object_and_disproves_none(field: str) -> None:
    compute = {"ChecksumCRC32C": composite_crc, "ETag": lambda parts: f'"{composite_etag(parts)}"'}[field]
    assert is_made_of(head(**{field: compute(PARTS)}), PARTS) is True
    assert is_made_of(head(**{field: compute(OTHERS)}), PARTS) is None
    assert is_made_of(head(**{field: compute(PARTS[::-1])}), PARTS) is None
    assert is_made_of(head(10, **{field: compute(PARTS)}), PARTS) is False


def test_an_etag_of_another_form_decides_nothing() -> None:
    assert is_made_of(head(ETag='"opaque"'), PARTS) is None
    assert is_made_of(head(ETag=f'"{"0" * 32}"'), PARTS) is None
    assert is_made_of(head(ETag=f'"{"0" * 32}-2"'), [UploadedPart(1, 11, "opaque", 0)]) is None
    assert is_made_of(head(12, ETag='"opaque"'), PARTS) is False


def test_the_checksum_counts_before_the_etag() -> None:
    # Where objects are encrypted with a key of the customer, ETags are no MD5s, and only look as if.
    assert is_made_of(head(ChecksumCRC32C=composite_crc(PARTS), ETag=f'"{"0" * 32}-2"'), PARTS) is True


def test_bytes_that_are_read_back_are_compared_part_by_part() -> None:
    def is_held(content: bytes, parts: list[UploadedPart] = PARTS) -> bool:
        return holds_parts(lambda at, size: content[at : at + size], len(content), parts)

    assert is_held(b"firstsecond")
    assert not is_held(b"fIrstsecond")
    assert not is_held(b"firstseconD")
    assert not is_held(b"firstsecond!")
    assert is_held(b"fIrstsecond", [UploadedPart(1, 5, "copied", NO_CRC), PARTS[1]])


def test_a_weak_etag_is_the_etag() -> None:
    assert plain_etag('W/"abc"') == plain_etag('"abc"') == "abc"

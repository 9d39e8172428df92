"""What S3's HEAD must say of an object made of given parts."""

from __future__ import annotations

import hashlib

import pytest
from crc32c import crc32c

from offloader.ports.object_store import UploadedPart
from offloader.storage.rules import crc_text
from offloader.storage.s3_checks import composite_crc, composite_etag, is_made_of


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
def test_the_content_check_tells_objects_of_one_size_apart(field: str) -> None:
    compute = {"ChecksumCRC32C": composite_crc, "ETag": lambda parts: f'"{composite_etag(parts)}"'}[field]
    assert is_made_of(head(**{field: compute(PARTS)}), PARTS)
    assert not is_made_of(head(**{field: compute(OTHERS)}), PARTS)
    assert not is_made_of(head(**{field: compute(PARTS[::-1])}), PARTS)
    assert not is_made_of(head(10, **{field: compute(PARTS)}), PARTS)


def test_an_etag_of_another_form_decides_nothing() -> None:
    assert is_made_of(head(ETag='"opaque"'), PARTS)
    assert is_made_of(head(ETag=f'"{"0" * 32}"'), PARTS)
    assert is_made_of(head(ETag=f'"{"0" * 32}-2"'), [UploadedPart(1, 11, "opaque", 0)])
    assert not is_made_of(head(12, ETag='"opaque"'), PARTS)


def test_the_checksum_counts_before_the_etag() -> None:
    # Where objects are encrypted with a key of the customer, ETags are no MD5s, and only look as if.
    assert is_made_of(head(ChecksumCRC32C=composite_crc(PARTS), ETag=f'"{"0" * 32}-2"'), PARTS)

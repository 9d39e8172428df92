"""What Azure's answers say, in this product's values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from azure.storage.blob import BlobProperties

from offloader.ports.object_store import Stat
from offloader.storage.rules import lower


def told(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer of Azure: each has a version. Raises ValueError."""
    if not answer.get("version"):
        raise ValueError("it has no x-ms-version")
    return answer


def etag_of(answer: Mapping[str, Any]) -> str:
    """An ETag without its quotes. Raises ValueError where an answer has none."""
    etag = str(answer.get("etag") or "").strip('"')
    if not etag:
        raise ValueError("it has no ETag")
    return etag


def next_page(pages: Any) -> list[Any] | None:
    """The next page of a listing, None behind the last. Raises ValueError where it is no listing: an answer without
    content is no empty container's."""
    try:
        page = next(pages, None)
    except AttributeError as e:  # of what the client expects in a listing
        raise ValueError("it is no listing") from e
    return None if page is None else list(page)


def milliseconds(at: datetime | None) -> int:
    """Of a time that Azure tells; 0 where it tells none."""
    return int(at.timestamp() * 1000) if at is not None else 0


def stat_of(found: BlobProperties) -> Stat:
    """Of an object that was looked at."""
    policy = found.immutability_policy
    until = milliseconds(policy.expiry_time if policy is not None else None)
    modified = milliseconds(found.last_modified)
    return Stat(found.size, etag_of(vars(found)), lower(found.metadata), modified, bool(found.has_legal_hold), until)


def stat_of_range(found: BlobProperties) -> Stat:
    """Of the whole object, where a range was asked for."""
    whole = int(str(found.content_range).rpartition("/")[2])
    return Stat(whole, etag_of(vars(found)), lower(found.metadata), milliseconds(found.last_modified))

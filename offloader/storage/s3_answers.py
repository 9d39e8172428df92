"""What S3's answers say, in this product's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from offloader.ports.object_store import Stat
from offloader.storage.rules import lower


def told(ask: Callable[..., Mapping[str, Any]], request: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer that must have content: a listing that does not even say whether there is more is no empty bucket's."""
    answer = ask(**request)
    if not answer.keys() - {"ResponseMetadata"}:
        raise ValueError("it has no content")
    return answer


def etag_of(answer: Mapping[str, Any]) -> str:
    """An ETag without its quotes."""
    return str(answer["ETag"]).strip('"')


def stat_of(answer: Mapping[str, Any]) -> Stat:
    """Of the whole object, also where a range was asked for."""
    whole = str(answer.get("ContentRange", "")).rpartition("/")[2]
    size = int(whole) if whole.isdecimal() else int(answer["ContentLength"])
    modified = answer.get("LastModified")
    modified_at = int(modified.timestamp() * 1000) if isinstance(modified, datetime) else 0
    return Stat(size, etag_of(answer), lower(answer.get("Metadata")), modified_at)

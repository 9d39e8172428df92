"""Names in a container: of objects, of uploads, of blocks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from offloader.errors import FatalError
from offloader.ports.object_store import NO_CRC, UploadedPart
from offloader.storage.rules import check_key

LONGEST_NAME = 1024  # characters
MOST_PIECES = 254
# What Azure does not keep or does not take: a piece that ends with a dot, a backslash, what no XML can say.
_CHANGED = re.compile(r"\.(?:/|$)|[\x00-\x1f\x7f-\x9f\\\ud800-\udfff\ue000-\uf8ff\ufffe\uffff]")
_LAST_BEFORE_SURROGATES = "\ud7ff"


def check_name(base: str, key: str) -> str:
    """An object's name. Raises FatalError where Azure would take another one, or none."""
    name = base + check_key(key)
    found = _CHANGED.search(name)
    if found:
        raise FatalError(
            f"{key!r} cannot be an object's key: Azure keeps no piece that ends with a dot, no backslash and no "
            "control or private character"
        )
    if len(name) > LONGEST_NAME or name.count("/") >= MOST_PIECES:
        raise FatalError(
            f"the name {name[:80]!r}... is too long: Azure takes {LONGEST_NAME} characters and {MOST_PIECES} pieces"
        )
    return name


def marker_name(key: str, upload_id: str) -> str:
    """Of an upload's marker, in the helper folder."""
    return f"{key}/{upload_id}"


def split_marker(name: str) -> tuple[str, str]:
    """(key, upload id) of a marker's name."""
    key, _, upload_id = name.rpartition("/")
    return key, upload_id


def block_id(upload_id: str, part: UploadedPart) -> str:
    """A block's id: whose it is and what is in it. All are of one length, as Azure wants it of a blob."""
    kind, crc = ("c", 0) if part.crc32c == NO_CRC else ("s", part.crc32c)
    return f"{upload_id:>32}{kind}{part.number:05}{part.size:010}{crc:08x}"


def listed_from(start_after: str) -> str:
    """From where a listing may begin whose keys beyond the basic plane are in an order that is not ours."""
    return start_after[: next((i for i, c in enumerate(start_after) if c > _LAST_BEFORE_SURROGATES), len(start_after))]


def in_order(found: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Keys in the order of their code points. A server may sort by UTF-16, which differs from U+D800 on: from the first
    such key on they are sorted here."""
    left = iter(found)
    for one in left:
        if one[0].isascii() or max(one[0]) <= _LAST_BEFORE_SURROGATES:
            yield one
        else:
            yield from sorted([one, *left])

"""Keys as paths of HDFS. Pure.

HDFS lists names in the order of their bytes, but takes bytes for signed ones: what is not ASCII comes before all that
is. So each such character is written as DEL and six digits: that keeps the order of keys, and is never seen with our
own keys, which are ASCII.
"""

from __future__ import annotations

import re

from offloader.errors import FatalError
from offloader.storage.rules import check_key

_ESCAPE = "\x7f"
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{6}})")
_FOREIGN = re.compile(r"[^\x00-\x7f]")


def path_of(key: str) -> str:
    """An object's path below the root. Raises FatalError for a key that HDFS cannot hold."""
    if ":" in check_key(key) or _ESCAPE in key:
        raise FatalError(f"{key!r} cannot be an object's key: HDFS allows no colon in names, and DEL is taken")
    return written(key)


def written(text: str) -> str:
    """A key, or the beginning of one, as it is in a path."""
    return _FOREIGN.sub(lambda found: f"{_ESCAPE}{ord(found[0]):06x}", text)


def key_of(path: str) -> str:
    """The key of a path below the root; what nobody of us has written stays as it is."""
    return _ESCAPED.sub(lambda found: _character(found[0], int(found[1], 16)), path)


def before(folder: str, path: str) -> str:
    """A name in the folder behind which all entries come that a listing from this path on may have; "" from the first
    on. `folder` ends with a slash, or is empty.

    A folder's slash may sort behind characters of the path (`b-` is before `b/`), so the folders count, too, whose name
    the path goes on behind with such a character."""
    name = path.removeprefix(folder).partition("/")[0] if path.startswith(folder) else ""
    cut = next((at for at, character in enumerate(name) if character < "/"), len(name))
    return name[: max(cut - 1, 0)]


def _character(text: str, number: int) -> str:
    return chr(number) if 0x80 <= number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else text

"""Makes the text of others fit for a terminal, a log or a report."""

from __future__ import annotations

import re
from collections.abc import Callable


def printable(text: str | bytes) -> str:
    """The text on one line, with everything escaped that would not print, move the cursor or forge a line."""
    shown = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    return shown if shown.isprintable() else shown.translate(_SHOWN)


def meant(text: str, exists: Callable[[str], bool]) -> str:
    """The name that a person means who typed it, or copied what `printable` had printed. The name as typed comes first,
    and is the answer where neither exists."""
    name = _ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), text)
    return name if printable(name) == text != name and not exists(text) and exists(name) else text


class _Shown(dict[int, str]):
    """What stands for a character, or for a byte that is no UTF-8 (U+DC80 and up)."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if 0xDC80 <= code <= 0xDCFF:
            shown = f"\\x{code - 0xDC00:02x}"
        else:
            shown = char if char.isprintable() else char.encode("unicode_escape").decode()
        self[code] = shown
        return shown


_SHOWN = _Shown()
_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt])")

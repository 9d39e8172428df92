"""Lines of generated pages are at most 120 columns long, as everywhere in the manual."""

from __future__ import annotations

import re
import textwrap

WIDTH = 120
# A row, an item, a heading or an empty line, with the lines that follow it.
BLOCK = re.compile(r"^(?=\||\* |#|$)", re.MULTILINE)


def wrapped(page: str) -> str:
    """The page, with each paragraph and item wrapped that has a longer line. Text in backticks stays together."""
    return "".join(block if _fits(block) else _set(block) for block in BLOCK.split(page))


def _fits(block: str) -> bool:
    return block.startswith("|") or all(len(line) <= WIDTH for line in block.splitlines())


def _set(block: str) -> str:
    text = block.strip("\n")
    before, _, after = block.partition(text)
    whole = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", "\0"), text)
    indent = "  " if text.startswith("* ") else ""
    lines = textwrap.wrap(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return before + "\n".join(lines).replace("\0", " ") + after

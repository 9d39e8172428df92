"""Writes what docs/running.md says of each alarm as data, for the page of `offloader run`:
`python -m dev.docs.alarms offloader/offload/live/alarms.json`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "running.md"
_NAMED = re.compile(r'<a id="([a-z-]+)"></a>[a-z-]+')


def alarms() -> list[dict[str, str]]:
    """Name, section, line, meaning and remedy of each row. The name stands in the first of an alarm's rows."""
    return [dict(zip(("name", "section", "line", "meaning", "remedy"), row, strict=True)) for row in _rows()]


def _rows() -> Iterator[tuple[str, ...]]:
    section, name, kinds = "", "", False
    text = PAGE.read_text(encoding="utf-8").partition("\n## Alarms")[2].partition("\n### Errors that end")[0]
    for line in text.splitlines():
        if line.startswith("### "):
            section = line.removeprefix("### ")
            kinds = section == "Kinds of failures"
        elif line.startswith("| ") and not re.match(r"\| (alarm|kind|---) ", line):
            cells = [_plain(cell) for cell in line.strip("| ").split(" | ")]
            if kinds:
                yield f"kind-{cells[0].strip('`')}", section, "", *cells[1:]
            else:
                found = _NAMED.match(line.strip("| "))
                name = found[1] if found else name
                yield name, section, *cells[1:]


def _plain(cell: str) -> str:
    """Without links and emphasis; code stays in backticks."""
    text = re.sub(r"\[([^\]]+)\]\(#[^)]*\)", r"\1", cell)
    text = re.sub(r"\[([^\]]+)\]\((?:\.\./)?([^)#]+)(?:#[^)]*)?\)", _link, text)
    return re.sub(r"(?<![`\w*])\*{1,2}([^*`]+)\*{1,2}(?![\w*])", r"\1", text)


def _link(found: re.Match[str]) -> str:
    return found[1] if found[1].endswith(".md") else f"{found[1]} (docs/{found[2]})"


def render() -> str:
    """The file."""
    return json.dumps(alarms(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")

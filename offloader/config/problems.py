"""What is wrong with a configuration, one line for each problem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from offloader.errors import ConfigError

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """Where something is wrong, and what to do about it."""

    path: Path
    message: str


def spell(path: Path) -> str:
    """`namespaces[public/orders].policies.partSizeInBytes`."""
    text = ""
    for name in (p if p.isprintable() else ascii(p) for p in path):
        plain = re.fullmatch(r"\w+", name) is not None
        text += f".{name}" if plain and text else name if not text else f"[{name}]"
    return text or "configuration"


def refuse(problems: Iterable[ConfigProblem], lines: Mapping[Path, int]) -> None:
    """Raise one ConfigError that names them all, in the order of the file. No problems: nothing happens."""
    found = {(_line(p.path, lines), spell(p.path), p.message): None for p in problems}
    if found:
        texts = [f"{path}: {message}" + (f" (line {line})" if line else "") for line, path, message in sorted(found)]
        raise ConfigError("\n".join(texts))


def _line(path: Path, lines: Mapping[Path, int]) -> int:
    """The line of the path, or of the nearest section around it that is in the file."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 0)

"""The lines that stand in a file of another name after a change."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from pathlib import Path

from dev.size.counts import GENERATED

LEAST_LINES = 3  # of a definition that counts as moved: shorter ones are equal by chance


def moved_lines(before: Path, after: Path, folder: str) -> int:
    """Lines that git's rename detection (`-M50%`) finds unchanged in a renamed file, and lines of whole top-level
    definitions that left one file and are in another. `before`, `after`: formatted checkouts."""
    renames, unchanged = renamed_files(before, after, folder)
    return unchanged + _moved_definitions(before, after, folder, renames)


def renamed_files(before: Path, after: Path, folder: str) -> tuple[dict[str, str], int]:
    """The new names of renamed files by their old ones, and the lines in them that did not change."""
    args = ["git", "diff", "--no-index", "--numstat", "-z", "-M50%", "-l0", str(before / folder), str(after / folder)]
    answer = subprocess.run(args, capture_output=True, check=False)  # noqa: S603 (git)
    if answer.returncode > 1:
        raise RuntimeError(answer.stderr.decode())
    fields = iter(answer.stdout.decode().split("\0"))
    renames, unchanged = {}, 0
    for field in fields:
        if not field:
            continue
        added, _, path = field.split("\t", 2)
        if path:
            continue  # in place, or new, or gone
        old, new = Path("/", next(fields)), Path("/", next(fields))
        if not (old.is_relative_to(before) and new.is_relative_to(after)):
            continue
        old_name, new_name = str(old.relative_to(before)), str(new.relative_to(after))
        if old_name != new_name and new.suffix == ".py" and GENERATED not in new.parts:
            renames[old_name] = new_name
            unchanged += len(new.read_text(encoding="utf-8").splitlines()) - int(added)
    return renames, unchanged


def _moved_definitions(before: Path, after: Path, folder: str, renames: dict[str, str]) -> int:
    old, new = _definitions(before, folder), _definitions(after, folder)
    lines = 0
    for text, files in new.items():
        left = {renames.get(name, name) for name in old.get(text, ())} - files
        arrived = files - {renames.get(name, name) for name in old.get(text, ())}
        lines += min(len(left), len(arrived)) * len(text.splitlines())
    return lines


def _definitions(root: Path, folder: str) -> dict[str, set[str]]:
    """The files that have a top-level function or class, by its text."""
    files = defaultdict[str, set[str]](set)
    for path in (root / folder).rglob("*.py"):
        if GENERATED in path.parts:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.parse("\n".join(lines)).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                text = "\n".join(lines[first - 1 : node.end_lineno])
                if text.count("\n") + 1 >= LEAST_LINES:
                    files[text].add(str(path.relative_to(root)))
    return files

"""Prints the table: `python -m dev.size [BEFORE [AFTER]]`, each a commit; HEAD where none is named."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.size.counts import PRODUCT, TESTS, count
from dev.size.moved import moved_lines
from dev.size.runs import traced_rows

LINE_LENGTH = "120"
FORMAT = ["ruff", "format", "--quiet", "--isolated", "--target-version", "py311", "--line-length", LINE_LENGTH]


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary worktree of a commit, with generated code, formatted as any other commit."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "checkout"
        _run(["git", "worktree", "add", "--quiet", "--detach", str(root), commit])
        try:
            _run([sys.executable, "hatch_build.py"], root)
            _run([sys.executable, "-m", *FORMAT, PRODUCT, TESTS], root)
            yield root
        finally:
            _run(["git", "worktree", "remove", "--force", str(root)])


def table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns in Markdown: text on the left, numbers on the right."""
    lines = [("", *columns), *rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(lines[0]))]
    text = [
        " | ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    rule = " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join(f"| {line} |" for line in (text[0], rule, *text[1:]))


def measure(root: Path) -> dict[str, int]:
    """All rows of one formatted checkout."""
    return {**count(root), **traced_rows(root)}


def main(commits: Sequence[str]) -> str:
    """The table of one commit, or of two with what was moved between them."""
    if len(commits) < 2:
        with checkout(*commits or ["HEAD"]) as root:
            return table(["now"], [(title, f"{value:,}") for title, value in measure(root).items()])
    with checkout(commits[0]) as before, checkout(commits[1]) as after:
        old, new = measure(before), measure(after)
        rows = [(title, f"{old[title]:,}", f"{new[title]:,}") for title in old]
        rows += [
            (f"lines of {name}/ moved to another file", "", f"{moved_lines(before, after, name):,}")
            for name in (PRODUCT, TESTS)
        ]
        return table(["before", "after"], rows)


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True)  # noqa: S603 (git and this Python)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit("usage: python -m dev.size [BEFORE [AFTER]]")
    sys.stdout.write(f"{main(sys.argv[1:])}\n")

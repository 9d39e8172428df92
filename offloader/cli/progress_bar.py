"""Progress of a download: a bar on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from offloader.printable import printable

Advance = Callable[[int], None]
_LINES = 10


@contextmanager
def download_progress(title: str, total: int, console: Console) -> Iterator[Advance]:
    """Yields the function to call with the number of bytes that have arrived. Safe from several threads."""
    title = escape(printable(title))
    if not console.is_terminal:
        yield _plain_lines(title, total, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda size: progress.advance(task, size)


def _plain_lines(title: str, total: int, console: Console) -> Advance:
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        before, done = done, done + size
        if before * _LINES // total != done * _LINES // total:
            console.print(f"{title}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", highlight=False)

    return advance

"""Progress of a download, or of many equal steps: a bar on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TransferSpeedColumn

from offloader.printable import printable

Advance = Callable[[int], None]
_LINES = 10


@contextmanager
def download_progress(title: str, total: int, console: Console) -> Iterator[Advance]:
    """Yields the function to call with the number of bytes that have arrived. Safe from several threads."""
    title = escape(printable(title))
    if not console.is_terminal:
        yield _plain_lines(title, total, lambda done: f"{decimal(done)} of {decimal(total)}", console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda size: progress.advance(task, size)


@contextmanager
def step_progress(title: str, total: int, console: Console) -> Iterator[Advance]:
    """The same for steps: yields the function to call with how many more are done. A few need no line of their own."""
    title = escape(printable(title))
    if not console.is_terminal:
        told = _plain_lines(title, total, lambda done: f"{done} of {total}", console)
        yield told if total >= _LINES else lambda _: None
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda steps: progress.advance(task, steps)


def _plain_lines(title: str, total: int, told: Callable[[int], str], console: Console) -> Advance:
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        before, done = done, done + size
        if before * _LINES // total != done * _LINES // total:
            console.print(f"{title}: {told(done)}", highlight=False, soft_wrap=True)

    return advance

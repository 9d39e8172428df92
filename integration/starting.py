"""Servers that many tests share: one failed start must not fail all of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from offloader.errors import OffloadError

T = TypeVar("T")

TRIES = 2


@contextmanager
def started(folder: Path, make: Callable[[Path], AbstractContextManager[T]]) -> Iterator[T]:
    """What `make` makes in a folder of its own, entered. Where that fails it is made once more, in another folder and
    with other ports."""
    with ExitStack() as stack:
        yield _entered(stack, folder, make)


def _entered(stack: ExitStack, folder: Path, make: Callable[[Path], AbstractContextManager[T]]) -> T:
    for number in range(1, TRIES):
        try:
            return stack.enter_context(make(folder / str(number)))
        except (OffloadError, OSError) as error:
            print(f"started once more: {error}")
    return stack.enter_context(make(folder / str(TRIES)))

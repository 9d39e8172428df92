"""Reading ahead without threads: for seeded worlds in memory, which then are the same again, and wait for no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest


class InTurn(Executor):
    """Calls at once, in the caller's thread."""

    def __init__(self, *_: object) -> None: ...

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(call(*args, **named))
        return future


@pytest.fixture(autouse=True, scope="package")
def in_turn() -> Iterator[None]:
    """In all tests of this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offloader.ahead.ThreadPoolExecutor", InTurn)
        yield

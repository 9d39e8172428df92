"""Threads of a pool that are none: each call is made at once, by whoever submits it. For seeded tests over stores in
memory, which then are the same again, and start no thread for what takes microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import pytest


class InTurn(Executor):
    """Calls at once, in the caller's thread."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(call(*args, **named))
        except Exception as error:  # noqa: BLE001 (whoever takes the result gets it)
            future.set_exception(error)
        return future


@contextmanager
def in_turn(*modules: str) -> Iterator[None]:
    """In what reads ahead and in these modules of the product."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("ahead", *modules):
            patch.setattr(f"offloader.{module}.ThreadPoolExecutor", InTurn)
        yield

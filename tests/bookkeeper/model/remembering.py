"""What was found once is not looked for again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar
from weakref import WeakMethod

T = TypeVar("T")


def remembered(method: Callable[..., T]) -> Callable[..., T]:
    """Like `cache`, but who has it is not kept alive by it: a model is gone as soon as nobody needs it, and no garbage
    has to be looked for."""
    weak = WeakMethod(method)

    def found(*args: object) -> T:
        alive = weak()
        assert alive is not None
        return alive(*args)

    return cache(found)

"""How much tests try, and what.

`make test` tries little and `make test-all` all of it (OFFLOADER_ALL=1), the same seeds and examples each time. Only
`make test-soak` tries new ones (OFFLOADER_NEW=1), as many as the variables say that are named where they are used.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

ALL = os.environ.get("OFFLOADER_ALL") == "1"
NEW = os.environ.get("OFFLOADER_NEW") == "1"
FIRST_SEED = random.SystemRandom().randrange(10**9) if NEW else 0
"""Of seeded worlds."""


def tries(variable: str, few: int, all_: int) -> int:
    """What the variable says, else `few` in `make test` and `all_` in `make test-all`."""
    return int(os.environ.get(variable, all_ if ALL else few))


def few(values: Iterable[Any], count: int) -> list[Any]:
    """Parameters of a test: the first `count` values run in `make test`, the others in `make test-all` only."""
    return few_rows([(value,) for value in values], count)


def few_rows(rows: Iterable[tuple[Any, ...]], count: int) -> list[Any]:
    """`few` of several parameters: a row has a value of each."""
    return [pytest.param(*row, marks=pytest.mark.large if number >= count else ()) for number, row in enumerate(rows)]


settings.register_profile(
    "offloader",
    max_examples=tries("OFFLOADER_EXAMPLES", 25, 50),
    deadline=None,  # two cores and a garbage collector make times meaningless
    derandomize=not NEW,
    print_blob=True,
)
settings.load_profile("offloader")

worlds = settings(max_examples=tries("OFFLOADER_EXAMPLES", 6, 12))
"""For property tests that let a whole world run: each example does as much as dozens of smaller ones."""

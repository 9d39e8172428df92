"""How many examples the property tests try: OFFLOADER_EXAMPLES (default 100; long runs set thousands). What is there
before the first test is no garbage: thousands of tests, and all the modules they need, are not looked through again and
again."""

from __future__ import annotations

import gc
import os

from hypothesis import settings

settings.register_profile(
    "offloader",
    max_examples=int(os.environ.get("OFFLOADER_EXAMPLES", "100")),
    deadline=None,  # two cores and a garbage collector make times meaningless
    derandomize=os.environ.get("CI") == "true",
    print_blob=True,
)
settings.load_profile("offloader")

gc.disable()  # while tests are collected, everything stays


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()

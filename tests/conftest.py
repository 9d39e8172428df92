"""The profile of the property tests is loaded. What is there before the first test is no garbage: thousands of tests,
and all the modules they need, are not looked through again and again."""

from __future__ import annotations

import gc

import tests.examples  # noqa: F401

gc.disable()  # while tests are collected, everything stays


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()

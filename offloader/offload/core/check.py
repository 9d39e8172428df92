"""The result of one check, and of one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from offloader.errors import OffloadError

T = TypeVar("T")


class Verdict(StrEnum):
    """`warn`: it works, but not for ever or not for everything. `fail`: it does not, or data is in danger."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line, and what to do about it."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


def ok(name: str, message: str) -> Check:
    """All is well."""
    return Check(name, Verdict.OK, message)


def warn(name: str, message: str, remedy: str) -> Check:
    """Not for ever."""
    return Check(name, Verdict.WARN, message, remedy)


def fail(name: str, message: str, remedy: str) -> Check:
    """Not at all."""
    return Check(name, Verdict.FAIL, message, remedy)


def attempt(call: Callable[[], T]) -> T | OffloadError:
    """A fact, or why there is none: what fails is a finding, not the end."""
    try:
        return call()
    except OffloadError as error:
        return error

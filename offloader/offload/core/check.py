"""The result of one check, and of one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    NotAllowedError,
    OffloadError,
)

T = TypeVar("T")
ADDRESS = "check the address, the network and whether the broker runs"
LOGIN = "check pulsar.authPlugin and pulsar.authParams"
LIMITS = (
    "no permission is missing: a policy or a limit of the namespace, the topic or the brokers forbids it; see "
    "docs/pulsar.md#what-the-subscription-and-the-readers-need"
)


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


def remedy_for(error: OffloadError, permission: str, other: str = ADDRESS) -> str:
    """What to do about an error of Pulsar. `permission`: which one to grant, where the role lacks it; `other`: what to
    do about any other error."""
    if isinstance(error, AuthenticationFailedError):
        return LOGIN
    if isinstance(error, AuthorizationFailedError):
        return permission
    if isinstance(error, NotAllowedError):
        return LIMITS
    return ADDRESS if isinstance(error, BrokerUnavailableError) else other


def attempt(call: Callable[[], T]) -> T | OffloadError:
    """A fact, or why there is none: what fails is a finding, not the end."""
    try:
        return call()
    except OffloadError as error:
        return error

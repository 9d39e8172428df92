"""A store that tells of each call: verb, seconds, outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

from offloader.errors import CredentialsExpiredError, ObjectNotFoundError, OutcomeUnknownError
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb

T = TypeVar("T")
Outcome = Literal["ok", "error", "unknown", "expired"]  # expired: the credentials
Tell = Callable[[Verb, float, Outcome], None]


class MeteredStore(ForwardingStore):
    """`ObjectStore` around another one. Listings are told of when they end."""

    def __init__(self, store: ObjectStore, tell: Tell) -> None:
        super().__init__(store)
        self._tell = tell

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        began = time.monotonic()
        outcome: Outcome = "error"
        try:
            yield from self.store.list(prefix, start_after)
            outcome = "ok"
        except GeneratorExit:
            outcome = "ok"
            raise
        finally:
            self._tell("list", time.monotonic() - began, outcome)

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:  # noqa: ARG002
        began = time.monotonic()
        outcome: Outcome = "error"
        try:
            answer = work()
            outcome = "ok"
        except OutcomeUnknownError:
            outcome = "unknown"
            raise
        except CredentialsExpiredError:
            outcome = "expired"
            raise
        except ObjectNotFoundError:
            outcome = "ok"  # the store has answered: of most topics there is no hint, for example
            raise
        finally:
            self._tell(verb, time.monotonic() - began, outcome)
        return answer

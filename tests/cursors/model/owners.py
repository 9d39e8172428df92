"""Owners in the model: the product's own cursor and log, one call of the store at a time.

An owner does one thing after another: it opens the subscription, then acknowledges and flushes. Each is run from its
begin with the answers that the store has given until now, and stops where it asks for more: so every order of the
owners' calls can be looked at, and an owner that is asked for nothing more is one that was killed, or is paused.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from offloader.cursors.core.cursor import CACHE_BYTES
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.log import CursorLog
from offloader.errors import OffloadError, OutcomeUnknownError, OvertakenError, StoreUnavailableError
from offloader.model import Position
from offloader.ports.object_store import Stat

FOLDER = "a/"
START = FirstState(Position(0, 0, -1))
Entry = tuple[int, int]
Thing = tuple[Entry, ...] | None
"""What an owner does: acknowledge these and flush; None: open the subscription."""


class Call(NamedTuple):
    """One call of the store."""

    kind: str
    keys: tuple[str, ...]
    data: bytes = b""
    if_absent: bool = False


class Doing(NamedTuple):
    """Where an owner stands. `at`: which thing of its list it does; `before`: its state when it began that; `answers`:
    what the store has said since. `call`: what it waits for; None: it has ended, for the reason `why`."""

    owner: int
    at: int
    before: bytes
    answers: tuple[Any, ...]
    call: Call | None
    why: str = ""


class _Waits(BaseException):
    """Nothing that the product may catch."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.call = call


class _Scripted:
    """A store that has said this much. An answer that is a class of errors is raised."""

    url = "model"

    def __init__(self, answers: Iterable[Any]) -> None:
        self._answers = iter(answers)

    def put(
        self, key: str, data: bytes, *, meta: Mapping[str, str] | None = None, if_absent: bool = False
    ) -> Stat | None:
        return Stat(len(data), "") if self._ask(Call("put", (key,), data, if_absent)) else None

    def read(self, key: str, offset: int = 0, size: int | None = None) -> tuple[bytes, Stat]:
        data = self._ask(Call("read", (key,)))
        return data, Stat(len(data), "")

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[tuple[str, int]]:
        yield from self._ask(Call("list", ()))

    def delete(self, keys: Iterable[str]) -> None:
        self._ask(Call("delete", tuple(keys)))

    def _ask(self, call: Call) -> Any:
        for answer in self._answers:
            if isinstance(answer, type):
                raise answer(f"{call.kind} {call.keys}")
            return answer
        raise _Waits(call)


class Tokens:
    """Fresh ones, also after a copy."""

    def __init__(self, owner: int) -> None:
        self.owner, self.count = owner, 0

    def __call__(self) -> str:
        self.count += 1
        return f"{self.owner}-{self.count}"


class Owners:
    """What each does, and by which code. `done`: the entries that a thing's end tells to be durable."""

    def __init__(self, things: list[list[Thing]], log: type[CursorLog], cursor: type[DurableCursor]) -> None:
        self.things = things
        self._log, self._cursor = log, cursor
        self._known: dict[tuple[Any, ...], Doing] = {}

    def first(self, owner: int) -> Doing:
        """Before its first call."""
        return self._run(owner, 0, b"", ())

    def answered(self, doing: Doing, answer: Any) -> Doing:
        """Up to the next call."""
        answers = (*doing.answers, answer)
        key = (doing.owner, doing.at, doing.before, answers)
        if key not in self._known:
            self._known[key] = self._run(*key)
        return self._known[key]

    def given(self, doing: Doing) -> set[Entry]:
        """What it has acknowledged, or may be about to."""
        return {entry for thing in self.things[doing.owner][: doing.at + 1] for entry in thing or ()}

    def told(self, doing: Doing) -> set[Entry]:
        """What it was told to be durable."""
        return {entry for thing in self.things[doing.owner][: doing.at] for entry in thing or ()}

    def _run(self, owner: int, at: int, before: bytes, answers: tuple[Any, ...]) -> Doing:
        store, thing = _Scripted(answers), self.things[owner][at]
        tokens, cursor = self._revived(store, before) if before else (Tokens(owner), None)
        try:
            if cursor is None:
                cursor = self._opened(store, tokens)
            else:
                for ledger, entry in thing or ():
                    cursor.acknowledge((0, ledger), entry, entry)
                cursor.flush()
        except _Waits as waits:
            return Doing(owner, at, before, answers, waits.call)
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            if cursor is None:
                return Doing(owner, at, b"", (), None, str(error))
            return self._run(owner, at, _kept(tokens, cursor), ())  # the gateway, too, flushes again
        except OvertakenError:
            return Doing(owner, at, b"", (), None, "overtaken")
        except OffloadError as error:
            return Doing(owner, at, b"", (), None, f"broken: {error}")
        if at + 1 == len(self.things[owner]):
            return Doing(owner, at + 1, b"", (), None, "all is done")
        return self._run(owner, at + 1, _kept(tokens, cursor), ())

    def _opened(self, store: Any, tokens: Tokens) -> DurableCursor:
        log = self._log(store, FOLDER, tokens)
        found = self._cursor(log, log.open(lambda: START).record.marker)
        found._read_ahead()
        return found

    def _revived(self, store: Any, kept: bytes) -> tuple[Tokens, DurableCursor]:
        tokens, state, cursor, pending = pickle.loads(kept)
        log = self._log(store, FOLDER, tokens)
        vars(log).update(state)
        found = self._cursor.__new__(self._cursor)
        DurableCursor.__init__(found, log, START.record(1).marker, cache_bytes=CACHE_BYTES)
        found._cursor, found._pending = cursor, pending
        return tokens, found


def _kept(tokens: Tokens, cursor: DurableCursor) -> bytes:
    """All that an owner knows."""
    state = {name: value for name, value in vars(cursor._log).items() if name not in ("_store", "_new_token")}
    return pickle.dumps((tokens, state, cursor._cursor, cursor._pending))

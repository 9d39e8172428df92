"""A bucket, and the owners that write to it: every order of their calls, with answers that are lost, writes that fail,
and records of which half was written when their owner was killed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from offloader.cursors.core.cursor import Cursor
from offloader.cursors.durable import DurableCursor
from offloader.cursors.log import CursorLog
from offloader.errors import ObjectNotFoundError, OffloadError, OutcomeUnknownError
from offloader.errors import StoreUnavailableError as Refused
from offloader.model import Position
from offloader.storage.memory import MemoryStore
from tests.cursors.model.owners import FOLDER, START, Call, Doing, Entry, Owners, Thing

FRESH: Entry = (2, 9)  # what somebody acknowledges who comes later, and whom nothing disturbs

Objects = tuple[tuple[str, bytes], ...]
"""In the order of their keys."""


class State(NamedTuple):
    """`faults`: how many may still happen."""

    objects: Objects
    owners: tuple[Doing, ...]
    faults: int


class World:
    """A `System` of the explorer."""

    def __init__(
        self,
        things: list[list[Thing]],
        faults: int,
        log: type[CursorLog] = CursorLog,
        cursor: type[DurableCursor] = DurableCursor,
    ) -> None:
        self.owners = Owners(things, log, cursor)
        self._faults = faults
        self._stored: dict[Objects, set[Entry] | str] = {}
        self._log = log

    def initial(self) -> list[State]:
        return [State((), tuple(self.owners.first(number) for number in range(len(self.owners.things))), self._faults)]

    def canonical(self, state: State) -> Hashable:
        return state

    def actions(self, state: State) -> Iterator[tuple[Any, State]]:
        for doing in state.owners:
            if doing.call is not None:
                yield from self._answers(state, doing, doing.call)

    def violation(self, state: State) -> str | None:
        broken = [doing.why for doing in state.owners if doing.why.startswith("broken")]
        if broken:
            return broken[0]
        stored = self.stored(state.objects)
        if isinstance(stored, str):
            return stored
        told = set().union(*map(self.owners.told, state.owners))
        given = set().union(*map(self.owners.given, state.owners))
        if told - stored:
            return f"{told - stored} were told to be durable, and are forgotten"
        return f"{stored - given} were acknowledged by nobody" if stored - given else None

    def stored(self, objects: Objects) -> set[Entry] | str:
        """What whoever opens the subscription next finds acknowledged; in words, why that cannot be read or written."""
        if objects not in self._stored:
            self._stored[objects] = self._recovered(objects)
        return self._stored[objects]

    def _recovered(self, objects: Objects) -> set[Entry] | str:
        store = MemoryStore()
        for key, data in objects:
            store.put(key, data)
        try:
            found = _read(store)
            tokens = iter(f"later-{number}" for number in range(100))
            later = DurableCursor.open(store, FOLDER, lambda: START, lambda: next(tokens))
            later.acknowledge((0, FRESH[0]), FRESH[1], FRESH[1])
            later.flush()
            after = _read(store)
        except OffloadError as error:
            return f"the next owner fails: {error}"
        return found if after == found | {FRESH} else f"the next owner finds {after}, and not {found}"

    def _answers(self, state: State, doing: Doing, call: Call) -> Iterator[tuple[Any, State]]:
        name = doing.owner, call.kind, *call.keys
        objects, answer = _performed(state.objects, call)
        yield name, self._after(state, doing, objects, answer)
        if not state.faults or call.kind not in ("put", "delete"):
            return
        less = state._replace(faults=state.faults - 1)
        yield (*name, "refused"), self._after(less, doing, state.objects, Refused)
        yield (*name, "answer lost"), self._after(less, doing, objects, OutcomeUnknownError)
        killed = doing._replace(call=None, why="killed")
        if (
            call.kind == "put" and state.objects and objects != state.objects
        ):  # before it there is nothing to go back to
            half = tuple((key, data[: len(data) // 2] if key in call.keys else data) for key, data in objects)
            yield (*name, "half written"), self._with(less, killed, half)
        if len(call.keys) > 1:
            some = _performed(state.objects, call._replace(keys=call.keys[:1]))[0]
            yield (*name, "killed in it"), self._with(less, killed, some)

    def _after(self, state: State, doing: Doing, objects: Objects, answer: Any) -> State:
        return self._with(state, self.owners.answered(doing, answer), objects)

    def _with(self, state: State, doing: Doing, objects: Objects) -> State:
        owners = tuple(doing if one.owner == doing.owner else one for one in state.owners)
        return State(objects, owners, state.faults)


def _performed(objects: Objects, call: Call) -> tuple[Objects, Any]:
    """What the store does, and what it says."""
    there = dict(objects)
    match call.kind:
        case "list":
            return objects, tuple((key, len(data)) for key, data in objects)
        case "read":
            return objects, there.get(call.keys[0], ObjectNotFoundError)
        case "delete":
            return tuple(one for one in objects if one[0] not in call.keys), True
        case _:
            key = call.keys[0]
            if call.if_absent and there.get(key, call.data) != call.data:
                return objects, False
            return tuple(sorted({**there, key: call.data}.items())), True


def _read(store: MemoryStore) -> set[Entry]:
    log = CursorLog(store, FOLDER, lambda: "reader")
    found = log.newest()
    if found is None:
        return set()
    cursor = Cursor(found.record.marker)
    for key, piece in log.pieces(cursor.named.items()).items():
        cursor.swap_in(key, piece)
    places = ((ledger, entry) for ledger in (1, 2) for entry in range(10))
    return {place for place in places if cursor.is_acknowledged(Position(0, *place))}

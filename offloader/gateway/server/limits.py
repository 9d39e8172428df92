"""What clients may take: the bounds of one connection, of one role, and of all of them together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sized
from typing import NamedTuple, Protocol

from offloader.model import KIB, MIB
from offloader.pulsar.frames import DEFAULT_MAX_MESSAGE


class ConnectionLimits(NamedTuple):
    """Bounds of a connection. `buffered_bytes`: entries that the socket has not taken. `requests`: under way at a time;
    more are not read. Times in seconds; `idle`: between two requests of HTTP; `look`: for what only looks
    into the store."""

    max_message: int = DEFAULT_MAX_MESSAGE
    buffered_bytes: int = 4 * MIB
    requests: int = 32
    consumers: int = 10_000
    watchers: int = 100
    handshake: float = 10.0
    ping: float = 30.0
    alive: float = 5.0
    idle: float = 60.0
    look: float = 10.0


DEFAULT_LIMITS = ConnectionLimits()


class ClientBounds(NamedTuple):
    """Of all clients together, and of those of one role; None: a role has no bound of its own."""

    consumers: int = 50_000
    connections_of_role: int | None = None
    consumers_of_role: int | None = None


class Client(Protocol):
    """A connection."""

    @property
    def role(self) -> str: ...

    @property
    def is_known(self) -> bool:
        """Whether it has said who it is."""
        ...

    @property
    def consumers(self) -> Sized: ...


class ClientLimits:
    """What all clients together, and those of one role, may have. `clients`: who is there. They are counted each time:
    they come and go in many ways, and are some thousand at most."""

    def __init__(self, bounds: ClientBounds, clients: Callable[[], Collection[Client]]) -> None:
        self._bounds = bounds
        self._clients = clients

    def refuses_connection(self, role: str) -> str:
        """Why it may not have one more; empty: it may."""
        most = self._bounds.connections_of_role
        if most is None or sum(one.is_known and one.role == role for one in self._clients()) < most:
            return ""
        return f"{_named(role)} has {most} connections at most"

    def refuses_consumer(self, role: str) -> str:
        """The same of a consumer or reader."""
        all_of_them = [(one.role, len(one.consumers)) for one in self._clients()]
        most, of_role = self._bounds.consumers, self._bounds.consumers_of_role
        if sum(count for _, count in all_of_them) >= most:
            return f"the gateway has {most} consumers at most"
        if of_role is not None and sum(count for whose, count in all_of_them if whose == role) >= of_role:
            return f"{_named(role)} has {of_role} consumers at most"
        return ""


def _named(role: str) -> str:
    return f"the role {role}" if role else "everybody"


class AnswerReader(Protocol):
    """A connection."""

    @property
    def unread(self) -> int:
        """Bytes of answers that its socket has not taken."""
        ...

    def end_at_once(self, why: str) -> None:
        """Close it; what was sent is lost."""
        ...


class UnreadAnswers:
    """Answers that clients have not read, of all connections together. On the loop.

    They have `most` bytes: where there are more, the connection with most of them ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._holders: dict[AnswerReader, int] = {}

    def holds(self, client: AnswerReader, size: int) -> None:
        """So many bytes wait for it now."""
        self._note(client, size)
        if self._held > self._most:
            for other in list(self._holders):  # they have read since
                self._note(other, other.unread)
        while self._held > self._most:
            largest = max(self._holders, key=self._holders.__getitem__)
            self.forget(largest)
            largest.end_at_once("it does not read its answers, and others need the memory")

    def forget(self, client: AnswerReader) -> None:
        """It is gone."""
        self._held -= self._holders.pop(client, 0)

    def _note(self, client: AnswerReader, size: int) -> None:
        self.forget(client)
        if size:
            self._holders[client] = size
            self._held += size


LARGE_FRAME = 64 * KIB  # bytes of a frame
FRAMES_AT_ONCE = 4  # a command in parts takes some six times the bytes of its frame


class Sender(Protocol):
    """A connection."""

    @property
    def heard_at(self) -> float:
        """When something came."""
        ...

    def has_turn(self) -> None:
        """Its frame may be taken apart."""
        ...

    def end(self, why: str) -> None: ...


class LargeFrames:
    """What large frames of all clients may take. On the loop.

    While they come in, they have `most` bytes: where there are more, whoever has sent nothing for longest ends. Once
    they are there, few are taken apart at a time, and the others wait in a line."""

    def __init__(self, most: int, at_once: int = FRAMES_AT_ONCE) -> None:
        self.held = 0
        self._most = most
        self._at_once = at_once
        self._holders: dict[Sender, int] = {}
        self._line: dict[Sender, None] = {}
        self._at_work: dict[Sender, bool] = {}  # whether it has begun; else it was told that it may

    def holds(self, sender: Sender, size: int) -> None:
        """It has so many bytes now."""
        self.held += size - self._holders.pop(sender, 0)
        if size:
            self._holders[sender] = size
        while self.held > self._most:
            coming = [one for one in self._holders if one not in self._line and one not in self._at_work]
            if not coming:
                return
            slowest = min(coming, key=lambda one: one.heard_at)
            self.forget(slowest)
            slowest.end("it is slow with a large frame, and others need the memory")

    def begin(self, sender: Sender) -> bool:
        """Whether it is its turn; else it is told later."""
        if sender not in self._at_work and len(self._at_work) >= self._at_once:
            self._line[sender] = None
            return False
        self._at_work[sender] = True
        return True

    def done(self, sender: Sender) -> None:
        """With its frame, if it had one."""
        if self._at_work.get(sender):
            self._make_place(sender)

    def waive(self, sender: Sender) -> None:
        """It cannot begin now, if it was told that it may: its turn is another one's."""
        if self._at_work.get(sender) is False:
            self._make_place(sender)

    def forget(self, sender: Sender) -> None:
        """It is gone."""
        self.held -= self._holders.pop(sender, 0)
        self._line.pop(sender, None)
        if sender in self._at_work:
            self._make_place(sender)

    def _make_place(self, sender: Sender) -> None:
        del self._at_work[sender]
        if self._line:
            following = next(iter(self._line))
            del self._line[following]
            self._at_work[following] = False
            following.has_turn()


LEAST_SHARE = 64 * KIB  # bytes: less would be of no use
_OF_WHAT_IS_LEFT = 64


class Shares:
    """A bounded memory for any number. Who comes gets a small part of what is left: so all parts together stay within
    `most` bytes, but for the least part, which everybody gets."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, wanted: int) -> int:
        """Bytes, at most as many as wanted; to be given back."""
        part = max(min(wanted, self.left // _OF_WHAT_IS_LEFT), min(wanted, LEAST_SHARE))
        self.left -= part
        return part

    def give_back(self, part: int) -> None:
        """Whoever had it is gone."""
        self.left += part


FIRST_GUESS = 16 * 1024  # bytes of a message, before any was sent
_SMOOTH = 8  # entries, about, that the average looks back on


class PermitWindow:
    """A client's permits, of which the dispatcher is given only as many as a bounded size of messages takes, about."""

    def __init__(self) -> None:
        self._held = 0
        self._given = 0
        self._average = float(FIRST_GUESS)

    def add(self, permits: int) -> None:
        """The client takes so many more."""
        self._held += permits

    def sent(self, entries: int, messages: int, size: int) -> None:
        """Entries went out together."""
        self._given -= messages
        self._average += (size / max(messages, 1) - self._average) * min(entries / _SMOOTH, 1)

    def take(self, most_bytes: int) -> int:
        """What the dispatcher gets now: nothing before half of what it had is used up."""
        room = max(int(most_bytes / max(self._average, 1.0)), 1)
        if self._given > room // 2:
            return 0
        taken = min(self._held, room - max(self._given, 0))
        self._held -= taken
        self._given += taken
        return taken

"""What large frames of all clients may take. On the loop."""

from __future__ import annotations

from typing import Protocol

from offloader.model import KIB

LARGE = 64 * KIB  # bytes of a frame
AT_ONCE = 4  # a command in parts takes some six times the bytes of its frame


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
    """While they come in, all together have `most` bytes: where there are more, whoever has sent nothing for longest
    ends. Once they are there, few are taken apart at a time, and the others wait in a line."""

    def __init__(self, most: int, at_once: int = AT_ONCE) -> None:
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

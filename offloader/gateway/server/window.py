"""How many messages may be on their way to a client that takes them slowly: permits are passed on by and by. Pure."""

from __future__ import annotations

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

    def forget(self) -> None:
        """The consumer has subscribed anew: its former permits are void."""
        self._held = self._given = 0

    def take(self, most_bytes: int) -> int:
        """What the dispatcher gets now: nothing before half of what it had is used up."""
        room = max(int(most_bytes / max(self._average, 1.0)), 1)
        if self._given > room // 2:
            return 0
        taken = min(self._held, room - max(self._given, 0))
        self._held -= taken
        self._given += taken
        return taken

"""What one subscription delivers, until a reader takes it. Filled by the connection's I/O thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from offloader.errors import OffloadError
from offloader.ports.entry_source import RawEntry
from offloader.pulsar.window import Window, message_count


class Inbox:
    """A `session.Consumer` that holds what the window allows. An entry that does not fit ends the subscription:
    `overflowed`, to go on at `next`."""

    def __init__(
        self, window: Window, start: tuple[int, int], grant: Callable[[int], None], stop: Callable[[], None]
    ) -> None:
        self.next = start
        self.overflowed = False
        self._window = window
        self._grant = grant
        self._stop = stop
        self._changed = threading.Condition(threading.Lock())
        self._entries: list[RawEntry] = []
        self._error: OffloadError | None = None

    @property
    def exhausted(self) -> bool:
        """Overflowed, and everything that did fit was taken."""
        return self.overflowed and not self._entries

    def open(self) -> None:
        """Grant the first permits."""
        with self._changed:
            self._grant_more()

    def take(self, timeout: float) -> list[RawEntry]:
        """Everything that has arrived; nothing after `timeout` seconds. Raises why the subscription ended, once it is
        empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._error or self.overflowed, timeout)
            if not self._entries and self._error is not None:
                raise self._error
            entries, self._entries = self._entries, []
            self._window.taken()
            self._grant_more()
            return entries

    def on_entry(self, ledger: int, entry: int, data: bytes) -> None:
        messages = message_count(data)
        with self._changed:
            if self.overflowed:
                return
            if (ledger, entry) < self.next:  # before the start, where that lies behind the topic's end
                self._window.skipped(messages)
            elif self._window.fits(len(data)):
                self._keep(RawEntry(ledger, entry, data), messages)
            else:
                self.overflowed = True
                self._stop()
                return
            self._grant_more()

    def on_closed(self, error: OffloadError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify()

    def _keep(self, entry: RawEntry, messages: int) -> None:
        self.next = (entry.ledger, entry.entry + 1)
        self._window.arrived(len(entry.data), messages)
        self._entries.append(entry)
        self._changed.notify()

    def _grant_more(self) -> None:
        permits = 0 if self.overflowed or self._error else self._window.grant()
        if permits:
            self._grant(permits)

"""The hook for proving to a bookie who we are: steps of bytes that client and bookie exchange after connecting.

BookKeeper names the plugin in each AUTH message and leaves the bytes to it, so what the plugins have in common is this.
"""

from __future__ import annotations

from typing import Protocol

# What a bookie without authentication answers, whatever the plugin: nothing more is to be proven.
DISABLED = "AuthDisabledPlugin"


class BookieAuthentication(Protocol):
    """One connection's conversation. Raises AuthenticationFailedError where it cannot prove anything."""

    plugin: str

    def first(self) -> bytes:
        """What we say first."""
        ...

    def next(self, answer: bytes) -> bytes | None:
        """The reply to the bookie's answer; None: done, no more to say."""
        ...


class PlainAuthentication:
    """One message of fixed bytes, for plugins that take a secret and confirm it."""

    def __init__(self, plugin: str, payload: bytes) -> None:
        self.plugin = plugin
        self._payload = payload

    def first(self) -> bytes:
        """The secret."""
        return self._payload

    def next(self, answer: bytes) -> bytes | None:  # noqa: ARG002 (the interface's signature)
        """Any answer confirms it: a bookie that refuses closes the connection."""
        return None

"""Copies of topics' subscriptions, written where something has changed since the newest one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offloader.cursors.copies import CursorCopy
from offloader.cursors.copy_codec import digest_of
from offloader.cursors.copy_store import copy_times, read_copy, thin_copies, write_copy
from offloader.errors import IntegrityError
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

THIN_EVERY_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class NewestCopy:
    """What a writer remembers of a topic. `at`: of the newest copy; None: there is none. `digest`: what that says;
    empty: it cannot be read. `thinned_at`: when copies were last removed, by the copies' times. `written`: by the call
    that returned this."""

    at: int | None
    digest: bytes = b""
    thinned_at: int = 0
    written: bool = False


@dataclass(frozen=True)
class CursorCopier:
    """Safe to use from several threads, of one topic by one at a time."""

    store: ObjectStore
    new_token: Callable[[], str]

    def take(self, copy: CursorCopy, version: Callable[[], str], known: NewestCopy | None) -> NewestCopy:
        """Write a copy, unless the newest one says the same. `known`: what the last call returned; None: this is the
        first. Raises what the store raises."""
        before = known or self._newest(copy.topic)
        digest = digest_of(copy)
        if digest == before.digest:
            return NewestCopy(before.at, digest, before.thinned_at)
        with_version = CursorCopy(copy.topic, copy.incarnation, copy.at, copy.cursors, version())
        at = write_copy(self.store, with_version, self.new_token, before.at).at
        thinned_at = before.thinned_at
        if at - thinned_at >= THIN_EVERY_MS:
            thin_copies(self.store, copy.topic)
            thinned_at = at
        return NewestCopy(at, digest, thinned_at, written=True)

    def _newest(self, topic: TopicName) -> NewestCopy:
        try:
            found = read_copy(self.store, topic)
        except IntegrityError:  # the next one takes its place
            return NewestCopy(max(copy_times(self.store, topic)))
        return NewestCopy(None) if found is None else NewestCopy(found.at, digest_of(found))

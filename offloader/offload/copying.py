"""What the application copies of topics besides their entries, by its configuration."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import cache
from threading import Lock

from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.config import Config
from offloader.lifecycle.topics.cursors.configured import subscription_names
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.live import LiveCursors
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.offload import settings as derived
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic_copies import CursorCopying, FactsCopying, TopicCopying
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.loaded import LARGEST_STATISTICS


def copying_of(context: Context, config: Config, stack: ExitStack) -> tuple[TopicCopying, ...]:
    """Schemas of every topic; subscriptions where a policy says so. `stack` gets what must be closed."""
    states = stack.enter_context(closing(AdminClient(derived.pulsar(config), largest=LARGEST_STATISTICS)))
    facts = FactsCopying(context, states)
    if not config.policies.any_says("archive_cursors"):
        return (facts,)

    @cache
    def names() -> SubscriptionNames:
        return subscription_names(context.subscription, context.admin)

    reached = derived.bookkeeper(config)
    stored = None if reached is None else _Stored(reached)
    if stored is not None:
        stack.callback(stored.close)
    return facts, CursorCopying(context, LiveCursors(states, stored, names))


class _Stored:
    """Opened by the first look: the application starts, and copies nothing yet, where it cannot be reached."""

    def __init__(self, settings: BookKeeperSettings) -> None:
        self._settings = settings
        self._opened = ExitStack()
        self._topics: StoredTopics | None = None
        self._opening = Lock()

    def __call__(self) -> StoredTopics:
        with self._opening:
            if self._topics is None:
                tree, bookies = clients(self._settings)
                self._opened.enter_context(closing(tree))
                self._opened.enter_context(closing(bookies))
                self._topics = StoredTopics(tree, bookies, self._settings.bookies.request_timeout)
            return self._topics

    def close(self) -> None:
        self._opened.close()

"""Lists of the topics of namespaces: of each that clients ask for, one at a time, kept for some seconds."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from offloader.errors import OffloadError
from offloader.gateway.protocol.topic_lists import TopicDirectory, directory_of
from offloader.model import TopicName

log = logging.getLogger(__name__)

LIST_KEPT = 5.0  # seconds
LIST_WAITED_FOR = 1.0  # seconds, where an old one says enough
MOST_NAMESPACES = 1_000  # whose lists are kept


class NamespaceLists:
    """`names`: asks the store for the topics of a namespace. On the loop."""

    def __init__(self, names: Callable[[str], Awaitable[Sequence[TopicName]]]) -> None:
        self._names = names
        self._lists: OrderedDict[str, _List] = OrderedDict()  # the one asked for last at the end

    def before(self, namespace: str) -> TopicDirectory:
        """As of the last listing; empty where there was none."""
        return self._lists[namespace].directory if namespace in self._lists else directory_of(())

    async def now(self, namespace: str, says: Callable[[TopicDirectory], bool] = lambda _: False) -> TopicDirectory:
        """Listed once, however many ask at the same time. `says`: whether the list from before has what is asked for;
        then the caller does not wait long for a new one."""
        known = self._lists.setdefault(namespace, _List())
        self._lists.move_to_end(namespace)
        while len(self._lists) > MOST_NAMESPACES:
            self._lists.popitem(last=False)
        if known.age < LIST_KEPT:
            return known.directory
        listing = known.begin(lambda: self._names(namespace))
        if not says(known.directory):
            return await asyncio.shield(listing)
        try:
            return await asyncio.wait_for(asyncio.shield(listing), LIST_WAITED_FOR)
        except (TimeoutError, OffloadError) as error:
            log.info("gateway: the list of topics of %s is an old one: %s", namespace, error)
            return known.directory


class _List:
    """Of one namespace."""

    def __init__(self) -> None:
        self.directory = directory_of(())
        self._listed_at = -LIST_KEPT
        self._listing: asyncio.Task[TopicDirectory] | None = None

    @property
    def age(self) -> float:
        """Seconds."""
        return asyncio.get_running_loop().time() - self._listed_at

    def begin(self, names: Callable[[], Awaitable[Sequence[TopicName]]]) -> asyncio.Task[TopicDirectory]:
        """A new listing, or the one that is under way."""
        if self._listing is None:
            self._listing = asyncio.create_task(self._list(names))
            self._listing.add_done_callback(self._listed)
        return self._listing

    async def _list(self, names: Callable[[], Awaitable[Sequence[TopicName]]]) -> TopicDirectory:
        found = directory_of(await names())
        return self.directory if found.topics == self.directory.topics else found

    def _listed(self, listing: asyncio.Task[TopicDirectory]) -> None:
        self._listing = None
        if not listing.cancelled() and listing.exception() is None:
            self._listed_at = asyncio.get_running_loop().time()
            self.directory = listing.result()

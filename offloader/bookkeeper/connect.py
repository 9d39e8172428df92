"""From settings to a source that is connected."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offloader.bookkeeper.settings import BookieSettings
from offloader.errors import AccessDeniedError, MetadataUnavailableError

if TYPE_CHECKING:
    from offloader.bookkeeper.bookie_source import BookKeeperSource
    from offloader.bookkeeper.bookies import BookieClient
    from offloader.bookkeeper.metadata import MetadataTree

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BookKeeperSettings:
    """Frozen and picklable: workers get it and connect by themselves. `metadata_timeout`: seconds for one call."""

    metadata_uri: str
    bookies: BookieSettings = field(default_factory=BookieSettings)
    metadata_timeout: float = 10.0


def connect(settings: BookKeeperSettings) -> BookKeeperSource:
    """Raises ConfigError, MetadataUnavailableError, FatalError (kazoo is not installed)."""
    from offloader.bookkeeper.bookie_source import BookKeeperSource

    return BookKeeperSource(*clients(settings))


def clients(settings: BookKeeperSettings) -> tuple[MetadataTree, BookieClient]:
    """Of the metadata service and of the bookies that it lists. Both are to be closed. Raises as `connect`."""
    from offloader.bookkeeper import zookeeper  # kazoo is an extra
    from offloader.bookkeeper.bookies import BookieClient

    ledgers = zookeeper.connect(settings.metadata_uri, timeout=settings.metadata_timeout)
    return ledgers, BookieClient(settings.bookies, ledgers.address)


def instance_id(settings: BookKeeperSettings) -> str:
    """BookKeeper's instance id; empty: it has none, or the metadata service does not give it now. Raises ConfigError,
    FatalError (kazoo is not installed)."""
    from offloader.bookkeeper import zookeeper

    try:
        with closing(zookeeper.connect(settings.metadata_uri, timeout=settings.metadata_timeout)) as tree:
            return tree.instance_id()
    except (MetadataUnavailableError, AccessDeniedError) as error:
        log.info("BookKeeper's instance id is not known: %s", error)
        return ""


def check_installed() -> None:
    """Raises FatalError where something that `connect` needs is not installed: to be told before anything starts."""
    from offloader.bookkeeper import zookeeper  # noqa: F401

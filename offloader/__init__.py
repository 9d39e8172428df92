"""A streaming offloader for Apache Pulsar (PIP-76): topics become verified segments in an object store.

What a program needs to read an archive is here: `from offloader import Archive, Selection, Position`. Each name is
imported when it is first used, so `import offloader` itself costs nothing. From Spark: `register`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offloader.archive import register
    from offloader.archive.archive import Archive
    from offloader.archive.items import ArchivedEntry, EntryRun, Missing
    from offloader.archive.ledgers.bucket import LedgerBucket
    from offloader.archive.messages.encryption import KeyReader, PemFiles
    from offloader.archive.messages.message import Message, MessageLimits, MessageProblem
    from offloader.archive.messages.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
    from offloader.archive.reading.reader import ReadOptions
    from offloader.archive.reading.verifier import OnDamage
    from offloader.archive.selection import Selection
    from offloader.archive.topic import ArchivedTopic
    from offloader.errors import (
        AccessDeniedError,
        BucketNotFoundError,
        ConfigError,
        DamagedObjectError,
        DamagedRecordError,
        DataLostError,
        FatalError,
        FormatVersionError,
        IntegrityError,
        MessageTooLargeError,
        ObjectNotFoundError,
        OffloadError,
        RetryableError,
        StoreUnavailableError,
    )
    from offloader.model import Position, TopicName
    from offloader.pulsar.settings import PulsarSettings
    from offloader.storage.settings import StoreSettings

__all__ = [
    "ENTRY_SCHEMA", "MESSAGE_SCHEMA", "AccessDeniedError", "Archive", "ArchivedEntry", "ArchivedTopic",
    "BucketNotFoundError", "ConfigError", "DamagedObjectError", "DamagedRecordError", "DataLostError", "EntryRun",
    "FatalError", "FormatVersionError", "IntegrityError", "KeyReader", "LedgerBucket", "Message", "MessageLimits",
    "MessageProblem", "MessageTooLargeError", "Missing", "ObjectNotFoundError", "OffloadError", "OnDamage",
    "PemFiles", "Position", "PulsarSettings", "ReadOptions", "RetryableError", "Selection", "StoreSettings",
    "StoreUnavailableError", "TopicName", "register",
]  # fmt: skip

_HOMES = {
    "archive": ("register",),
    "archive.archive": ("Archive",),
    "archive.items": ("ArchivedEntry", "EntryRun", "Missing"),
    "archive.ledgers.bucket": ("LedgerBucket",),
    "archive.messages.encryption": ("KeyReader", "PemFiles"),
    "archive.messages.message": ("Message", "MessageLimits", "MessageProblem"),
    "archive.messages.schema": ("ENTRY_SCHEMA", "MESSAGE_SCHEMA"),
    "archive.reading.reader": ("ReadOptions",),
    "archive.reading.verifier": ("OnDamage",),
    "archive.selection": ("Selection",),
    "archive.topic": ("ArchivedTopic",),
    "model": ("Position", "TopicName"),
    "pulsar.settings": ("PulsarSettings",),
    "storage.settings": ("StoreSettings",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name, from its home. All that no other home has are errors."""
    if name not in __all__:
        raise AttributeError(f"module 'offloader' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"offloader.{_HOME_OF.get(name, 'errors')}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Stores and keys, opened in each of Spark's processes: workers live longer than tasks, and connections are worth keeping."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from offloader.archive.messages.encryption import KeyReader
from offloader.archive.reading.stores import Stores
from offloader.archive.spark.options import Options
from offloader.errors import ConfigError
from offloader.storage.open import StoreSettings

_STORES: dict[tuple[StoreSettings, ...], Stores] = {}
_LOCK = threading.Lock()


def opened_stores(options: Options) -> Stores:
    """The stores of this process for these options."""
    others = () if options.ledgers is None else (options.ledgers.store,)
    with _LOCK:
        return _STORES.setdefault((options.store, *others), Stores(options.store, others))


@dataclass(frozen=True)
class PemFiles:
    """Private keys from files, which every machine that runs tasks must have."""

    paths: Mapping[str, str]

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes | None:  # noqa: ARG002 (KeyReader's signature)
        """Raises ConfigError where the file cannot be read."""
        if name not in self.paths:
            return None
        try:
            return Path(self.paths[name]).read_bytes()
        except OSError as error:
            raise ConfigError(f"privateKeys: {name}: {error}") from error


def key_reader(options: Options) -> KeyReader | None:
    """What opens encrypted messages, None where no keys are given."""
    return PemFiles(dict(options.private_keys)) if options.private_keys else None

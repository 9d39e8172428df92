"""From a URL to a store: an archive's root, and other buckets beside it that brokers read from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from urllib.parse import unquote, urlsplit

from offloader.errors import ConfigError, UnprovenStoreError
from offloader.ports.object_store import ObjectStore
from offloader.storage.local import LocalStore
from offloader.storage.memory import MemoryBacking, MemoryStore
from offloader.storage.settings import StoreSettings

AZURE_SCHEMES = ("az", "abfs", "abfss")
GOOGLE_SCHEMES = ("gs", "gcs")
_MEMORIES: dict[str, MemoryBacking] = {}
_MEMORIES_LOCK = threading.Lock()


def open_store(settings: StoreSettings, *, read_only: bool = False) -> ObjectStore:
    """Open the store. Raises ConfigError, or UnprovenStoreError where nothing proves that creating is atomic there.

    `read_only`: nobody will write to it, so it need not prove that.
    """
    scheme, address = settings.scheme, settings.root.partition("://")[2]
    if not scheme:
        raise ConfigError(
            f"{settings.setting}: {settings.root!r} is not a URL; write file:///folder or s3://bucket/prefix"
        )
    if settings.options and not settings.takes_options:
        raise ConfigError(f"options.{settings.options[0][0]}: {scheme}:// takes no options; leave it out")
    if scheme == "file":
        return _open_local(settings)
    if scheme == "memory":
        with _MEMORIES_LOCK:
            return MemoryStore(_MEMORIES.setdefault(address, MemoryBacking()), url=settings.root)
    if scheme == "s3":
        from offloader.storage.s3_client import open_s3  # boto3 takes 0.2 s to import

        return open_s3(settings)
    if scheme in ("webhdfs", "swebhdfs"):
        from offloader.storage.webhdfs import open_webhdfs

        return open_webhdfs(settings)
    if scheme in GOOGLE_SCHEMES:
        try:
            from offloader.storage.gcs import open_gcs
        except ImportError as e:
            raise ConfigError(f"{settings.setting}: {scheme}:// needs {e.name}; install the extra gcs") from e
        return open_gcs(settings)
    if scheme in AZURE_SCHEMES:
        try:
            from offloader.storage.azure_client import open_azure
        except ImportError as e:
            raise ConfigError(f"{settings.setting}: {scheme}:// needs {e.name}; install the extra azure") from e
        return open_azure(settings)
    if scheme == "hdfs":
        raise UnprovenStoreError(
            f"{settings.setting}: {settings.root}: hdfs:// is not spoken here; name the namenode's HTTP address: "
            "webhdfs://namenode:9870/folder"
        )
    from offloader.storage.fsspec import FsspecStore

    return FsspecStore(f"{scheme}://{address}", dict(settings.options), read_only=read_only, setting=settings.setting)


def _open_local(settings: StoreSettings) -> LocalStore:
    parts = urlsplit(settings.root)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(
            f"{settings.setting}: {settings.root!r} must be file:/// and an absolute path (encode # and ? as %23 and "
            "%3F)"
        )
    return LocalStore(unquote(parts.path))


class Buckets:
    """Opens each bucket once, when it is first needed; reached like the root. `opener`: by default for reading only.
    Safe to use from several threads."""

    def __init__(
        self,
        settings: StoreSettings,
        opener: Callable[[StoreSettings], ObjectStore] | None = None,
    ) -> None:
        self._settings = settings
        self._opener = opener or partial(open_store, read_only=True)
        self._opened: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()

    def open(self, url: str) -> ObjectStore:
        """The store of a bucket's URL. Raises ConfigError."""
        with self._lock:
            found = self._opened.get(url)
            if found is None:
                found = self._opened[url] = self._opener(self._settings.beside(url, "bridge.bucket"))
            return found

    def close(self) -> None:
        """Close what was opened here."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for each in opened.values():
            each.close()

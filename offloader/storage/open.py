"""From a URL to a store."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from offloader.errors import ConfigError
from offloader.storage.base import ObjectStore
from offloader.storage.local import LocalStore
from offloader.storage.memory import MemoryBacking, MemoryStore

_MEMORIES: dict[str, MemoryBacking] = {}
_MEMORIES_LOCK = threading.Lock()
_ROOT = "root"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a store is and how to reach it. Can be pickled; each process opens its own store.

    `root`: `file:///path`, `s3://bucket/prefix`, `memory://name` (this process only), or a URL of fsspec. `endpoint`,
    `region` and keys are for S3; without keys the usual AWS chain decides (environment, profile, instance role). `setting` is how
    whoever gave the root calls it, for errors.
    """

    root: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()
    setting: str = field(default=_ROOT, compare=False, repr=False)


def open_store(settings: StoreSettings, *, read_only: bool = False) -> ObjectStore:
    """Open the store. Raises ConfigError, or UnprovenStoreError where nothing proves that creating is atomic there.

    `read_only`: nothing will be written, so that nothing need be proven.
    """
    try:
        return _opened(settings, read_only=read_only)
    except ConfigError as error:
        problem = str(error)
        if settings.setting == _ROOT or not problem.startswith(f"{_ROOT}: "):
            raise
        raise ConfigError(f"{settings.setting}{problem.removeprefix(_ROOT)}") from error


def _opened(settings: StoreSettings, *, read_only: bool) -> ObjectStore:
    scheme, rest = _split(settings.root)
    if scheme == "file":
        return _open_local(settings.root)
    if scheme == "memory":
        with _MEMORIES_LOCK:
            return MemoryStore(_MEMORIES.setdefault(rest, MemoryBacking()), url=settings.root)
    if scheme == "s3":
        from offloader.storage.s3_client import open_s3  # boto3 takes 0.2 s to import

        return open_s3(settings)
    from offloader.storage.fsspec import FsspecStore

    return FsspecStore(settings.root, dict(settings.options), read_only=read_only)


def _split(root: str) -> tuple[str, str]:
    scheme, separator, rest = root.partition("://")
    if not separator or not scheme:
        raise ConfigError(f"root: {root!r} is not a URL; write file:///folder or s3://bucket/prefix")
    return scheme.lower(), rest


def _open_local(root: str) -> LocalStore:
    parts = urlsplit(root)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(f"root: {root!r} must be file:/// and an absolute path (encode # and ? as %23 and %3F)")
    return LocalStore(unquote(parts.path))

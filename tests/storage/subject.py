"""The store under test, as the contracts need it: how to open it, what it can; and small helpers."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import BaseContext

from crc32c import crc32c

from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.settings import StoreSettings


@dataclass(frozen=True)
class Subject:
    """The store under test. `open` gives a new store over one root, as another process has it; its opener closes it."""

    open: Callable[[], ObjectStore]
    settings: StoreSettings | None = None  # for tests with real processes; None where they cannot share the store
    part_size: int = 1000
    keeps_meta: bool = True
    beside: Callable[[], ObjectStore] | None = None  # another bucket of the same server
    compares_by_reading: bool = True  # a create reads what is there by `read`; False: the store has it in memory


@cache
def processes() -> BaseContext:
    """Makes processes that know nothing of this one. What they import is imported once, by the one that they are forked
    from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["offloader.storage.local", "offloader.storage.s3_client", "tests.storage.contract"])
    return context


def noise(size: int, seed: object = 0) -> bytes:
    """Bytes without a pattern, the same for the same seed."""
    return random.Random(str(seed)).randbytes(size)


def upload_parts(store: ObjectStore, upload: str, contents: list[bytes]) -> list[UploadedPart]:
    """Upload these as parts 1, 2, 3..."""
    parts, offset = [], 0
    for number, content in enumerate(contents, 1):
        parts.append(store.put_part(upload, number, offset, content, crc32c(content)))
        offset += len(content)
    return parts


def open_uploads(store: ObjectStore, key: str) -> list[str]:
    """The handles of the open uploads of exactly this key."""
    return [found.upload for found in store.list_uploads(key) if found.key == key]


def check_many_parts(store: ObjectStore, count: int) -> None:
    """So many parts become one object, and leave nothing else."""
    contents = [noise(100, n) for n in range(count)]
    upload = store.begin("k")
    store.commit(upload, upload_parts(store, upload, contents))
    assert store.read("k")[0] == b"".join(contents)
    assert [key for key, _ in store.list()] == ["k"]
    assert list(store.list_uploads()) == []

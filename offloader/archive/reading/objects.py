"""An object's bytes in ranges, and its name in what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from offloader.errors import DamagedObjectError
from offloader.model import MIB
from offloader.ports.object_store import ObjectStore, Stat
from offloader.storage.whole import read_whole

READ_SIZE = 4 * MIB
LARGEST_INDEX = 256 * MIB  # a segment ends when it has 16 MiB of index; a V1 index of 1 TiB has 4 MiB in blocks of 5 MiB


def read_index(store: ObjectStore, key: str) -> tuple[bytes, Stat]:
    """An object that should be an index. Raises ObjectNotFoundError, DamagedObjectError for one that is larger than any."""
    return read_whole(store, key, LARGEST_INDEX, DamagedObjectError)


def read_ranges(store: ObjectStore, key: str, begin: int, end: int, read_size: int = READ_SIZE) -> Iterator[bytes]:
    """The bytes `begin`..`end` of an object. Raises DamagedObjectError where it is shorter."""
    at = begin
    while at < end:
        data, _ = store.read(key, at, min(read_size, end - at))
        if not data:
            raise DamagedObjectError(f"offset {at}: the object ends here, {end - at} bytes are missing")
        at += len(data)
        yield data


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Put the object's name into the message of a damage."""
    try:
        yield
    except DamagedObjectError as error:
        if str(error).startswith(key):
            raise
        raise DamagedObjectError(f"{key}: {error}") from error

"""Bounded reads of whole objects and of ranges, from any store: whatever lies in a bucket may be damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from offloader.errors import DamagedObjectError, IntegrityError, ObjectNotFoundError
from offloader.model import MIB
from offloader.ports.object_store import ObjectStore, Stat

READ_SIZE = 4 * MIB
# A segment ends when it has 16 MiB of index; a V1 index of 1 TiB has 4 MiB in blocks of 5 MiB.
LARGEST_INDEX = 256 * MIB
AT_ONCE = MIB  # what is larger is read only when its size is known to be possible


def read_whole(store: ObjectStore, key: str, most: int, damage: type[IntegrityError]) -> tuple[bytes, Stat]:
    """A whole object. Raises ObjectNotFoundError, and `damage`, after a MiB at most, where it has over `most` bytes."""
    first = min(most + 1, AT_ONCE)
    data, stat = store.read(key, 0, first)
    if stat.size > most or len(data) > most:
        raise damage(f"{key}: it has {max(stat.size, len(data))} bytes, and none that is sound has more than {most}")
    if stat.size <= len(data):
        return data, stat
    rest, stat = store.read(key, len(data), stat.size - len(data))
    return data + rest, stat


def read_to_compare(store: ObjectStore, key: str, size: int) -> bytes | None:
    """An object that should have `size` bytes, or `size` + 1 bytes of a longer one; None: it is not there."""
    try:
        return store.read(key, 0, size + 1)[0]
    except ObjectNotFoundError:
        return None


def read_index(store: ObjectStore, key: str) -> tuple[bytes, Stat]:
    """An index object's bytes. Raises ObjectNotFoundError; DamagedObjectError for one larger than any index."""
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

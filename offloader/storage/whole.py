"""Objects that are read whole: with a bound, since whatever lies in a bucket may be damage."""

from __future__ import annotations

from offloader.errors import IntegrityError, ObjectNotFoundError
from offloader.model import MIB
from offloader.ports.object_store import ObjectStore, Stat

AT_ONCE = MIB  # what is larger is read only when its size is known to be possible


def read_whole(store: ObjectStore, key: str, most: int, damage: type[IntegrityError]) -> tuple[bytes, Stat]:
    """An object that has no more than `most` bytes where it is sound. Raises ObjectNotFoundError, and `damage` for a larger one, of which
    no more than a MiB is read."""
    first = min(most + 1, AT_ONCE)
    data, stat = store.read(key, 0, first)
    if stat.size > most or len(data) > most:
        raise damage(f"{key}: it has {max(stat.size, len(data))} bytes, and none that is sound has more than {most}")
    if stat.size <= len(data):
        return data, stat
    rest, stat = store.read(key, len(data), stat.size - len(data))
    return data + rest, stat


def read_to_compare(store: ObjectStore, key: str, size: int) -> bytes | None:
    """What an object has that should have `size` bytes: one more at most, which tells that it is another. None: it is not there."""
    try:
        return store.read(key, 0, size + 1)[0]
    except ObjectNotFoundError:
        return None

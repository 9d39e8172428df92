"""A slice's parts on their way to the store: one at a time, while the next one is read and cut."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import crc32c

from offloader.format.cutter import CutPart
from offloader.ports.object_store import ObjectStore


class Uploaded(NamedTuple):
    """A part that the store holds."""

    cut: CutPart
    etag: str
    crc32c: int


class PartUploads:
    """At most one upload is under way: what is in memory besides the part being cut is one more part."""

    def __init__(self, store: ObjectStore, upload: str) -> None:
        self._store = store
        self._upload = upload
        self._pool = ThreadPoolExecutor(1, "part-upload")
        self._under_way: Future[Uploaded] | None = None

    @property
    def busy(self) -> bool:
        """Whether an upload has been started whose outcome nobody has asked for."""
        return self._under_way is not None

    def start(self, cut: CutPart) -> None:
        """Begin with a part. The one before it must have been waited for."""
        assert self._under_way is None, "two uploads at a time would not be bounded"
        self._under_way = self._pool.submit(self._put, cut)

    def wait(self) -> Uploaded | None:
        """The part that was under way, once; None if there was none. Raises what the store raised."""
        under_way, self._under_way = self._under_way, None
        return None if under_way is None else under_way.result()

    def close(self) -> None:
        """End the thread, once it has done its work."""
        self._pool.shutdown()

    def _put(self, cut: CutPart) -> Uploaded:
        data = cut.data()
        checksum = crc32c.crc32c(data)
        etag = self._store.put_part(self._upload, cut.number, cut.offset, data, checksum).etag
        return Uploaded(cut, etag, checksum)

"""A slice's parts on their way to the store: a few at a time, while the next one is read and cut; or its segment's
only part, which becomes the object."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import crc32c

from offloader.errors import UploadGoneError
from offloader.format.cutter import CutPart
from offloader.format.index import OBJECT_META
from offloader.model import SINGLE_PUT
from offloader.ports.object_store import ObjectStore

# One request after the other leaves the store idle while we cut, and us idle while it answers. A file is written in
# place only where its parts come in order.
MOST_UNDER_WAY = 3
IN_ORDER = "file://"


class Uploaded(NamedTuple):
    """A part that the store holds; its bytes are not kept."""

    cut: CutPart
    etag: str
    crc32c: int


class PartUploads:
    """Those of the object `key`; at most `MOST_UNDER_WAY` are on their way. Besides the part being cut, and one that is
    joined, these are what is in memory. For one thread."""

    def __init__(self, store: ObjectStore, key: str, upload: str) -> None:
        self._store = store
        self._key = key
        self._upload = upload
        self._most = 1 if store.url.startswith(IN_ORDER) else MOST_UNDER_WAY
        self._pool = ThreadPoolExecutor(self._most, "part-upload")
        self._under_way: deque[Future[Uploaded]] = deque()

    def start(self, cut: CutPart) -> Iterator[Uploaded]:
        """Begin with a part, once there is room for it. Yields those before it that are uploaded, in order; to be
        exhausted. Raises what the store raised: what was yielded is uploaded, the rest is not."""
        while self._under_way and (len(self._under_way) >= self._most or self._under_way[0].done()):
            yield self._oldest()
        data, named = cut.data(), replace(cut, buffers=[])
        del cut
        self._under_way.append(self._pool.submit(self._put, named, data))

    def finish(self) -> Iterator[Uploaded]:
        """Wait for those that are under way. Yields and raises as `start`."""
        while self._under_way:
            yield self._oldest()

    def close(self) -> None:
        """End the threads, once they have done their work: nothing is sent any more."""
        self._pool.shutdown()

    def _oldest(self) -> Uploaded:
        """Forgets those behind it where it failed: they are not the object's next parts."""
        waiting, self._under_way = self._under_way, deque()
        uploaded = waiting.popleft().result()
        self._under_way = waiting
        return uploaded

    def _put(self, cut: CutPart, data: bytes) -> Uploaded:
        checksum = crc32c.crc32c(data)
        if self._upload == SINGLE_PUT:
            return Uploaded(cut, self._put_object(data), checksum)
        etag = self._store.put_part(self._upload, cut.number, cut.offset, data, checksum).etag
        return Uploaded(cut, etag, checksum)

    def _put_object(self, data: bytes) -> str:
        """The etag of the segment's object. Raises UploadGoneError where another attempt has written other bytes."""
        stat = self._store.put(self._key, data, meta=OBJECT_META, if_absent=True, as_upload=True)
        if stat is None:
            raise UploadGoneError(f"{self._key} has other bytes, which another attempt at its segment has written")
        return stat.etag

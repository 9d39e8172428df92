"""The one small interface to object stores, and its contract.

Every store passes the same contract tests (`tests/storage/contract.py`); a store that cannot keep one of the
promises refuses at construction instead. Stores are built once per process, are safe to use from several threads, and
are never pickled: pass a `StoreSettings` and open it again.

Errors, all stores: `StoreUnavailableError`, `StoreFullError` (retryable); `AccessDeniedError`, `BucketNotFoundError`
(fatal); `OutcomeUnknownError` where a write may have happened. Whatever retries a store does are bounded by its
`retry_deadline` seconds and one more attempt; `longest_call` is what a call comes to at most, attempts that look what
became of one included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store says of an object. `etag` changes whenever the content does; `meta` has lower-case keys.

    Metadata is for people who look into a bucket: not every store can keep it (fsspec, file systems without extended
    attributes), so nothing may depend on reading it back.
    """

    size: int
    etag: str
    meta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """What `commit` needs of one part. `number` counts from 1."""

    number: int
    size: int
    etag: str
    crc32c: int


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload found in a listing: its key, its handle, and when it began (ms, 0 where unknown)."""

    key: str
    upload: str
    began_at: int


class ObjectStore(Protocol):
    """Objects under one root. Keys are relative to it, `/`-separated, without a leading slash, at most 1,024 bytes.

    An object's key is never the folder of another (`a` and `a/b`), and on file systems each piece has at most 255
    bytes.
    """

    url: str
    min_part_size: int  # every part but an object's last must have at least this many bytes
    retry_deadline: float  # seconds one call may spend retrying
    longest_call: float  # seconds after which a call of one object has ended, well or not; 0: there is no such bound

    def put(
        self, key: str, data: bytes, *, meta: Mapping[str, str] | None = None, if_absent: bool = False
    ) -> Stat | None:
        """Write a whole object atomically: readers see nothing or all of it, and after this call they see it.

        With `if_absent`, exactly one of several concurrent writers succeeds; the others get None. An object that is
        there with exactly these bytes counts as ours (the answer to an earlier try was lost): callers who race must
        put a fresh token into `data`.
        """
        ...

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None) -> str:
        """Begin a multipart upload of `key`; nothing is visible under it. Returns a handle: plain text that any process
        may use, valid until commit or abort.

        Not repeated by the store once it may have happened: OutcomeUnknownError, and at worst an upload stays open that
        nobody knows.
        """
        ...

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:
        """Upload one part from any process. Idempotent for the same number and bytes; for different bytes the last one
        wins or the commit is refused, but a commit never publishes bytes that its parts do not name.

        `offset` is where the part begins in the object, so that a file can be written in place. IntegrityError if
        `data` does not have this CRC32C. The part survives a crash once this returns. Raises UploadGoneError, and then
        creates nothing, when the upload was aborted or committed.
        """
        ...

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        """Make the object of exactly these parts, numbered 1 to N, visible at once.

        Safe to repeat: when the object is already there with the size of these parts and the same content check (where
        the store has one: its etag), that is success. Raises UploadGoneError when there is neither the upload nor such
        an object, PartRejectedError when a part is missing or is not the one named.
        """
        ...

    def abort(self, upload: str) -> None:
        """End an upload and free its parts; one that is gone is no error. A committed object stays."""
        ...

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """Uploads that are still open under a key prefix, as far as the store can tell (a report, never a truth)."""
        ...

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        """Read a range (all of the rest by default; short at the object's end; empty past it).

        A body that is cut short is read again; what is returned is complete. Raises ObjectNotFoundError.
        """
        ...

    def stat(self, key: str) -> Stat | None:
        """What the store says of an object, None if there is none."""
        ...

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        """(key, size) of every object whose key begins with `prefix`, in key order, after `start_after`. An object is
        listed as soon as its write has returned. Uploads and the store's own helper files never appear.

        With `start_after` no more is looked at than what is taken needs, as far as the store can: whoever takes only
        the first few gives one.
        """
        ...

    def folders(self, prefix: str = "") -> Iterator[str]:
        """What keys have up to the first `/` behind `prefix`, closing slash included, each once and in key order: a
        thousand a request.

        A store of real folders may have some that hold no object.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is no error."""
        ...

    def close(self) -> None:
        """Release connections. The store must not be used afterwards."""
        ...

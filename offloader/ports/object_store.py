"""The one small interface to object stores, and its contract.

Every store passes the same tests, `StoreContract` of `tests/storage/contract.py`, at least with a real server; what it
does when answers are lost has tests of its own (`contract_faults.py`).
CONTRIBUTING.md has the steps to add one. Where nothing proves that creating is atomic, a store takes no writes:
UnprovenStoreError when it is opened, in a folder at its first write. Stores are built once per process, are safe to use
from several threads, and are never pickled: pass a `StoreSettings` and open it again.

What any call may raise, beside what its docstring says:

* It did not happen: `StoreUnavailableError`, `StoreFullError` (where the store tells that it is full) may pass;
  `AccessDeniedError`, `BucketNotFoundError` and `FatalError` (a key that no store can hold, another refusal) will not.
* A write that may have happened: `OutcomeUnknownError`, also where it cannot be looked at afterwards.
* An error that the store does not understand: `StoreUnavailableError`, of a write `OutcomeUnknownError`. S3 deviates:
  it applies nothing that it refuses, and our list says what may pass, so the rest is `FatalError`. So does a folder:
  `StoreUnavailableError` of a write too, where the file has not got its name yet.
* 404 tells of an absent object only where one object was asked for, else of a missing bucket. (On S3 its code decides:
  versitygw answers 404 to an unknown access key.)

A store retries for `retry_deadline` seconds; the attempt that runs by then is not interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store says of an object. `etag` changes whenever the content does; `meta` has lower-case keys.
    `modified_at`: when it was written, in ms by the store's clock; 0: it does not say, as of what was just written.
    `held`: the store keeps it from being deleted until that is lifted; `held_until`: until then (ms; 0: no such time).
    Where the role may not see that, and in answers to anything but `stat`, nothing is said.

    Metadata is for people who look into a bucket: not every store can keep it (fsspec, file systems without extended
    attributes), so nothing may depend on reading it back.
    """

    size: int
    etag: str
    meta: Mapping[str, str] = field(default_factory=dict)
    modified_at: int = field(default=0, compare=False)
    held: bool = field(default=False, compare=False)
    held_until: int = field(default=0, compare=False)


NO_CRC = -1


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """What `commit` needs of one part. `number` counts from 1. `crc32c` is `NO_CRC` of a part that the store has copied
    by itself and of which it does not tell."""

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
    bytes. We write less than 2 GiB (`MAX_OBJECT_SIZE`), on S3 at most 410 parts.
    """

    url: str
    retry_deadline: float  # seconds; for tests that must know how long a task may take
    # Seconds that a put, a read or a look takes at most; a commit may be several requests more. 0: unbounded, /healthz
    # does not wait for it.
    longest_call: float

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        """Write a whole object atomically: readers see nothing or all of it, and after this call they see it.

        With `if_absent`, exactly one of several concurrent writers succeeds; the others get None. An object that is
        there with exactly these bytes counts as ours (the answer to an earlier try was lost): callers who race must
        put a fresh token into `data`.

        `as_upload`: with the content type and the storage class that the store gives to the object of an upload.
        """
        ...

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:
        """Begin a multipart upload of `key`; nothing is visible under it. Returns a handle, made by
        `storage/rules.make_handle`, that any process may use until commit or abort. An upload lasts twice as long as a
        segment may be open (the doctor looks at S3's rules). Where an answer is lost, one may stay open that nobody
        knows: S3 does not repeat the request.

        `copies`: parts will be copied into it, too. No store needs checksums of its parts then, and none keeps them.
        """
        ...

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:
        """Upload one part from any process. It survives a crash once this returns, and may be sent again. Of two parts
        with one number and different bytes, the store keeps the last or both: a commit publishes the one it names, or
        raises PartRejectedError.

        `offset` is where the part begins in the object, so that a file can be written in place. Raises IntegrityError
        if `data` does not have this CRC32C; UploadGoneError when the upload was aborted or committed. Then nothing
        stays: to look again after the write, and remove it, is enough.
        """
        ...

    def copy_part(
        self, upload: str, number: int, offset: int, source: ObjectStore, key: str, at: int, size: int, etag: str = ""
    ) -> UploadedPart | None:
        """Upload one part as `put_part` does: `size` bytes (one or more) from `at` on of the object `key` of
        `source`, copied inside the store by one request, so that they do not pass through us. For uploads that were
        begun with `copies`. At most 5 GiB.

        None: this store cannot copy these bytes by itself (another server has them, this one does not know how, or
        refuses a range of so small an object), and nothing of it counts: read them and send them.

        `etag`: of the source as the caller knows it. Raises IntegrityError where it has another one, or ends before the
        range does; ObjectNotFoundError where it is gone. What was copied nobody has checked: read it back.
        """
        ...

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        """Make the object of exactly these parts, numbered 1 to N, visible at once.

        Safe to repeat: where the upload is gone and the object is made of these parts (size, and checksum or etag as
        far as the store has them), that is success. Raises UploadGoneError where the object is missing or another one;
        PartRejectedError when a part is missing, too small, or not the one named.
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

        With `start_after` the store lists only what is taken, as far as it can: who takes only the first few gives one.
        """
        ...

    def folders(self, prefix: str = "") -> Iterator[str]:
        """The folders whose path begins with `prefix`, down to the first `/` behind it: `a/b/` and `a/c/` for `a/`.
        With the closing slash, each once and in key order. Real folders may hold no object."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is no error."""
        ...

    def delete_if(self, key: str, etag: str) -> bool:
        """Delete an object while it has this etag; a missing one is no error. False: another one is there, and stays.

        S3, Google and memory decide at the moment of the deletion (MinIO, which ignores the condition, before it);
        other stores look first: who may write the key meanwhile must not matter there.
        """
        ...

    def keeps_versions(self) -> bool | None:
        """Whether what is deleted stays as a former version, for an undo. None: the store does not tell us."""
        ...

    def close(self) -> None:
        """Release connections. The store must not be used afterwards."""
        ...

"""A store that forwards every call to another one: what stands between both overrides `_call`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeVar

from offloader.ports.object_store import ObjectStore, OpenUpload, Stat, UploadedPart
from offloader.storage.rules import split_handle

T = TypeVar("T")
Verb = Literal[
    "put", "begin", "put_part", "copy_part", "commit", "abort", "list_uploads", "read", "stat", "list", "delete"
]


class ForwardingStore:
    """`ObjectStore` around another one. Folders are a listing; they and uploads are listed when they are asked for."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.url = store.url
        self.retry_deadline = store.retry_deadline
        self.longest_call = store.longest_call

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:  # noqa: ARG002
        """Make a call. `key` is the object's, a listing's prefix, or those to delete with spaces between."""
        return work()

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        def put() -> Stat | None:
            return self.store.put(key, data, meta=meta, if_absent=if_absent, as_upload=as_upload)

        return self._call("put", key, put)

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:
        return self._call("begin", key, lambda: self.store.begin(key, meta=meta, copies=copies))

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:
        key, _ = split_handle(upload)
        return self._call("put_part", key, lambda: self.store.put_part(upload, number, offset, data, crc32c))

    def copy_part(
        self, upload: str, number: int, offset: int, source: ObjectStore, key: str, at: int, size: int, etag: str = ""
    ) -> UploadedPart | None:
        def copy() -> UploadedPart | None:
            return self.store.copy_part(upload, number, offset, innermost(source), key, at, size, etag)

        return self._call("copy_part", split_handle(upload)[0], copy)

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        listed = list(parts)
        return self._call("commit", split_handle(upload)[0], lambda: self.store.commit(upload, listed))

    def abort(self, upload: str) -> None:
        self._call("abort", split_handle(upload)[0], lambda: self.store.abort(upload))

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        return iter(self._call("list_uploads", prefix, lambda: [*self.store.list_uploads(prefix)]))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        return self._call("read", key, lambda: self.store.read(key, offset, length))

    def stat(self, key: str) -> Stat | None:
        return self._call("stat", key, lambda: self.store.stat(key))

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        return self._call("list", prefix, lambda: self.store.list(prefix, start_after))

    def folders(self, prefix: str = "") -> Iterator[str]:
        return iter(self._call("list", prefix, lambda: [*self.store.folders(prefix)]))

    def delete(self, keys: Iterable[str]) -> None:
        listed = list(keys)
        self._call("delete", " ".join(listed), lambda: self.store.delete(listed))

    def delete_if(self, key: str, etag: str) -> bool:
        return self._call("delete", key, lambda: self.store.delete_if(key, etag))

    def keeps_versions(self) -> bool | None:
        return self._call("stat", "", self.store.keeps_versions)

    def close(self) -> None:
        self.store.close()


def innermost(store: ObjectStore) -> ObjectStore:
    """The store that all forwarding ones around it end at."""
    while isinstance(store, ForwardingStore):
        store = store.store
    return store

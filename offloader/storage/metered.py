"""A store that tells of each call: verb, seconds, outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeVar

from offloader.errors import OutcomeUnknownError
from offloader.ports.object_store import ObjectStore, OpenUpload, Stat, UploadedPart

T = TypeVar("T")
Verb = Literal["put", "begin", "put_part", "commit", "abort", "list_uploads", "read", "stat", "list", "delete"]
Outcome = Literal["ok", "error", "unknown"]
Tell = Callable[[Verb, float, Outcome], None]


class MeteredStore:
    """`ObjectStore` around another one. Listings are told of when they end."""

    def __init__(self, store: ObjectStore, tell: Tell) -> None:
        self._store = store
        self._tell = tell
        self.url = store.url
        self.min_part_size = store.min_part_size
        self.retry_deadline = store.retry_deadline
        self.longest_call = store.longest_call

    def put(
        self, key: str, data: bytes, *, meta: Mapping[str, str] | None = None, if_absent: bool = False
    ) -> Stat | None:
        return self._told("put", lambda: self._store.put(key, data, meta=meta, if_absent=if_absent))

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None) -> str:
        return self._told("begin", lambda: self._store.begin(key, meta=meta))

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:
        return self._told("put_part", lambda: self._store.put_part(upload, number, offset, data, crc32c))

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        return self._told("commit", lambda: self._store.commit(upload, parts))

    def abort(self, upload: str) -> None:
        self._told("abort", lambda: self._store.abort(upload))

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        return iter(self._told("list_uploads", lambda: [*self._store.list_uploads(prefix)]))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        return self._told("read", lambda: self._store.read(key, offset, length))

    def stat(self, key: str) -> Stat | None:
        return self._told("stat", lambda: self._store.stat(key))

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        began = time.monotonic()
        outcome: Outcome = "error"
        try:
            yield from self._store.list(prefix, start_after)
            outcome = "ok"
        except GeneratorExit:
            outcome = "ok"
            raise
        finally:
            self._tell("list", time.monotonic() - began, outcome)

    def folders(self, prefix: str = "") -> Iterator[str]:
        return iter(self._told("list", lambda: [*self._store.folders(prefix)]))

    def delete(self, keys: Iterable[str]) -> None:
        self._told("delete", lambda: self._store.delete(keys))

    def close(self) -> None:
        self._store.close()

    def _told(self, verb: Verb, call: Callable[[], T]) -> T:
        began = time.monotonic()
        outcome: Outcome = "error"
        try:
            answer = call()
            outcome = "ok"
        except OutcomeUnknownError:
            outcome = "unknown"
            raise
        finally:
            self._tell(verb, time.monotonic() - began, outcome)
        return answer

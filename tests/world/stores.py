"""An object store as its users meet it: it takes time, asks to be left alone, loses answers, serves damage, is away for
a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from offloader.errors import OutcomeUnknownError, StoreUnavailableError
from offloader.metadata.layout import KeyKind, parse_topic_key
from offloader.ports.object_store import ObjectStore, OpenUpload, Stat, UploadedPart
from offloader.storage.memory import MemoryBacking, MemoryStore
from offloader.storage.rules import split_handle
from tests.world.scheduler import MS, SECOND, Scheduler, current

T = TypeVar("T")

WRITES = frozenset({"put", "begin", "put_part", "copy_part", "commit", "abort", "delete"})
ONCE = frozenset({"put", "begin", "commit"})  # not repeated by the client once they may have happened
RETRY_DEADLINE = 60.0
USUAL_LATENCY_MS = (2.0, 30.0)


def anything(key: str) -> bool:
    """Every key."""
    return True


def is_data_key(key: str) -> bool:
    """Those of data objects."""
    parsed = parse_topic_key(key)
    return parsed is not None and parsed.kind is KeyKind.DATA


@dataclass
class Weather:
    """How the store is, until somebody changes it. `concerns`: the keys it is so for. Shares are of all calls."""

    latency_ms: tuple[float, float] = USUAL_LATENCY_MS
    down: bool = False  # every call ends at the client's retry deadline
    throttled: float = 0.0  # 503 SlowDown: the client tries again for some seconds
    lost: float = 0.0  # the answer of a call that happened
    failed: float = 0.0  # refused at once
    damaged: float = 0.0  # a bit of what is read
    calls: frozenset[str] | None = None  # only these
    concerns: Callable[[str], bool] = anything


@dataclass
class Bucket:
    """What all processes share. `calls`: how often each was made, by name."""

    scheduler: Scheduler
    backing: MemoryBacking = field(default_factory=MemoryBacking)
    weather: Weather = field(default_factory=Weather)
    made: dict[str, int] = field(default_factory=dict)
    uploads: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.plain = MemoryStore(self.backing)

    def store(self) -> BucketStore:
        """A client."""
        return BucketStore(self)


class BucketStore:
    """`ObjectStore` of one process."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._plain = bucket.plain
        self.url = bucket.plain.url
        self.retry_deadline = self.longest_call = RETRY_DEADLINE

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        if as_upload:
            self._transfer(data)
        return self._call("put", key, lambda: self._plain.put(key, data, meta=meta, if_absent=if_absent))

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:
        return self._call("begin", key, lambda: self._begin(key, meta))

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:
        self._transfer(data)
        return self._call("put_part", _key(upload), lambda: self._plain.put_part(upload, number, offset, data, crc32c))

    def _transfer(self, data: bytes) -> None:
        seconds = len(data) / 100e6
        self._bucket.scheduler.sleep(int(seconds * SECOND))

    def copy_part(
        self, upload: str, number: int, offset: int, source: ObjectStore, key: str, at: int, size: int, etag: str = ""
    ) -> UploadedPart | None:
        origin = source._plain if isinstance(source, BucketStore) else source

        def copy() -> UploadedPart | None:
            return self._plain.copy_part(upload, number, offset, origin, key, at, size, etag)

        return self._call("copy_part", _key(upload), copy)

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        listed = list(parts)
        return self._call("commit", _key(upload), lambda: self._plain.commit(upload, listed))

    def abort(self, upload: str) -> None:
        self._call("abort", _key(upload), lambda: self._plain.abort(upload))

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        return self._call("list_uploads", prefix, lambda: self._plain.list_uploads(prefix))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        data, stat = self._call("read", key, lambda: self._plain.read(key, offset, length))
        weather, rng = self._bucket.weather, self._bucket.scheduler.rng
        if data and weather.damaged and weather.concerns(key) and rng.random() < weather.damaged:
            self._bucket.scheduler.log(f"store damage {key}")
            where = int(rng.random() * len(data))
            data = data[:where] + bytes([data[where] ^ 1 << int(rng.random() * 8)]) + data[where + 1 :]
        return data, stat

    def stat(self, key: str) -> Stat | None:
        return self._call("stat", key, lambda: self._plain.stat(key))

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        return self._call("list", prefix, lambda: self._plain.list(prefix, start_after))

    def folders(self, prefix: str = "") -> Iterator[str]:
        return self._call("list", prefix, lambda: self._plain.folders(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        listed = list(keys)
        self._call("delete", " ".join(listed), lambda: self._plain.delete(listed))

    def delete_if(self, key: str, etag: str) -> bool:
        return self._call("delete", key, lambda: self._plain.delete_if(key, etag))

    def keeps_versions(self) -> bool | None:
        return self._plain.keeps_versions()

    def close(self) -> None:
        pass

    def _begin(self, key: str, meta: Mapping[str, str] | None) -> str:
        """With an id that the seed gives again."""
        handle = self._plain.begin(key, meta=meta)
        _, upload_id = split_handle(handle)
        uploads = self._bucket.backing.uploads
        named = f"u{next(self._bucket.uploads)}"
        uploads[named] = uploads.pop(upload_id)
        return handle.replace(upload_id, named)

    def _call(self, call: str, key: str, work: Callable[[], T]) -> T:
        bucket, scheduler = self._bucket, self._bucket.scheduler
        rng, weather = scheduler.rng, bucket.weather
        bucket.made[call] = bucket.made.get(call, 0) + 1
        bad = weather.concerns(key) and (weather.calls is None or call in weather.calls)
        took = int(rng.uniform(*(weather.latency_ms if bad else USUAL_LATENCY_MS)) * MS)
        scheduler.sleep(took // 2)
        weather = bucket.weather
        if bad and weather.down:
            self._wait_while_down(call, key)
        if bad and rng.random() < weather.throttled:
            self._wait_while_throttled(call, key)
        if bad and rng.random() < weather.failed:
            scheduler.log(f"store failed {call} {key}")
            raise StoreUnavailableError(f"{call} {key}: the store is unavailable")
        answer = work()
        if call in WRITES:
            scheduler.log(f"store {_who()} {call} {key}")
        scheduler.sleep(took - took // 2)
        if bad and rng.random() < weather.lost:
            scheduler.log(f"store lost the answer {call} {key}")
            if call in ONCE:
                raise OutcomeUnknownError(f"{call} {key}: the answer was lost")
            raise StoreUnavailableError(f"{call} {key}: the answer was lost")
        return answer

    def _wait_while_down(self, call: str, key: str) -> None:
        """As the client does: again and again, up to its deadline."""
        scheduler = self._bucket.scheduler
        until = scheduler.now + int(RETRY_DEADLINE * SECOND)
        while scheduler.now < until:
            scheduler.sleep(min(5 * SECOND, until - scheduler.now))
            if not self._bucket.weather.down:
                return
        scheduler.log(f"store down {call} {key}")
        raise StoreUnavailableError(f"{call} {key}: no answer in {RETRY_DEADLINE:g} s")

    def _wait_while_throttled(self, call: str, key: str) -> None:
        scheduler = self._bucket.scheduler
        for attempt in range(8):
            scheduler.sleep(int(scheduler.rng.uniform(0.05, 0.2) * 2**attempt * SECOND))
            if scheduler.rng.random() >= self._bucket.weather.throttled:
                return
        scheduler.log(f"store slow down {call} {key}")
        raise StoreUnavailableError(f"{call} {key}: SlowDown")


def _who() -> str:
    me = current()
    return me.process.name if me is not None else "outside"


def _key(upload: str) -> str:
    return split_handle(upload)[0]


def as_store(store: BucketStore) -> ObjectStore:
    """For the type checker: it is one."""
    return store

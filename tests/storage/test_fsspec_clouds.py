"""What file systems of servers do that the one in memory does not."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    ConfigError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UploadGoneError,
)
from offloader.storage.fsspec import FsspecStore

Open = Callable[..., FsspecStore]


class Cloud(MemoryFileSystem):
    """Behaves as one of them where a test says so."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.before_reading: list[Callable[[], object]] = []
        self.written = self.failing = ""
        self.error: Exception | None = None

    def _may_fail(self, what: str) -> None:
        if self.error is not None and what == self.failing:
            raise self.error

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._may_fail("write")
        super().pipe_file(path, value, mode)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        self._may_fail("read")
        if self.before_reading:
            self.before_reading.pop()()
        return bytes(super().cat_file(path, start, end))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self._may_fail("look")
        return dict(super().info(path))

    def find(self, path: str, *_: Any, **options: Any) -> Any:
        self._may_fail("list")
        return super().find(path, **options)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def opened(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a store whose file system is `cloud`."""

    def open_it(protocol: str, **options: str) -> FsspecStore:
        monkeypatch.setattr(fsspec, "url_to_fs", lambda url, **_: (cloud, f"/{uuid.uuid4().hex}/root"))
        return FsspecStore(f"{protocol}://bucket/root", options)

    return open_it


def test_an_object_that_is_replaced_while_it_is_read_is_read_again(cloud: Cloud, opened: Open) -> None:
    store = opened("memory")
    for before, after in [(b"short", b"much longer"), (b"much longer", b"short"), (b"same size", b"size same")]:
        store.put("k", before)
        cloud.before_reading.append(partial(store.put, "k", after))
        assert store.read("k") == (after, store.stat("k"))


def test_an_object_that_is_always_replaced_is_unavailable(cloud: Cloud, opened: Open) -> None:
    store = opened("memory")
    store.put("k", b"x")
    cloud.before_reading.extend([lambda: store.put("k", uuid.uuid4().bytes)] * 100)
    with pytest.raises(StoreUnavailableError, match="replaced"):
        store.read("k")


def test_a_body_that_is_cut_short_is_read_again(cloud: Cloud, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store, cuts = opened("memory"), [3, 0, 9]
    store.put("k", b"all of it")
    monkeypatch.setattr(cloud, "cat_file", lambda *_, **__: b"all of it"[: cuts.pop(0)])
    assert store.read("k")[0] == b"all of it"
    monkeypatch.setattr(cloud, "cat_file", lambda *_, **__: b"all")
    with pytest.raises(StoreUnavailableError, match="bytes"):
        store.read("k")


def test_nothing_is_listed_below_an_object(opened: Open) -> None:
    store = opened("memory")
    store.put("a", b"x")
    assert list(store.list("a/")) == []
    assert list(store.list("a")) == [("a", 1)]


class ByStatusError(Exception):
    def __init__(self, status: int | str) -> None:
        super().__init__("the server\nsays no")
        self.code = status


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (PermissionError("no"), AccessDeniedError, "credentials"),
        (ByStatusError(401), AccessDeniedError, "credentials"),
        (FileNotFoundError("b/bucket/o"), BucketNotFoundError, "storage.root"),
        (ByStatusError("404"), BucketNotFoundError, "storage.root"),
        (ByStatusError(400), FatalError, "storage.options"),
        (ByStatusError(503), OutcomeUnknownError, "says no"),
        (TimeoutError(), OutcomeUnknownError, "TimeoutError"),
    ],
)
def test_what_a_file_system_raises_becomes_one_line(
    cloud: Cloud, opened: Open, error: Exception, expected: type[OffloadError], text: str
) -> None:
    store = opened("memory")
    cloud.error, cloud.failing = error, "write"
    for call in (lambda: store.put("k", b"x", if_absent=True), lambda: store.begin("k")):
        with pytest.raises(expected, match=text) as caught:
            call()
        assert type(caught.value) is expected
        assert "\n" not in str(caught.value)
    cloud.failing = "list"
    with pytest.raises(StoreUnavailableError if expected is OutcomeUnknownError else expected, match=text):
        list(store.list())


def test_a_write_that_cannot_be_looked_at_may_have_happened(cloud: Cloud, opened: Open) -> None:
    store = opened("memory")
    cloud.error, cloud.failing = ByStatusError(503), "look"
    with pytest.raises(OutcomeUnknownError):
        store.put("k", b"token", if_absent=True)
    cloud.failing = "read"
    with pytest.raises(OutcomeUnknownError):
        store.put("k", b"token", if_absent=True)
    cloud.error = None
    assert store.put("k", b"token", if_absent=True) is not None
    upload = store.begin("gone")
    store.abort(upload)
    with pytest.raises(UploadGoneError):
        store.put_part(upload, 1, 0, b"", 0)


def test_options_are_given_as_what_they_mean(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def opening(url: str, **options: Any) -> tuple[Cloud, str]:
        given.update(options)
        return cloud, "/root"

    monkeypatch.setattr(fsspec, "url_to_fs", opening)
    FsspecStore("memory://b/p", {"anon": "True", "account_name": "123", "blocksize": "7"})
    asked = {name: given[name] for name in ("anon", "account_name", "blocksize")}
    assert asked == {"anon": True, "account_name": "123", "blocksize": 7}
    with pytest.raises(ConfigError, match=r"storage\.options\.timeout"):
        FsspecStore("memory://b/p", {"timeout": "soon"})


def test_what_goes_wrong_while_opening_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(url: str, **_: Any) -> None:
        raise ConnectionError("no\nname server")

    monkeypatch.setattr(fsspec, "url_to_fs", refusing)
    with pytest.raises(StoreUnavailableError, match="no name server"):
        FsspecStore("memory://b/p")

"""Connections are opened when they are first used, once, and closed in the reverse order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offloader.config import Config
from offloader.errors import ConfigError
from offloader.runtime.connections import Dependencies, Runtime
from tests.config.texts import BASE

from .support import runtime_of


class Events(list[str]):
    """What was opened and closed, in order."""

    def opener(self, name: str) -> Callable[..., Any]:
        def opened(*_: object) -> Any:
            self.append(f"{name} opened")
            return SimpleNamespace(close=lambda: self.append(f"{name} closed"))

        return opened

    def runtime(self) -> Runtime:
        pair = self.opener("tree"), self.opener("bookies")
        return runtime_of(
            BASE,
            store=self.opener("store"),
            admin=self.opener("admin"),
            subscriptions=self.opener("subscriptions"),
            bookkeeper=lambda *_: (pair[0](), pair[1]()),
        )


def test_nothing_is_opened_before_it_is_used_and_each_only_once() -> None:
    events = Events()
    with events.runtime() as runtime:
        assert events == []
        assert runtime.store is runtime.store
        assert runtime.bookkeeper() is runtime.bookkeeper(5)
        assert events == ["store opened", "tree opened", "bookies opened"]


def test_what_was_opened_last_is_closed_first() -> None:
    events = Events()
    with events.runtime() as runtime:
        _ = runtime.admin, runtime.bookkeeper(), runtime.subscriptions
        events.clear()
    assert events == ["subscriptions closed", "bookies closed", "tree closed", "admin closed"]


def test_a_child_shares_store_and_admin_and_closes_only_what_it_opened() -> None:
    events = Events()
    with events.runtime() as runtime:
        runtime.bookkeeper()
        with runtime.child() as child:
            assert child.store is runtime.store
            assert child.admin is runtime.admin
            assert child.bookkeeper() is not runtime.bookkeeper()
            events.clear()
        assert events == ["bookies closed", "tree closed"]


def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    events = Events()

    def fails() -> None:
        raise OSError("broken")

    runtime = events.runtime()
    assert runtime.store
    runtime.closing(SimpleNamespace(close=fails))
    with pytest.raises(OSError, match="broken"):
        runtime.close()
    assert events == ["store opened", "store closed"]


def test_a_file_is_read_when_the_configuration_is_first_used(tmp_path: Path) -> None:
    path = tmp_path / "offloader.yaml"
    runtime = Runtime(path)
    path.write_text(BASE)
    assert runtime.config.application == Config.parse(BASE, {}).application
    with pytest.raises(ConfigError, match="--config FILE"):
        _ = Runtime(None).store


def test_without_a_metadata_service_bookkeeper_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"pulsar\.metadataServiceUri: needed"):
        runtime_of(BASE, bookkeeper=Dependencies.bookkeeper).bookkeeper()

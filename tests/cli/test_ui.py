"""`offloader ui` serves the archive's pages until it is stopped, and to nobody who may not look."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import httpx
import pytest

from offloader.cli.ui import impatient
from offloader.pages.server import WebServer
from offloader.storage.settings import StoreSettings

IMPATIENT = {"retry_deadline": "8", "read_timeout": "8", "connect_timeout": "4"}

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch):
    """Runs it, asks it for something, and stops it. Returns what was asked for."""
    replies: list[httpx.Response] = []
    handlers: dict[int, Callable[[int | None, FrameType | None], object]] = {}

    class Asked(WebServer):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)
            threading.Thread(target=self._ask).start()

        def _ask(self) -> None:
            replies.append(httpx.get(self.url + "/", trust_env=False))
            handlers[signal.SIGTERM](None, None)

    monkeypatch.setattr("offloader.pages.server.WebServer", Asked)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    return replies


def test_it_shows_the_archive_until_it_is_stopped(line, stopped) -> None:
    line.root()
    line.archive.claim(1, 0)
    result = line.run("ui", "--listen", "127.0.0.1:0")
    assert result.exit_code == 0, result.output
    assert "showing memory://" in result.stderr
    assert stopped[0].status_code == 200
    assert "public" in stopped[0].text


def test_with_a_token_nobody_else_looks(line, stopped, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    result = line.run("ui", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    assert result.exit_code == 0, result.output
    assert stopped[0].status_code == 401
    assert TOKEN not in result.output


def test_bad_input_is_one_line(line, tmp_path: Path) -> None:
    assert line.error("ui", "--listen", "here").startswith("--listen: 'here' is no address")
    assert "a token is needed" in line.error("ui", "--listen", "0.0.0.0:0")
    missing = tmp_path / "none"
    assert line.error("ui", "--token-file", str(missing)) == (
        f"--token-file: {missing} cannot be read: No such file or directory"
    )
    (tmp_path / "short").write_text("short")
    assert "it can be guessed" in line.error("ui", "--token-file", str(tmp_path / "short"))


def test_whoever_looks_does_not_wait_for_a_store_as_an_offload_does() -> None:
    for root in ("s3://bucket", "gs://bucket", "webhdfs://namenode:9870/x"):
        patient = StoreSettings(root, options=(("read_timeout", "60"),))
        assert dict(impatient(patient).options) == {**IMPATIENT, "read_timeout": "60"}
    for root in ("file:///x", "sftp://host/x"):
        assert impatient(StoreSettings(root)) == StoreSettings(root)

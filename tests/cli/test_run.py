"""`run` hands over to the application and passes its exit code on."""

from __future__ import annotations

import signal

import pytest

from offloader.errors import OvertakenError
from offloader.offload import application as module


class FakeApplication:
    """Notes how it was made; `answer` is its exit code or its error."""

    answer: int | Exception = 0
    made: tuple = ()

    def __init__(self, config, *, until_caught_up, timeout) -> None:
        FakeApplication.made = (config.application, until_caught_up, timeout)
        self.unfinished = ["persistent://public/default/slow: not there yet"] if self.answer == 2 else []

    def run(self) -> int:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "Application", FakeApplication)
    monkeypatch.setattr(FakeApplication, "answer", 0)
    return FakeApplication


def test_until_stopped(line, fake) -> None:
    assert line.ok("run") == ""
    assert fake.made == ("app", False, None)


def test_until_caught_up_names_what_is_left(line, fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "answer", 2)
    result = line.run("run", "--until-caught-up", "--timeout", "2m")
    assert fake.made == ("app", True, 120.0)
    assert (result.exit_code, result.stderr) == (2, "persistent://public/default/slow: not there yet\n")


def test_overtaken(line, fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "answer", OvertakenError("another process owns the journal of app now"))
    result = line.run("run")
    assert (result.exit_code, result.stderr) == (3, "error: another process owns the journal of app now\n")

"""`offloader gateway`: how the process ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from offloader.gateway.application import GatewayApplication


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("left", "exits"), [(0, []), (2, [0])])
def test_threads_that_hang_do_not_keep_the_process(
    line, left: int, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python waits for them at its end; what can be written is written by then."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(GatewayApplication, "run", lambda self: setattr(self, "left", left))
    line.root()
    line.ok("gateway")
    assert ended == exits

"""What is done again and again is done again whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from offloader.errors import OffloadError, StoreUnavailableError
from offloader.gateway.application import run_every


def test_a_round_that_nobody_foresaw_is_told_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        rounds, enough = list[int](), asyncio.Event()

        async def one() -> Sequence[OffloadError]:
            rounds.append(len(rounds))
            if len(rounds) == 1:
                raise KeyError("nobody foresaw it")
            if len(rounds) == 3:
                enough.set()
            return [StoreUnavailableError("not now")]

        going = asyncio.create_task(run_every(1, one))
        await asyncio.wait_for(enough.wait(), 20)
        going.cancel()

    asyncio.run(work())
    told = [(record.levelname, record.__dict__["see"]) for record in caplog.records]
    assert told[:2] == [("ERROR", "gateway-defect"), ("WARNING", "gateway-waits")]

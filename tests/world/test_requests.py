"""Somebody asks for something about a topic without traffic, which is looked at once a minute by itself."""

from __future__ import annotations

import pytest

from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind
from offloader.model import GapKind, Position, TopicName
from tests.world.application import Setup
from tests.world.world import World, live

T = TopicName.parse("public/default/t")
POLL = 5  # seconds, as spark.trigger
SOON = 2 * POLL  # the request is found, and work is done


@pytest.mark.parametrize("kind", [RequestKind.RELEASE, RequestKind.CLOSE])
def test_nobody_waits_for_a_look_that_was_due_anyway(kind: RequestKind) -> None:
    def scenario(world: World) -> None:
        world.begin(T)
        world.produce(T, 5)
        world.sleep(1_200)
        assert world.at_rest()
        place = world.last(T)
        if kind is RequestKind.CLOSE:  # up to where the ledger ends: consumers get less
            place = world.cluster.add_hidden(T, GapKind.ABORTED)
        assert place is not None
        assert world.app.context is not None
        request = Request(kind, T, world.app.context.clock_ms(), position=Position(0, *place))
        name = requests.submit(world.bucket.plain, "app", request, lambda: "it")
        world.until(lambda: requests.outcome_of(world.bucket.plain, "app", name) is not None, SOON, step=0.1)
        outcome = requests.outcome_of(world.bucket.plain, "app", name)
        assert outcome is not None
        assert outcome.ok, outcome.message

    live(scenario, setup=Setup(roll="600s", poll_ms=1_000 * POLL))

"""Gateways are killed and paused while four consumers share a subscription: nothing is lost, nothing that was confirmed
as durable is forgotten."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest

from integration.gateways import GatewayProgram, Taken, Taking, confirming_consumer, stock_consumer, until
from offloader.cursors.core.cursor import Cursor
from offloader.cursors.log import CursorLog
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.metadata.layout import subscription_folder
from offloader.model import Position
from offloader.storage.open import open_store
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.storage.servers import ACCESS_KEY, REGION, SECRET_KEY, S3Server

ROUNDS = int(os.environ.get("OFFLOADER_GATEWAY_KILLS", "3"))
GATEWAYS, PER_ROUND, LEDGER, SUBSCRIPTION = 2, 150, 10, "s"

pytestmark = pytest.mark.timeout(7200)


def is_kept(entry: int) -> bool:
    """Nobody acknowledges these."""
    return entry % 7 == 0


class Ground:
    """A bucket with a topic that grows, and the gateways before it."""

    def __init__(self, server: S3Server, folder: Path, stack: ExitStack) -> None:
        settings = server.settings(server.fresh_root())
        self.store = open_store(settings)
        stack.callback(self.store.close)
        self.archive = Archive(self.store)
        self.archive.claim(LEDGER)
        self.entries = 0
        storage = {"root": settings.root, "endpoint": server.url, "region": REGION}
        environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        self.gateways = [GatewayProgram(folder / str(number), storage, environment) for number in range(GATEWAYS)]
        for gateway in self.gateways:
            stack.callback(gateway.end)

    def grow(self) -> None:
        first, self.entries = self.entries, self.entries + PER_ROUND
        self.archive.add([Stored(LEDGER, entry, message(f"m{entry}")) for entry in range(first, self.entries)])

    def owner(self) -> GatewayProgram | None:
        """Whose the topic is by its newest claim."""
        claim = ClaimLog(self.store, lambda: "reader").newest(TOPIC)
        return next((one for one in self.gateways if claim is not None and claim.address.url == one.url), None)

    def claims(self) -> int:
        return ClaimLog(self.store, lambda: "reader").newest_of_all().get(TOPIC, -1)

    def acknowledged(self) -> set[int]:
        """What the bucket says."""
        log = CursorLog(self.store, subscription_folder(TOPIC, SUBSCRIPTION), lambda: "reader")
        found = log.newest()
        if found is None:
            return set()
        cursor = Cursor(found.record.marker)
        for key, piece in log.pieces(cursor.named.items()).items():
            cursor.swap_in(key, piece)
        return {entry for entry in range(self.entries) if cursor.is_acknowledged(Position(0, LEDGER, entry))}


@pytest.fixture(params=["moto", pytest.param("versitygw", marks=pytest.mark.versitygw)])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    with ExitStack() as stack:
        yield Ground(request.getfixturevalue(request.param), tmp_path, stack)


def test_killed_and_paused_gateways_lose_nothing_and_forget_nothing_that_was_confirmed(ground: Ground) -> None:
    ground.grow()
    for gateway in ground.gateways:
        gateway.start()
    urls = [gateway.url for gateway in ground.gateways]
    taken = Taken(is_kept)
    consumers = [
        making(order, str(TOPIC), SUBSCRIPTION)
        for making, order in itertools.product((stock_consumer, confirming_consumer), (urls, urls[::-1]))
    ]
    choice = random.Random(14)
    with Taking(taken, *consumers):
        until(lambda: taken.all_of()[2], "something was confirmed")
        for number in range(ROUNDS):
            _round(ground, taken, choice, kills=number % 2 == 0)
    received, acknowledged, confirmed = taken.all_of()
    print(f"{ROUNDS} rounds: {ground.entries} entries, {taken.deliveries} deliveries, {len(confirmed)} confirmed")
    for gateway in ground.gateways:
        gateway.stop()
    assert received == set(range(ground.entries))
    assert confirmed <= ground.acknowledged() <= acknowledged
    _the_rest_comes(ground, acknowledged, confirmed)


def _round(ground: Ground, taken: Taken, choice: random.Random, *, kills: bool) -> None:
    """New entries come while the topic's gateway is killed or paused; all of them arrive."""
    victim, claims = ground.owner(), ground.claims()
    assert victim is not None
    ground.grow()
    so_far = len(taken.all_of()[2])
    until(lambda: len(taken.all_of()[2]) > so_far + choice.randrange(30), "some more was confirmed")
    if kills:
        victim.kill()
    else:
        victim.suspend()
    until(lambda: ground.claims() > claims, "another gateway has the topic")
    if kills:
        victim.start()
    else:
        victim.resume()
    wanted = {entry for entry in range(ground.entries) if not is_kept(entry)}
    until(lambda: wanted <= taken.all_of()[1], "all was acknowledged")
    assert taken.all_of()[2] <= ground.acknowledged()


def _the_rest_comes(ground: Ground, acknowledged: set[int], confirmed: set[int]) -> None:
    """To a new consumer: what nobody has acknowledged, and nothing that was confirmed."""
    ground.gateways[0].start()
    client = pulsar.Client(ground.gateways[0].url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(str(TOPIC), SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
    rest = {entry for entry in range(ground.entries) if entry not in ground.acknowledged()}
    got = {consumer.receive(60_000).message_id().entry_id() for _ in rest}
    assert got == rest
    assert set(range(ground.entries)) - acknowledged <= got
    assert not got & confirmed
    client.close()

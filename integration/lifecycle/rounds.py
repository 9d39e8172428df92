"""Rounds in which a broker stands still while a ledger is deleted, and then goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from integration.lifecycle.ground import Ground, ids, list_of, sets
from integration.lifecycle.looking import Looking
from integration.lifecycle.proxy import Freeze
from integration.processes import HANGS
from integration.pulsar.waiting import until
from offloader.lifecycle.deletion.guarded import GuardedOutcome
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.model import TopicName

BEFORE, SENT = 15, 25  # the new ledger takes the last five


class Session(Enum):
    """What becomes of the broker's session while it stands still."""

    LASTS = "its write was on its way, and arrives"
    EXPIRES = "its session expires, and its write is lost"


@dataclass
class Paused:
    """A topic whose broker stands still, between the creation of a ledger and the update of the list."""

    topic: TopicName
    made: int


@dataclass(frozen=True)
class Outcome:
    """`told`: messages that the producer was told are safe."""

    sent: int
    told: int
    read: int
    outcome: str

    @property
    def lost(self) -> int:
        return self.told - self.read


Deletion = Callable[[Paused], Callable[[], str]]
"""Looks, while the broker can still be asked, and gives what deletes while it stands still: its outcome's name."""


def paused_round(
    ground: Ground, look: Deletion, session: Session = Session.LASTS, topic: TopicName | None = None
) -> Outcome:
    """A broker rolls a ledger over, stands still before it lists the new one, and goes on after the deletion. 25
    messages are sent meanwhile."""
    ground.cluster.all_back()
    topic = topic or ground.new_topic("paused")
    first = ground.produce(topic, BEFORE)
    owner, path = ground.owner(topic), list_of(topic)
    told: list[int] = []
    done = threading.Event()

    def acknowledged(number: int) -> Callable[..., None]:
        def heard(result: object, _: object) -> None:
            if str(result).endswith("Ok"):
                told.append(number)
            if len(told) == SENT - BEFORE:
                done.set()

        return heard

    def rolls(asked: tuple) -> bool:
        value = sets(asked, path)
        return value is not None and not set(ids(value)) <= set(ground.listed(topic))

    with ground.client(owner) as client, ground.cluster.proxy.freezing(rolls) as frozen:
        producer = client.create_producer(str(topic), batching_enabled=False, send_timeout_millis=0)
        for number in range(BEFORE, SENT):
            producer.send_async(f"{topic.name} {number}".encode(), acknowledged(number))
        (made,) = set(ids(sets(frozen.wait(), path) or b"")) - set(ground.listed(topic))
        delete = look(Paused(topic, made))
        owner.pause()
        try:
            outcome = delete()
            if session is Session.EXPIRES:
                _expire(frozen)
        finally:
            owner.resume()
        frozen.release()
        done.wait(HANGS)
        producer.close()
    ground.unload(topic)
    until(lambda: ground.load(topic))
    found = [data for _, _, data in ground.read(topic)]
    wanted = {*first, *(f"{topic.name} {number}".encode() for number in told)}
    assert len(found) >= len(set(found))
    return Outcome(SENT, len(wanted), len(wanted & set(found)), outcome)


def _expire(frozen: Freeze) -> None:
    link = frozen.link
    assert link is not None
    link.doomed = True
    frozen.drop()
    assert link.ended.wait(HANGS), "the session did not end"


def rewriting(looking: Looking) -> Deletion:
    """The suspect ledger, on demand, under a guard that writes the list anew."""

    def look(paused: Paused) -> Callable[[], str]:
        verdict = looking.verdict(paused.made)
        assert verdict.standing is Standing.SUSPECT, verdict
        return lambda: looking.delete(verdict, on_demand=True).outcome.name

    return look


def checking(looking: Looking, ledgers: list[int]) -> Deletion:
    """Certain ones of the same topic, under a guard that checks the list."""

    def look(_: Paused) -> Callable[[], str]:
        verdicts = [looking.verdict(ledger) for ledger in ledgers]
        assert all(one.standing is Standing.CERTAIN for one in verdicts), verdicts
        return lambda: ", ".join({looking.delete(one).outcome.name for one in verdicts})

    return look


def plainly(looking: Looking) -> Deletion:
    """The suspect ledger, without a guard: what a grace period alone comes to."""

    def look(paused: Paused) -> Callable[[], str]:
        path = looking.tree.path_of(paused.made)
        node = looking.tree.nodes.get(path, latest=True)
        assert node is not None
        version = node.version

        def delete() -> str:
            looking.tree.nodes.delete(path, version)
            return GuardedOutcome.DELETED.name

        return delete

    return look

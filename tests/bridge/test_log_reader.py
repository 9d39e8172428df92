"""Bridge logs for those who only read: what was read once is not read again."""

from __future__ import annotations

import itertools

import pytest

from offloader.bridge import log
from offloader.bridge.core.rounds import BridgedLedger, BridgeHead, BridgeState
from offloader.bridge.log import BridgeLog, BridgeReader
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import FaultyStore, StoreFaults

TOPICS = [TopicName("tenant", "ns", f"topic-{number:03}") for number in range(130)]
ROUNDS = 3


def written() -> MemoryStore:
    store, tokens = MemoryStore(), itertools.count()
    log = BridgeLog(store, lambda: str(next(tokens)))
    for topic in TOPICS:
        head, state = BridgeHead(0, None), BridgeState(topic, 0)
        for number in range(ROUNDS):
            ledger = BridgedLedger(number, 5, 9, f"00000000-0000-4000-8000-{number:012}")
            for step in (lambda s, ledger=ledger: s.began((ledger,), "s3://b", "x", 1), _built, lambda s: s.proven(1)):
                state = step(state)
                head = log.append(head, state)
    return store


def _built(state: BridgeState) -> BridgeState:
    assert state.round is not None
    return state.built(state.round.ledgers)


@pytest.mark.parametrize("most", [log.MOST_LEDGERS, 10])
def test_the_second_look_at_many_topics_asks_only_for_what_is_new(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MOST_LEDGERS", most)
    faults = StoreFaults([])
    reader = BridgeReader(FaultyStore(written(), faults))
    looks = []
    for _ in range(2):
        before = faults.calls["read"]
        assert all(len(reader.of(topic).ledgers) == ROUNDS for topic in TOPICS)
        looks.append(faults.calls["read"] - before)
    assert (looks[1] == len(TOPICS)) is (most > 10), "one that has room for too few reads them again"

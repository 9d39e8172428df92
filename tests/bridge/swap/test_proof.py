"""What is proven through the broker, and what is not."""

from __future__ import annotations

import pytest

from offloader.bridge.core.rounds import BridgedLedger
from offloader.bridge.core.swap_steps import LedgersProven, NotProven
from offloader.bridge.objects import BridgedObjects
from offloader.bridge.proof import BrokerProof
from offloader.errors import DamagedObjectError, TopicMovedError
from offloader.model import GapKind
from tests.bridge.swap.support import TOPIC, SwapTown


@pytest.fixture
def town() -> SwapTown:
    return SwapTown(ledgers=0)


def fill(town: SwapTown, entries: str) -> BridgedLedger:
    """A ledger: `m` a message, `h` an entry that no reader gets, `w` one that should arrive and does not."""
    for number, kind in enumerate(entries):
        data = f"{kind}{number}".encode()
        if kind == "m":
            town.cluster.produce(TOPIC, data)
        elif kind == "h":
            town.cluster.add_hidden(TOPIC, GapKind.MARKER, data)
        else:
            town.cluster.add_withheld(TOPIC, data)
    town.cluster.roll(TOPIC)
    return town.built(town.closed[-1])


def prove(town: SwapTown, *ledgers: BridgedLedger) -> LedgersProven | NotProven:
    return BrokerProof(town.cluster.source, 0.01).prove(TOPIC, ledgers, BridgedObjects(town.store))


@pytest.mark.parametrize(
    ("entries", "first", "last"),
    [("m", 0, 0), ("mmm", 0, 2), ("hmm", 1, 2), ("mmh", 0, 1), ("hhmhh", 2, 2), ("m" + 20 * "h", 0, 0)],
)
def test_the_first_and_the_last_entry_that_readers_get(town: SwapTown, entries: str, first: int, last: int) -> None:
    one = fill(town, entries)
    fill(town, "mm")
    said = f"ledger {one.ledger}: entries {first} and {last} of 0 to {one.last} arrive as we have them"
    assert prove(town, one) == LedgersProven((said,))


def test_a_ledger_without_an_entry_for_readers_is_read_by_the_broker_to_say_so(town: SwapTown) -> None:
    one = fill(town, "hhh")
    found = prove(town, one)
    assert isinstance(found, LedgersProven)
    assert "no entry is for readers" in found.evidence[0]


@pytest.mark.parametrize("entries", ["www", "wm", "mw"])
def test_an_entry_that_should_arrive_and_does_not(town: SwapTown, entries: str) -> None:
    one = fill(town, entries)
    found = prove(town, one)
    # Of the first one that arrives nobody can tell that one before it should have.
    assert isinstance(found, NotProven) == (entries != "wm")


@pytest.mark.parametrize(
    "entries", ["mwh", "mhwhh", "mmw" + 10 * "h", 20 * "m" + "w" + 15 * "h", 45 * "m" + 80 * "h" + "w" + 174 * "h"]
)
def test_a_message_that_does_not_arrive_is_found_before_a_hidden_end_too(town: SwapTown, entries: str) -> None:
    """A broker that has fallen silent, or is slow, must not pass for one that has nothing more to say."""
    one = fill(town, entries)
    found = prove(town, one)
    assert isinstance(found, NotProven)
    assert "has not arrived through the broker" in found.why


def test_of_many_ledgers_the_first_that_fails_is_told(town: SwapTown) -> None:
    ledgers = [fill(town, "mm"), fill(town, "ww"), fill(town, "mm")]
    found = prove(town, *ledgers)
    assert isinstance(found, NotProven)
    assert found.why.startswith(f"ledger {ledgers[1].ledger}: entry 0 has not arrived")


def test_a_broker_that_goes_away_is_no_failure_of_the_object(town: SwapTown) -> None:
    one = fill(town, "mm")
    town.cluster.faults.add("source.read", lambda: TopicMovedError("unloaded"))
    with pytest.raises(TopicMovedError):
        prove(town, one)


def test_a_long_ledger_is_looked_up_in_its_object_entry_by_entry(town: SwapTown) -> None:
    one = fill(town, "m" * 101)
    objects = BridgedObjects(town.store)
    assert [objects.entry(one, entry) for entry in (0, 1, 57, 100)] == [b"m0", b"m1", b"m57", b"m100"]
    with pytest.raises(DamagedObjectError, match="no entry 101"):
        objects.entry(one, 101)


@pytest.mark.parametrize("hidden", [4000, 4096, 5000])
def test_a_ledger_whose_end_is_one_long_aborted_transaction_is_proven(town: SwapTown, hidden: int) -> None:
    one = fill(town, "m" + hidden * "h")
    fill(town, "mm")
    assert isinstance(prove(town, one), LedgersProven)


@pytest.mark.parametrize("hidden", [63, 64, 200])
def test_a_ledger_of_which_no_message_arrives_is_not_proven_by_its_hidden_begin(town: SwapTown, hidden: int) -> None:
    one = fill(town, hidden * "h" + 10 * "w")
    fill(town, "mm")
    assert isinstance(prove(town, one), NotProven)


def test_a_long_ledger_without_an_entry_for_readers_is_read_whole_to_say_so(town: SwapTown) -> None:
    one = fill(town, 200 * "h")
    found = prove(town, one)
    assert isinstance(found, LedgersProven)
    assert "has read all of them" in found.evidence[0]

"""The ledgers of a round, as the topic's record has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offloader.bridge.core.rewrite import RecordedLedger, RecordedTopic
from offloader.bridge.core.swap_steps import LeftOut
from offloader.metadata.bridges import BridgedLedger


@dataclass(frozen=True, slots=True)
class SortedOut:
    """The ledgers of a round as a record has them. `ours`: with their context. `plain`: without any. `to_come`: from
    the first one on that cannot have a context now, whatever is the matter with the others; `why` it cannot. `wrong`:
    why the round must not be bridged."""

    ours: tuple[BridgedLedger, ...]
    plain: tuple[BridgedLedger, ...]
    left_out: Mapping[int, LeftOut]
    to_come: tuple[BridgedLedger, ...] = ()
    why: str = ""
    wrong: str = ""


def sort_out(ledgers: tuple[BridgedLedger, ...], topic: RecordedTopic) -> SortedOut:
    """See `SortedOut`."""
    ours: list[BridgedLedger] = []
    plain: list[BridgedLedger] = []
    left_out: dict[int, LeftOut] = {}
    wrong = ""
    for place, one in enumerate(ledgers):
        listed = topic.ledgers.get(one.ledger)
        if listed is None:
            left_out[one.ledger] = LeftOut.OFF_THE_LIST
        elif why := _hindrance(listed, topic):
            return SortedOut(tuple(ours), tuple(plain), left_out, ledgers[place:], why, wrong)
        elif listed.uuid == one.uuid:
            ours.append(one)
        elif listed.uuid is not None:
            left_out[one.ledger] = LeftOut.STOCK
        elif _differs(one, listed):
            wrong = (
                f"ledger {one.ledger} has {listed.entries} entries of {listed.size} bytes in the topic's list, and "
                f"{one.last + 1} of {one.length} in the archive"
            )
        else:
            plain.append(one)
    return SortedOut(tuple(ours), tuple(plain), left_out, wrong=wrong)


def names(topic: RecordedTopic, one: BridgedLedger) -> bool:
    """Whether the record has the context of this very object."""
    listed = topic.ledgers.get(one.ledger)
    return listed is not None and listed.uuid == one.uuid


def begun_offload(ledger: int) -> str:
    """What is said of a ledger that brokers have begun to offload."""
    return (
        f"brokers have begun to offload ledger {ledger} by themselves, and have not ended it: pulsar-admin topics "
        "offload has them do it"
    )


def _hindrance(listed: RecordedLedger, topic: RecordedTopic) -> str:
    """Why the ledger cannot have a context, nor those behind it before its turn is over."""
    if listed.uuid is not None and not listed.complete:
        return begun_offload(listed.ledger)
    if listed.ledger >= topic.first_unfit:
        return f"ledger {listed.ledger} is the last one of its topic, which brokers read from BookKeeper only"
    return ""


def _differs(one: BridgedLedger, listed: RecordedLedger) -> bool:
    sizes = {listed.size, one.length} - {0}  # 0: not known
    return listed.entries != one.last + 1 or len(sizes) > 1

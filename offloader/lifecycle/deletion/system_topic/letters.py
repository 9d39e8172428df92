"""Letters: a message that is to be consumed again later, or that is given up. Pure, no I/O.

Properties are those of Pulsar's Java client (`RetryMessageUtil`), so that either side reads the other's letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offloader.lifecycle.deletion.timing import DeletionTiming

WORKER = "ledger-deletion-worker"
RECONSUME_TIMES = "RECONSUMETIMES"
DELAY_TIME = "DELAY_TIME"
REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_ID_OLD = "ORIGIN_MESSAGE_IDY_TIME"
WHY = "offloader-why"  # for whoever reads the dead letters
LONGEST_WHY = 1_000
MOST_TIMES = 2**31 - 1
PUT_BACK_MS = 60_000  # after which a message comes again that was put back


@dataclass(frozen=True, slots=True)
class FailedLetter:
    """What is sent of a message that failed, before it is acknowledged. `delay` in ms; None: to the dead letters."""

    properties: Mapping[str, str]
    delay: int | None


def times_of(properties: Mapping[str, str]) -> int:
    """How often it was sent again. Others may say anything: what is no such number is none."""
    return min(_number(properties.get(RECONSUME_TIMES, "")), MOST_TIMES)


def early_by(properties: Mapping[str, str], published: int, now: int, timing: DeletionTiming) -> int:
    """For how many ms a letter must still wait; 0: it is due. Brokers that do not delay deliver it at once.

    What comes from the future, or would wait for longer than any letter of ours, is due: others may say anything."""
    return max(published + _delay_of(properties, timing) - now, 0) if published <= now else 0


def _delay_of(properties: Mapping[str, str], timing: DeletionTiming) -> int:
    delay = _number(properties.get(DELAY_TIME, ""))
    return delay if delay <= timing.wait_after(MOST_TIMES) else 0


def _number(said: str) -> int:
    return int(said) if said.isascii() and said.isdigit() and len(said) < 20 else 0


def failed_letter(
    properties: Mapping[str, str], topic: str, message_id: str, redeliveries: int, why: str, timing: DeletionTiming
) -> FailedLetter:
    """What follows once a message has failed: as with Java's client it is tried once, and `max_tries` times more. The
    same bounds how often it came without an answer, beside those times when it came too early."""
    times = times_of(properties) + 1
    delay = timing.wait_after(times)
    found = {
        REAL_TOPIC: topic,
        REAL_SUBSCRIPTION: WORKER,
        ORIGIN_MESSAGE_ID: message_id,
        ORIGIN_MESSAGE_ID_OLD: message_id,
        **properties,
        RECONSUME_TIMES: str(min(times, MOST_TIMES)),
        DELAY_TIME: str(delay),
        WHY: why[:LONGEST_WHY],
    }
    early = _delay_of(properties, timing) // PUT_BACK_MS + 1
    last = times > timing.max_tries or redeliveries > timing.max_tries + early
    return FailedLetter(found, None if last else delay)

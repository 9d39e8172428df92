"""All that `offloader cost` tells, as one value. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from offloader.config.units import format_time
from offloader.model import TopicName
from offloader.operations.cost.plan import Cuts, PacedTopic, PolicyChange, changes, requests_a_month
from offloader.operations.cost.requests import (
    HOURS_A_MONTH,
    AskedFor,
    Idling,
    Requests,
    Serving,
    added,
    of_idle_hour,
    of_serving_hour,
    times,
)
from offloader.operations.cost.stored import Age, ByteClass, Listed, StillHeld, StoredSum, TopicLook

PATIENT_MS = 24 * 3_600_000  # between two looks of retention, which nobody notices
PATIENT_TRIGGER_MS = 30_000  # between two looks for requests


@dataclass(frozen=True)
class CostReport:
    """`topics`: all; `looked_into`: those whose catalogs were read, `share` of all segments. `uploading`: bytes of the
    parts of open segments. `unnamed`: bytes of data objects that no catalog counts, of the topics looked into."""

    heap: StoredSum
    namespaces: Mapping[str, StoredSum]
    topics: int
    looked_into: int
    share: float
    ages: Mapping[Age, int]
    uploading: int
    deleting: int
    unnamed: int
    monthly: Mapping[AskedFor, Requests]
    read_once: Requests
    copies: Mapping[str, int]
    held: Sequence[StillHeld] | None
    plan: Sequence[PolicyChange]

    @property
    def size(self) -> int:
        """All bytes in the store, also of what is not an object yet."""
        return sum(self.heap.size.values()) + self.uploading

    def on_bookies(self) -> int:
        """The bytes of the data, in as many copies as bookies keep of each namespace."""
        return sum(heap.size[ByteClass.DATA] * self.copies[name] for name, heap in self.namespaces.items())

    def held_on_bookies(self) -> tuple[int, int]:
        """What BookKeeper still has of the topics looked into, all copies; and how much of that is archived."""
        held = [(each, self.copies.get(each.topic.namespace, 1)) for each in self.held or ()]
        return sum(each.size * copies for each, copies in held), sum(each.archived * copies for each, copies in held)


def report(
    listed: Listed,
    found: Sequence[TopicLook],
    cuts: Mapping[TopicName, Cuts],
    idling: Idling | None,
    uploading: int,
    copies: Mapping[str, int],
    held: Sequence[StillHeld] | None,
    serving: Serving | None = None,
) -> CostReport:
    """`idling` None: a part of the archive, so that what an application asks for by itself is not told. `serving` None:
    no gateway."""
    heap = listed.total
    of_looked = sum(listed.segments.get(each.topic, 0) for each in found)
    share = of_looked / heap.objects[ByteClass.DATA] if heap.objects[ByteClass.DATA] else 1.0
    ages: Counter[Age] = Counter()
    for each in found:
        ages.update(each.ages)
    scale = 1 / share if share else 1
    offloading = times(added(requests_a_month(each.pace) for each in found), scale)
    idle = times(of_idle_hour(idling), HOURS_A_MONTH) if idling is not None else {}
    served = times(of_serving_hour(serving), HOURS_A_MONTH) if serving is not None else {}
    plan = changes([PacedTopic(cuts[each.topic], each.pace) for each in found])
    return CostReport(
        heap,
        listed.namespaces,
        heap.topics,
        len(found),
        share,
        {age: ages[age] for age in Age if ages[age]},
        uploading,
        sum(each.deleting for each in found),
        sum(max(0, listed.data.get(each.topic, 0) - each.kept) for each in found),
        added([offloading, idle, served]),
        _read_once(found, cuts, share),
        copies,
        held,
        [*(replace(each, saves=each.saves.times(scale)) for each in plan), *_of_looking(idling)],
    )


def _read_once(found: Sequence[TopicLook], cuts: Mapping[TopicName, Cuts], share: float) -> Requests:
    """To read everything takes a read for each part."""
    parts = sum(-(-each.kept // cuts[each.topic].part_size) for each in found)
    return Requests(reads=parts / share if share else parts)


def _of_looking(idling: Idling | None) -> Iterable[PolicyChange]:
    """An application looks for requests at each trigger, and retention at each topic that a policy is for."""
    if idling is None:
        return
    if idling.trigger_ms < PATIENT_TRIGGER_MS:
        yield _rarer(
            idling, replace(idling, trigger_ms=PATIENT_TRIGGER_MS), AskedFor.IDLE, "spark.trigger",
            idling.trigger_ms, PATIENT_TRIGGER_MS, "a command's request waits so long until it is seen",
        )  # fmt: skip
    if idling.retained and idling.deletion_interval_ms < PATIENT_MS:
        yield _rarer(
            idling, replace(idling, deletion_interval_ms=PATIENT_MS), AskedFor.RETENTION,
            "lifecycle.deletionInterval", idling.deletion_interval_ms, PATIENT_MS, "what is due goes so much later",
        )  # fmt: skip


def _rarer(idling: Idling, then: Idling, kind: AskedFor, setting: str, old: int, new: int, but: str) -> PolicyChange:
    saved = of_idle_hour(idling)[kind] + of_idle_hour(then)[kind].times(-1)
    values = f"{format_time(new)} instead of {format_time(old)}"
    return PolicyChange(setting, new // old, values, saved.times(HOURS_A_MONTH), but)

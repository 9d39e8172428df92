"""What brokers offload of a namespace by themselves, as a migration switches it off or on, and puts it back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from offloader.cli.command import FINDINGS, OK, CommandSession
from offloader.metadata.former_offload import TO_LEDGER_BASED, TO_STREAMING, FormerOffload, FormerOffloads
from offloader.model import TopicName
from offloader.offload.core.check import Verdict
from offloader.offload.core.namespace_policies import stock_offload

SIZE, SECONDS = "managedLedgerOffloadThresholdInBytes", "managedLedgerOffloadThresholdInSeconds"
NEVER = -1
PROPAGATES_MS = 5_000  # until every broker goes by a namespace's new policy
POLL = 0.5  # seconds

Applied = Mapping[str, Mapping[str, object]]
"""Offload policies as they apply, by topics' names."""


class Thresholds(NamedTuple):
    """Brokers offload from `size` bytes on and after `seconds`; negative: never; None: nothing is said of it."""

    size: int
    seconds: int | None


@dataclass(frozen=True)
class BrokersOffload:
    """Of these topics of a namespace. A topic may have offload policies of its own: each one's are looked at."""

    session: CommandSession
    namespace: str
    topics: Sequence[TopicName]

    def switch_off(self, *, keep: bool) -> int:
        """Brokers offload nothing more. Only when each topic has our subscription: that keeps it. `keep`: only say what
        they do. Returns an exit code."""
        applied = self._applied(self.topics)
        found = self._on(applied)
        if found and keep:
            self._say(
                f"brokers go on offloading topics of {self.namespace}, and what they offload is stored twice: "
                f"`offloader migrate to-streaming {self.namespace}`, or pulsar-admin namespaces set-offload-threshold",
                former=None,
            )
        if not found or keep:
            return OK
        self._set_never(applied)
        return self._still_on()

    def begin_way_back(self, threshold: int) -> None:
        """How they offload it now, in the bucket before that is changed: `undo` puts it back."""
        self._record(TO_LEDGER_BASED, self._now(self._applied(self.topics)), Thresholds(threshold, None))

    def switch_on(self, threshold: int) -> None:
        """The namespace's own offload, from so many bytes on."""
        self.session.admin.set_offload_threshold(self.namespace, threshold)
        text = f"brokers offload topics of {self.namespace} by themselves again, from {threshold} bytes on"
        self._say(text, threshold=threshold)

    def why_off(self) -> str:
        """Why nobody would offload some of the topics once they are let go of; empty: brokers offload each of them."""
        left = self._other_than(on=True)
        if not left:
            return ""
        return (
            f"brokers offload nothing of {_names(left)} by themselves: set their threshold (pulsar-admin namespaces "
            f"set-offload-threshold {self.namespace} --size 0) and managedLedgerOffloadDriver, or take away policies "
            "of topics themselves; --without-offload lets go nevertheless, and what is consumed then has no copy"
        )

    def as_before(self) -> None:
        """The namespace's own offload as it was before this migration, which can go on."""
        former = self._former.newest(self.namespace)
        if former is not None:
            self.session.admin.set_offload_threshold(self.namespace, former.size, former.seconds)

    def way_back_is_over(self) -> None:
        """All topics are let go of: what is set stays, and no later `undo` changes it."""
        former = self._former.newest(self.namespace)
        if former is not None and former.direction == TO_LEDGER_BASED and not former.over:
            self._former.record(replace(former, over=True))

    def put_back(self, let_go: Sequence[TopicName]) -> None:
        """As it was before the last migration, where nobody has changed it since. What was let go of brokers alone
        offload: for these it stays on."""
        former, application = self._former.newest(self.namespace), self.session.config.application
        if former is None or former.over:
            return
        if former.application != application:
            text = f"{former.application} has migrated {self.namespace}: give `migrate undo` with its configuration"
            self._say(f"brokers' offload stays as it is: {text}", threshold=None)
            return
        now = self._now(self._applied(self.topics))
        if not former.explains(*now):
            text = f"somebody has changed the offload threshold of {self.namespace} since the migration"
            self._say(f"brokers' offload stays as it is, {_told(now)}: {text}", threshold=None)
            return
        if let_go and not _is_on(former.size, former.seconds):
            self._say(
                f"brokers go on offloading topics of {self.namespace} by themselves: {_names(let_go)} are theirs; "
                f"`offloader migrate to-streaming {self.namespace}` takes all of them again",
                threshold=None,
            )
            return
        self.as_before()
        self._former.record(replace(former, over=True))
        told = _told(Thresholds(former.size, former.seconds))
        text = (
            f"brokers offload topics of {self.namespace} by themselves as before `migrate {former.direction}`: {told}"
        )
        if former.direction == TO_STREAMING and _is_on(former.size, former.seconds):
            text += f"; they are streamed, too, until `offloader migrate to-ledger-based {self.namespace}` lets go"
        self._say(text, threshold=former.size)

    @property
    def _former(self) -> FormerOffloads:
        return FormerOffloads(self.session.store, self.session.dependencies.new_token)

    def _record(self, direction: str, now: Thresholds, then: Thresholds) -> FormerOffload:
        """How brokers offload it now, and what they shall go by. The same command again finds what it has changed
        itself: what was before stays recorded."""
        application, at = self.session.config.application, self.session.dependencies.clock_ms()
        made = FormerOffload(self.namespace, application, direction, *now, *then, at)
        former = made.follows(self._former.newest(self.namespace))
        self._former.record(former)
        return former

    def _set_never(self, applied: Applied) -> None:
        """Of the namespace itself, where that is what switches it on."""
        own = self._own()
        by_time = any(_is_on(NEVER, _number(said.get(SECONDS))) for said in (own, *applied.values()))
        if _is_off(own.get(SIZE)) and (not by_time or _is_off(own.get(SECONDS))):
            return
        then = Thresholds(NEVER, NEVER if by_time else None)
        former = self._record(TO_STREAMING, self._now(applied), then)
        self.session.admin.set_offload_threshold(self.namespace, *then)
        text = f"brokers offload nothing more of {self.namespace} by themselves; before, from {former.size} bytes on"
        self._say(text, former={"Bytes": former.size, "Seconds": former.seconds})

    def _still_on(self) -> int:
        left = self._other_than(on=False)
        if not left:
            return OK
        self._say(
            f"brokers still offload {_names(left)} by policies of these topics themselves, and what they offload is "
            "stored twice: pulsar-admin topics remove-offload-policies",
            topics=[str(topic) for topic in left],
        )
        return FINDINGS

    def _other_than(self, *, on: bool) -> list[TopicName]:
        """The topics of which it is not so, when each broker should go by what was set."""
        clock, sleep = self.session.dependencies.clock_ms, self.session.dependencies.sleep
        until, left = clock() + PROPAGATES_MS, list(self.topics)
        while True:
            found = set(self._on(self._applied(left)))
            left = [topic for topic in left if (topic in found) is not on]
            if not left or clock() >= until:
                return left
            sleep(POLL)

    def _on(self, applied: Applied) -> list[TopicName]:
        """The topics that brokers offload by themselves, as all policies together apply to them."""
        checks = {name: stock_offload(self.namespace, said) for name, said in applied.items()}
        return [t for t in self.topics if (c := checks.get(t.partitioned_name)) and c.verdict is not Verdict.OK]

    def _applied(self, topics: Sequence[TopicName]) -> Applied:
        """By topics' names; partitions have the policies of their topic. A call for each."""
        one_of = {topic.partitioned_name: topic for topic in topics}
        return {name: self.session.admin.offload_policies(topic) for name, topic in one_of.items()}

    def _own(self) -> Mapping[str, object]:
        said = self.session.admin.namespace_policies(self.namespace).get("offload_policies")
        return said if isinstance(said, Mapping) else {}

    def _now(self, applied: Applied) -> Thresholds:
        """The namespace's own; where it has none, what its brokers' configuration makes of its topics."""
        own = self._own()
        size, seconds = (_threshold(name, own, applied) for name in (SIZE, SECONDS))
        return Thresholds(NEVER if size is None else size, seconds)

    def _say(self, text: str, **fields: object) -> None:
        self.session.output.line(text, {"message": text, "namespace": self.namespace, **fields})


def _threshold(name: str, own: Mapping[str, object], applied: Applied) -> int | None:
    number = _number(own.get(name))
    if number is not None:
        return number
    said = [_number(policies.get(name)) for policies in applied.values()]
    found = Counter(each for each in said if each is not None)
    on = Counter({each: count for each, count in found.items() if each >= 0})
    return (on or found).most_common(1)[0][0] if found else None


def _told(thresholds: Thresholds) -> str:
    size, seconds = thresholds
    if seconds is None or seconds < 0:
        return f"from {size} bytes on" if size >= 0 else "nothing"
    return f"after {seconds} s" if size < 0 else f"from {size} bytes on, or after {seconds} s"


def _is_on(size: int, seconds: int | None) -> bool:
    return size >= 0 or (seconds is not None and seconds >= 0)


def _is_off(value: object) -> bool:
    """Whether a policy says so, other than one that says nothing."""
    said = _number(value)
    return said is not None and said < 0


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))


def _names(topics: Sequence[TopicName]) -> str:
    more = f" and {len(topics) - 3} others" if len(topics) > 3 else ""
    return ", ".join(map(str, topics[:3])) + more

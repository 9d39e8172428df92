"""What brokers offload of a namespace by themselves, as a migration switches it off or on, and puts it back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offloader.cli.command import FINDINGS, OK, CommandSession
from offloader.metadata.former_offload import FormerOffload, FormerOffloads
from offloader.model import TopicName
from offloader.offload.core.check import Verdict
from offloader.offload.core.namespace_policies import stock_offload

TO_STREAMING, TO_LEDGER_BASED = "to-streaming", "to-ledger-based"
SIZE, SECONDS = "managedLedgerOffloadThresholdInBytes", "managedLedgerOffloadThresholdInSeconds"
NEVER = -1
PROPAGATES_MS = 5_000  # until every broker goes by a namespace's new policy
POLL = 0.5  # seconds


@dataclass(frozen=True)
class BrokersOffload:
    """Of these topics of a namespace. A topic may have offload policies of its own: each one's are looked at."""

    session: CommandSession
    namespace: str
    topics: Sequence[TopicName]

    def on(self) -> list[TopicName]:
        """The topics that brokers offload by themselves, as all policies together apply to them."""
        applied = self._applied()
        checks = {name: stock_offload(self.namespace, said) for name, said in applied.items()}
        return [topic for topic in self.topics if checks[topic.partitioned_name].verdict is not Verdict.OK]

    def switch_off(self, *, keep: bool) -> int:
        """Brokers offload nothing more. Only when each topic has our subscription: that keeps it. `keep`: only say what
        they do. Returns an exit code."""
        found = self.on()
        if found and keep:
            self._say(
                f"brokers go on offloading topics of {self.namespace}, and what they offload is stored twice: "
                f"`offloader migrate to-streaming {self.namespace}`, or pulsar-admin namespaces set-offload-threshold",
                former=None,
            )
        if not found or keep:
            return OK
        self._set_never()
        return self._still_on()

    def record(self, direction: str) -> FormerOffload:
        """How they offload it now, in the bucket before that is changed: `undo` puts it back, whoever gives it. The
        same command again finds what it has changed itself: what was before stays recorded."""
        size, seconds = self._threshold(SIZE), self._threshold(SECONDS)
        clock = self.session.dependencies.clock_ms
        former = FormerOffload(self.namespace, NEVER if size is None else size, seconds, direction, clock())
        newest = self._former.newest(self.namespace)
        if newest is not None and newest.direction == direction and not newest.restored:
            ours = former.size in (newest.size, NEVER) and former.seconds in (newest.seconds, NEVER)
            if ours or direction == TO_LEDGER_BASED:
                return newest
        self._former.record(former)
        return former

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

    def put_back(self, let_go: Sequence[TopicName]) -> None:
        """As it was before the last migration, where that is not put back yet. What was let go of brokers alone
        offload: for these it stays on."""
        former = self._former.newest(self.namespace)
        if former is None or former.restored:
            return
        if let_go and not _is_on(former.size, former.seconds):
            self._say(
                f"brokers go on offloading topics of {self.namespace} by themselves: {_names(let_go)} are theirs; "
                f"`offloader migrate to-streaming {self.namespace}` takes all of them again",
                threshold=None,
            )
            return
        self.as_before()
        self._former.record(replace(former, restored=True))
        told = f"from {former.size} bytes on" if former.size >= 0 else "nothing"
        if former.seconds is not None and former.seconds >= 0:
            told = f"after {former.seconds} s" if former.size < 0 else f"{told}, or after {former.seconds} s"
        text = (
            f"brokers offload topics of {self.namespace} by themselves as before `migrate {former.direction}`: {told}"
        )
        if former.direction == TO_STREAMING and _is_on(former.size, former.seconds):
            text += f"; they are streamed, too, until `offloader migrate to-ledger-based {self.namespace}` lets go"
        self._say(text, threshold=former.size)

    @property
    def _former(self) -> FormerOffloads:
        return FormerOffloads(self.session.store, self.session.dependencies.new_token)

    def _set_never(self) -> None:
        """Of the namespace itself, where that is what switches it on."""
        own, applied = self._own(), self._applied().values()
        by_time = any(_is_on(NEVER, _number(said.get(SECONDS))) for said in (own, *applied))
        if _is_off(own.get(SIZE)) and (not by_time or _is_off(own.get(SECONDS))):
            return
        former = self.record(TO_STREAMING)
        self.session.admin.set_offload_threshold(self.namespace, NEVER, NEVER if by_time else None)
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
        until = clock() + PROPAGATES_MS
        while True:
            found = set(self.on())
            left = [topic for topic in self.topics if (topic in found) is not on]
            if not left or clock() >= until:
                return left
            sleep(POLL)

    def _applied(self) -> dict[str, Mapping[str, object]]:
        """By topics' names; partitions have the policies of their topic."""
        one_of = {topic.partitioned_name: topic for topic in self.topics}
        return {name: self.session.admin.offload_policies(topic) for name, topic in one_of.items()}

    def _own(self) -> Mapping[str, object]:
        said = self.session.admin.namespace_policies(self.namespace).get("offload_policies")
        return said if isinstance(said, Mapping) else {}

    def _threshold(self, name: str) -> int | None:
        """The namespace's own; where it has none, what its brokers' configuration makes of its topics."""
        own = _number(self._own().get(name))
        if own is not None:
            return own
        said = [_number(policies.get(name)) for policies in self._applied().values()]
        found = Counter(each for each in said if each is not None)
        on = Counter({each: count for each, count in found.items() if each >= 0})
        return (on or found).most_common(1)[0][0] if found else None

    def _say(self, text: str, **fields: object) -> None:
        self.session.output.line(text, {"message": text, "namespace": self.namespace, **fields})


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

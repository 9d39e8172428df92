"""Looks at topics' subscriptions, and acknowledges again what their brokers have forgotten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from offloader.cursors.core.protection import Action, CursorSeen, Protection, Ruling, at_stake, rule
from offloader.cursors.protection_store import ProtectionStore
from offloader.errors import OffloadError
from offloader.lifecycle.topics.protecting.looks import ProtectionLooks
from offloader.lifecycle.topics.protecting.told import LookOutcome, Told
from offloader.model import TopicName
from offloader.ports.subscriptions import Subscriptions, ToAcknowledge

LOOKS_AFTER = 10  # until it is there
SHARED = "Shared"
CONNECTED = "consumers are connected, and it is {}: we can join a Shared one only"
CHANGED = "it has changed since the look, or was removed: another look will tell"
REMADE = "it was removed meanwhile, and becoming its consumer may have made it anew: remove it where nobody wants it"
NOT_THERE = "its broker does not say that it has all of it: another look will tell"


@dataclass
class _Topic:
    """What is known of a topic. `saved`: what the bucket has of it. `has_parts`: parts of batches are acknowledged.
    `is_at_rest`: it is not loaded, and its broker would forget nothing."""

    known: dict[str, Protection] = field(default_factory=dict)
    saved: Mapping[str, Protection] = field(default_factory=dict)
    has_parts: bool = False
    is_at_rest: bool = False


@dataclass
class Protector:
    """Safe to use from several threads, of one topic by one at a time. `dry_run`: acknowledges and writes nothing."""

    looks: ProtectionLooks
    brokers: Subscriptions
    store: ProtectionStore
    clock_ms: Callable[[], int]
    dry_run: bool = False
    _topics: dict[TopicName, _Topic] = field(default_factory=dict, init=False)

    def look(self, topic: TopicName, *, loaded: bool) -> list[Told]:
        """One look. A topic that is not loaded is loaded where its broker would forget something. Raises what brokers,
        metadata service and store raise: then the next look goes on from the former one."""
        state = self._topics.get(topic) or self._read(topic)
        if not loaded and self._is_at_rest(topic, state):
            return []
        seen = self.looks.look(topic)
        told = [self._one(topic, state, name, one) for name, one in seen.items()]
        gone = state.known.keys() - seen.keys()
        state.known = {name: one for name, one in state.known.items() if name not in gone}
        state.is_at_rest = False
        state.has_parts = any(isinstance(one, CursorSeen) and one.record.batches for one in seen.values())
        self._save(topic, state, seen)
        return told

    def keep(self, topics: Collection[TopicName]) -> None:
        """Forget all others."""
        self._topics = {topic: one for topic, one in self._topics.items() if topic in topics}

    def _read(self, topic: TopicName) -> _Topic:
        saved = self.store.read(topic)
        state = self._topics[topic] = _Topic(dict(saved), saved)
        return state

    def _is_at_rest(self, topic: TopicName, state: _Topic) -> bool:
        """Looks once at what the unload has stored."""
        if not state.is_at_rest and not state.saved and not state.has_parts:
            state.is_at_rest = not self.looks.has_parts(topic)
        return state.is_at_rest

    def _one(self, topic: TopicName, state: _Topic, name: str, seen: CursorSeen | str) -> Told:
        if isinstance(seen, str):
            return Told(topic, name, LookOutcome.WAITING, why=seen)
        ruling = rule(state.known.get(name), seen)
        match ruling.action:
            case Action.ACKNOWLEDGE if self.dry_run:
                return Told(
                    topic, name, LookOutcome.WOULD, ruling.entries, len(ruling.parts), self._obstacle(topic, name)
                )
            case Action.ACKNOWLEDGE:
                return self._acknowledge(topic, state, name, ruling)
        state.known[name] = ruling.protection
        if ruling.action is Action.REMEMBER:
            return _remembered(topic, name, ruling, seen)
        return Told(
            topic, name, LookOutcome.ENDED if ruling.action is Action.END else LookOutcome.WAITING, why=ruling.why
        )

    def _obstacle(self, topic: TopicName, name: str) -> str:
        traits = self.looks.states.subscriptions(topic).get(name)
        if traits is not None and traits.consumers and traits.type != SHARED:
            return CONNECTED.format(traits.type or "of an unknown type")
        return ""

    def _acknowledge(self, topic: TopicName, state: _Topic, name: str, ruling: Ruling) -> Told:
        if why := self._obstacle(topic, name):
            return Told(topic, name, LookOutcome.WAITING, why=why)
        former = state.known.get(name)
        decision = _Decision(self.looks, topic, name, former)
        known = former or Protection(ruling.protection.incarnation, ruling.protection.record)
        state.known[name] = replace(ruling.protection, tries=known.tries, parts_in=known.parts_in)
        try:
            done = self.brokers.acknowledge_as_seen(topic, name, decision)
            is_there = done and self._is_there(topic, name, decision)
        except OffloadError as error:  # whatever of it was done: the next look says what is missing
            return Told(topic, name, LookOutcome.FAILED, ruling.entries, len(ruling.parts), str(error))
        if not done:
            outcome = LookOutcome.FAILED if decision.is_another else LookOutcome.WAITING
            return Told(topic, name, outcome, why=REMADE if decision.is_another else CHANGED)
        counts = decision.ruling.entries, len(decision.ruling.parts)
        if not is_there:  # only this may say that the broker does not keep it
            state.known[name] = replace(ruling.protection, parts_in=known.parts_in)
            return Told(topic, name, LookOutcome.FAILED, *counts, NOT_THERE)
        state.known[name] = ruling.protection
        return Told(topic, name, LookOutcome.RESTORED, *counts)

    def _is_there(self, topic: TopicName, name: str, decision: _Decision) -> bool:
        """A broker answers before it has stored anything."""
        for _ in range(LOOKS_AFTER):
            after = self.looks.look(topic).get(name)
            if isinstance(after, CursorSeen) and _has_all(decision, after):
                return True
        return False

    def _save(self, topic: TopicName, state: _Topic, seen: Mapping[str, CursorSeen | str]) -> None:
        wanted = {
            name: replace(one, doubts=0, tries=0, parts_in=None)
            for name, one in state.known.items()
            if _is_needed(one, seen.get(name))
        }
        if wanted != state.saved and not self.dry_run:
            self.store.write(topic, wanted, self.clock_ms())
            state.saved = wanted


@dataclass
class _Decision:
    """What is acknowledged, once we are a consumer. `is_another`: it is not the subscription that was looked at."""

    looks: ProtectionLooks
    topic: TopicName
    name: str
    known: Protection | None
    ruling: Ruling = field(init=False)
    is_another: bool = False

    def __call__(self) -> ToAcknowledge | None:
        seen = self.looks.look(self.topic).get(self.name)
        if not isinstance(seen, CursorSeen):
            return None
        self.ruling = rule(self.known, seen)
        self.is_another = self.known is not None and self.known.incarnation != seen.incarnation
        if self.ruling.action is not Action.ACKNOWLEDGE:
            return None
        return ToAcknowledge(self.ruling.whole, self.ruling.parts)


def _remembered(topic: TopicName, name: str, ruling: Ruling, seen: CursorSeen) -> Told:
    if ruling.protection.memory is None:
        return Told(topic, name, LookOutcome.NOT_YET)
    return Told(topic, name, LookOutcome.PROTECTED, at_stake(ruling.protection, seen.record, seen.lengths))


def _is_needed(one: Protection, seen: CursorSeen | str | None) -> bool:
    """Whether the bucket has to have it: its broker would forget something, or has, or cannot be asked."""
    if not isinstance(seen, CursorSeen):
        return one.memory is not None
    return at_stake(one, seen.record, seen.lengths) > 0


def _has_all(decision: _Decision, after: CursorSeen) -> bool:
    """Whether all whole entries that were acknowledged again are there. Of parts brokers tell nobody."""
    known = decision.known.memory if decision.known is not None else None
    return not decision.ruling.whole or known is None or not known.without(after.memory, after.lengths)

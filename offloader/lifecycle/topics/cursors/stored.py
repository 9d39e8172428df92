"""A topic's subscriptions as they are stored, and as they are told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader.lifecycle.topics.cursors.held import CursorHold, HeldLedger, held_back
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, SubscriptionNames, owner_of, why_by_name_only
from offloader.model import TopicName
from offloader.ports.subscriptions import SubscriptionUse
from offloader.state.managed_ledger import ListedLedger
from offloader.state.subscription import CursorState


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A subscription as it is stored. `node` and `entry`: the bytes, whatever they say; `entry` None: there is none.

    `state` None: nothing of it could be read. `problem`: why it may not be all; empty: it is as stored.
    `modified_ms`: when the node was last written, by the metadata service's clock.
    """

    node: bytes = field(repr=False)
    version: int
    modified_ms: int
    state: CursorState | None
    entry: bytes | None = field(default=None, repr=False)
    problem: str = ""

    @property
    def complete(self) -> bool:
        """Whether all of it was read and understood."""
        return not self.problem and self.state is not None and self.state.complete


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic's list and its subscriptions, by name. `listed`: as the node has it; `created_ms`: when that was made."""

    topic: TopicName
    ledgers: tuple[HeldLedger, ...]
    listed: tuple[ListedLedger, ...]
    cursors: Mapping[str, StoredCursor]
    created_ms: int


def problem_of(cursor: StoredCursor) -> str:
    """Why one is not complete."""
    return cursor.problem or "; ".join(cursor.state.unknown if cursor.state else ()) or "its record does not say"


@dataclass(frozen=True, slots=True)
class ListedSubscription:
    """One line. `held` None: nobody can say. `consumers` None: only a broker that has the topic loaded could tell.

    `last_active_ms`: the last activity that is stored; there may have been others since. `stored_elsewhere`: its node
    alone says too little. `problem`: why its position is not known for certain. `by_name_only`: why no policy removes a
    user's; empty: one may.
    """

    topic: TopicName
    subscription: str
    kind: SubscriptionKind
    held: CursorHold | None
    last_active_ms: int | None
    consumers: int | None
    owner: str | None
    problem: str
    by_name_only: str


def listed(
    stored: StoredTopic, names: SubscriptionNames, uses: Mapping[str, SubscriptionUse] | None
) -> list[ListedSubscription]:
    """The subscriptions of a topic. `uses`: what its broker says; None: none has it loaded, or none was asked."""
    states = {name: one.state for name, one in stored.cursors.items() if _is_placed(one)}
    held = held_back(stored.ledgers, {name: state for name, state in states.items() if state is not None})
    return [
        ListedSubscription(
            stored.topic,
            name,
            names.kind(name),
            held.get(name),
            last_activity(cursor),
            uses[name].consumers if uses and name in uses else None,
            owner_of(name, cursor.state.subscription_properties if cursor.state else ()),
            cursor.problem or "; ".join(cursor.state.unknown if cursor.state else ()),
            why_by_name_only(name, cursor.state, None) if names.kind(name) is SubscriptionKind.USER else "",
        )
        for name, cursor in stored.cursors.items()
    ]


def by_bytes_held(found: list[ListedSubscription]) -> list[ListedSubscription]:
    """Those that hold most first, those of which nobody can say before all."""
    return sorted(found, key=lambda one: (one.held is not None, -(one.held.size if one.held else 0)))


def last_activity(cursor: StoredCursor) -> int | None:
    """The latest that is stored; None: nothing is, for what was never used, or an older broker wrote, says 0. A node
    says when its subscription was last used before it was written; where it names a ledger, somebody had acknowledged
    something when it was."""
    state = cursor.state
    if state is None:
        return None
    times = [state.last_active_ms or 0, cursor.modified_ms if state.cursor_ledger is not None else 0]
    return max((one for one in times if one > 0), default=None)


def _is_placed(cursor: StoredCursor) -> bool:
    state: CursorState | None = cursor.state
    return state is not None and state.mark_delete is not None

"""What is told of a topic's subscriptions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offloader.bookkeeper.cursor_state import CursorState
from offloader.lifecycle.topics.cursors.held import CursorHold, held_back
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, SubscriptionNames, owner_of
from offloader.lifecycle.topics.cursors.stored import StoredCursor, StoredTopic
from offloader.model import TopicName
from offloader.ports.subscriptions import SubscriptionUse


@dataclass(frozen=True, slots=True)
class ListedSubscription:
    """One line. `held` None: nobody can say. `consumers` None: only a broker that has the topic loaded could tell.

    `last_active_ms`: the last activity that is stored; there may have been others since. `stored_elsewhere`: its node
    alone says too little. `problem`: why its position is not known for certain.
    """

    topic: TopicName
    subscription: str
    kind: SubscriptionKind
    held: CursorHold | None
    last_active_ms: int | None
    consumers: int | None
    owner: str | None
    problem: str


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

"""Which topics a migration is of, and which of them it can have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.cli.command import CommandSession
from offloader.cli.owners import is_ours
from offloader.cli.topics import journals_of, matching, state_of
from offloader.config.policies import namespace_switch
from offloader.errors import TopicNotFoundError
from offloader.metadata.beside import last_owner
from offloader.model import TopicName


class Scope(NamedTuple):
    """A topic, with its partitions, or a namespace."""

    namespace: str
    topic: TopicName | None = None


def parse_scope(text: str) -> Scope:
    """`tenant/namespace`, or a topic's name. Raises ValueError."""
    pieces = text.split("/")
    if len(pieces) == 2 and all(pieces):
        return Scope(text)
    topic = TopicName.parse(text)
    return Scope(topic.namespace, topic)


def topics_of(session: CommandSession, scope: Scope) -> list[TopicName]:
    """Those that there are. Raises TopicNotFoundError."""
    existing = session.admin.topics(scope.namespace)
    found = existing if scope.topic is None else matching(scope.topic, existing)
    if not found:
        raise TopicNotFoundError(
            f"{scope.topic or scope.namespace}: there is no such topic; namespace {scope.namespace} has {len(existing)}"
        )
    return found


def not_enabled(session: CommandSession, scope: Scope, topics: Sequence[TopicName]) -> list[str]:
    """The application would refuse these, and the others would stay half way."""
    switch = namespace_switch(session.admin.namespace_properties(scope.namespace))
    policies = session.config.policies
    why = f"it is not enabled for {session.config.application}: enable it in the configuration"
    return [f"{topic}: {why}" for topic in topics if not policies.of(topic, switch).enabled]


@dataclass(frozen=True)
class HeldTopics:
    """`ours`: topics that this application offloads; `let_go`: that it has let go of. `refused`: others, and why."""

    ours: list[TopicName]
    let_go: list[TopicName]
    refused: list[str]


def held(session: CommandSession, scope: Scope, topics: Sequence[TopicName]) -> HeldTopics:
    """Whose the topics are. What another application has claimed is told by its plan."""
    found, application = HeldTopics([], [], []), session.config.application
    for topic in topics:
        head = session.catalogs.head(topic)
        owner = last_owner(session.store, head)
        claimed_by = "" if head.claim is None else head.claim.application
        if is_ours(session, claimed_by):
            found.ours.append(topic)
        elif not claimed_by and is_ours(session, owner):
            found.let_go.append(topic)
        elif not claimed_by:
            found.refused.append(f"{topic}: it is not offloaded by {application}, which could hand it over")
    journals = journals_of(session)
    begun = [topic for topic in found.ours if state_of(journals, topic).handed_over]
    rest = [topic for topic in found.ours if topic not in begun]
    found.refused.extend(not_enabled(session, scope, rest))
    return found

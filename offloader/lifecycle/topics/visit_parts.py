"""What planning and visiting are made of, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.node_reader import TopicNodeReader
from offloader.lifecycle.topics.tail_closing import TailCloser
from offloader.lifecycle.topics.visit_plan import VisitPlanner
from offloader.lifecycle.topics.visit_round import VisitClock, VisitRate, VisitRound
from offloader.lifecycle.topics.visiting import TopicVisitor
from offloader.model import TopicName
from offloader.ports.visits import TopicVisits


@dataclass(frozen=True)
class VisitParts:
    """`close`: ends what was opened for them."""

    planner: VisitPlanner
    round: VisitRound
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class VisitPlaces:
    """What visits reach. `loaded_by`: as `Admin.loaded_by`."""

    tree: MetadataTree
    bookies: Bookies
    brokers: TopicVisits
    loaded_by: Callable[[TopicName], str | None]
    names: SubscriptionNames


def visit_parts(
    places: VisitPlaces, clock: VisitClock, rate: VisitRate, close: Callable[[], None] = lambda: None
) -> VisitParts:
    """Nothing is reached yet."""
    reader = TopicNodeReader(places.tree)
    closer = TailCloser(places.tree, places.bookies, places.loaded_by, clock.now_ms)
    visitor = TopicVisitor(reader, places.brokers, places.names, clock.now_ms, closer)
    planner = VisitPlanner(reader, places.brokers, places.names, clock.now_ms)
    return VisitParts(planner, VisitRound(visitor, places.brokers, clock, rate), close)

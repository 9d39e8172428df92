"""Topics as the planner gets them, with what a test says is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from offloader.metadata.state import CatalogHead
from offloader.model import LedgerList, Position
from offloader.offload.core.facets import Committed, Learnt, Observed, Planned, PublishTimes, TopicRules
from offloader.offload.core.topic import Topic
from offloader.ports.admin import TopicInfo
from offloader.ports.pins import TopicEnd


def known_topic(
    rules: TopicRules,
    catalog: CatalogHead,
    ledgers: LedgerList,
    last: Position | None,
    sizes: Mapping[int, tuple[int, int]],
    *,
    offloaded: Iterable[int] = (),
    learnt: Learnt | None = None,
    planned_at: int = 0,
    times: Mapping[Position, int | None] | None = None,
    written: Mapping[int, tuple[int, int]] | None = None,
) -> Topic:
    """`last`: the last readable position. `sizes`: of ledgers, as of `TopicInfo`, maybe wrong."""
    info = TopicInfo(1, ledgers, sizes, None, terminated=False, offloaded=frozenset(offloaded), written=written or {})
    end = TopicEnd(None if last is None else last.place, (-1, -1))
    return Topic(
        catalog.topic,
        rules,
        Committed(catalog),
        Observed(info, end, seen_at=0, moved_at=0),
        learnt=learnt or Learnt(),
        planned=Planned(planned_at),
        times=PublishTimes(times or {}),
    )

"""What somebody wants to read of a topic. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.model import Position


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read of a topic. All bounds are included; None: no bound.

    `start` and `end` are positions, `published_from` and `published_to` publish times in ms since 1970, by producers'
    clocks: they select messages wherever these lie. A plan of a selection leaves out only what certainly holds no such
    message.

    >>> Selection(Position(0, 12, 345), published_to=1_795_269_900_000).is_timed
    True
    """

    start: Position | None = None
    end: Position | None = None
    published_from: int | None = None
    published_to: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it asks for publish times."""
        return self.published_from is not None or self.published_to is not None

    def covers(self, time: int | None) -> bool:
        """Whether what was published at a time (ms; None: it does not say) is within its times."""
        return time is not None and self.meets(time, time)

    def meets(self, early: int, late: int) -> bool:
        """Whether something published between two times (ms, both included) may be within its times."""
        return (self.published_from is None or late >= self.published_from) and (
            self.published_to is None or early <= self.published_to
        )


EVERYTHING = Selection()

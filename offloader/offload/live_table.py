"""A table of the topics that renews itself while the application runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from offloader.offload.live.status import TopicStatus
from offloader.printable import printable

if TYPE_CHECKING:
    from offloader.offload.application import Application


class LiveTable:
    """Renders statuses; remembers the last ones to show a rate."""

    def __init__(self, most: int = 20) -> None:
        self._most = most
        self._before: tuple[int, int] | None = None
        self._rate = 0.0

    def render(self, statuses: Sequence[TopicStatus], now_ms: int) -> Table:
        """The topics with the largest lag first, and a line of sums."""
        table = Table(title=None, expand=False, pad_edge=False)
        table.add_column("topic", overflow="fold")
        for name in ("segment", "offloaded", "entries", "bytes", "lag"):
            table.add_column(name, justify="left" if name in ("segment", "offloaded") else "right")
        shown = sorted(statuses, key=lambda s: (-s.lag_bytes, s.topic))[: self._most]
        for s in shown:
            topic, numbers = Text(printable(str(s.topic))), (f"{s.entries:,}", decimal(s.size), decimal(s.lag_bytes))
            table.add_row(topic, s.state, str(s.segments), *numbers)
        total = sum(s.size for s in statuses)
        table.add_section()
        table.add_row(
            f"{len(statuses)} topics",
            f"{self._rate_now(total, now_ms):.1f} MB/s",
            str(sum(s.segments for s in statuses)),
            f"{sum(s.entries for s in statuses):,}",
            decimal(total),
            decimal(sum(s.lag_bytes for s in statuses)),
        )
        return table

    def _rate_now(self, total: int, now_ms: int) -> float:
        """MB/s over about the last two seconds."""
        if self._before is None:
            self._before = (now_ms, total)
        then, before = self._before
        if now_ms - then >= 2_000:
            self._rate = max(total - before, 0) / (now_ms - then) / 1000
            self._before = (now_ms, total)
        return self._rate


def live_table(console: Console, application: Application) -> Live:
    """A context manager that shows the application's topics, renewed twice a second."""
    table = LiveTable()

    def render() -> Table:
        driver = application.driver
        return table.render(driver.statuses.latest if driver else (), time.time_ns() // 1_000_000)

    return Live(get_renderable=render, console=console, refresh_per_second=2)

"""`offloader run`. On a terminal it shows a table of the topics that renews itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from offloader.cli.command import CommandSession, command
from offloader.cli.output import say
from offloader.cli.parsing import TIME
from offloader.errors import ConfigError
from offloader.offload.live.status import TopicStatus
from offloader.offload.settings import chosen_shard
from offloader.printable import printable

if TYPE_CHECKING:
    from offloader.offload.application import Application


@click.command("run")
@click.option("--until-caught-up", is_flag=True, help="Offload up to the ends that the topics have now, then stop.")
@click.option(
    "--timeout",
    metavar="TIME",
    callback=TIME,
    help="With --until-caught-up: give up after this. Exit code 2, the topics left are named.",
)
@click.option(
    "--shard",
    type=click.IntRange(min=0),
    envvar="OFFLOADER_SHARD",
    show_envvar=True,
    help="Which of the application's shards to run, from 0.",
)
@command(log_level="INFO", starts_spark=True)
def run_command(session: CommandSession, *, until_caught_up: bool, timeout: int | None, shard: int | None) -> int:
    """Offload the enabled topics until stopped (SIGTERM, Ctrl-C).

    Exit code 3: another process has taken over, do not restart this one (a shard may be restarted: it takes its topics
    back).
    """
    if timeout is not None and not until_caught_up:
        raise ConfigError("--timeout is for --until-caught-up")
    from offloader.offload.application import Application  # PySpark takes a second to import

    seconds = None if timeout is None else timeout / 1000
    config = chosen_shard(session.config, shard)
    return run(Application(config, until_caught_up=until_caught_up, timeout=seconds))


def run(application: Application) -> int:
    """Run it until it ends or a signal stops it, and name the topics that are left. Returns the exit code."""
    from offloader.offload.application import stop_on_signals

    with stop_on_signals(application), shown(application):
        code = application.run()
    for line in application.unfinished:
        say(line, err=True)
    return code


def shown(application: Application) -> AbstractContextManager[object]:
    """On a terminal a table of the topics below the log; elsewhere only the log."""
    console = Console()
    if not (console.is_terminal and sys.stderr.isatty()):
        return nullcontext()
    return live_table(console, application)


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

"""`offloader run`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click
from rich.console import Console

from offloader.cli.command import CommandSession, command
from offloader.cli.output import say
from offloader.cli.parsing import TIME
from offloader.errors import ConfigError
from offloader.offload.settings import chosen_shard

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
    from offloader.offload.live_table import live_table

    return live_table(console, application)

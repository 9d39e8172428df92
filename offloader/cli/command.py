"""What every command has: its options, what they open, and how its errors become lines and exit codes."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from offloader import logs
from offloader.cli.output import OUTPUTS, Output, say
from offloader.cli.parsing import with_options
from offloader.config import Config
from offloader.errors import OffloadError, OvertakenError
from offloader.runtime.connections import Dependencies, Runtime, pulsar_settings
from offloader.stderr_lines import stderr_as_json

if TYPE_CHECKING:  # each takes long to import, and most commands need none of them
    from offloader.operations.doctor.probes import Probes
    from offloader.operations.restore.ports import Cluster

OK, ERROR, FINDINGS, OVERTAKEN = 0, 1, 2, 3

OPTIONS = (
    click.option("--config", "config_path", type=click.Path(path_type=Path), envvar="OFFLOADER_CONFIG",
                 show_envvar=True, help="The configuration file."),
    click.option("-o", "--output", type=click.Choice(sorted(OUTPUTS, reverse=True)), default="text", show_default=True,
                 help="What to print: text for people, JSON for programs."),
    click.option("--log-level", type=click.Choice(logs.LEVELS, case_sensitive=False), envvar=logs.LEVEL_VARIABLE,
                 show_envvar=True, help="Least level that is logged, on standard error."),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
                 help="Short lines, or a JSON object a line."),
    click.option("--debug", is_flag=True, help="Show where an error comes from."),
)  # fmt: skip


def _probes(runtime: Runtime) -> Probes:
    from offloader.operations.doctor.probes import RealProbes

    return RealProbes(runtime)


def _target(config: Config) -> Cluster:
    from offloader.operations.restore.target import TargetCluster

    return TargetCluster(pulsar_settings(config))


@dataclass(frozen=True)
class CommandDependencies(Dependencies):
    """What only commands reach: the doctor's probes, and the cluster that a topic is restored to."""

    probes: Callable[[Runtime], Probes] = _probes
    target: Callable[[Config], Cluster] = _target


class CommandSession(Runtime):
    """One call of a command. What it opens, it opens when it is first needed and closes at its end."""

    dependencies: CommandDependencies

    def __init__(self, dependencies: CommandDependencies, config_path: Path | None, output: Output) -> None:
        super().__init__(config_path, dependencies)
        self.output = output
        self.asked: dict[str, str] = {}  # the application that each request went to


def command(
    *, log_level: str = "WARNING", starts_spark: bool = False
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Make a function of (session, its own arguments), which may return an exit code, the body of a command.

    `log_level`: where neither option nor environment says another. `starts_spark`: others write to standard error, too.
    """

    def decorate(body: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(body)
        @click.pass_context
        def run(ctx: click.Context, /, **arguments: Any) -> None:
            code = _run(ctx, body, log_level, starts_spark=starts_spark, **arguments)
            if code:
                ctx.exit(code)

        decorated: Callable[..., None] = run
        return with_options(decorated, *OPTIONS)

    return decorate


def _run(
    ctx: click.Context,
    body: Callable[..., int | None],
    default_level: str,
    *,
    starts_spark: bool,
    config_path: Path | None,
    output: str,
    log_level: str | None,
    log_format: str,
    debug: bool,
    **arguments: Any,
) -> int:
    """The one place where errors become lines and exit codes."""
    structured = log_format == "json"
    try:
        with stderr_as_json() if structured and starts_spark else nullcontext() as stream:
            logs.set_up(log_level or default_level, structured=structured, stream=stream)
            with CommandSession(ctx.obj or CommandDependencies(), config_path, OUTPUTS[output]()) as session:
                return body(session, **arguments) or OK
    except OffloadError as error:
        if debug:
            raise
        for line in str(error).splitlines():
            say(f"error: {line}", err=True)
        return OVERTAKEN if isinstance(error, OvertakenError) else ERROR
    except OSError as error:  # of our own output: whatever else the system refuses is an OffloadError
        if debug:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of it is not tried again
        if not isinstance(error, BrokenPipeError):  # else whoever reads it has enough of it
            say(f"error: the output cannot be written: {error.strerror or error}", err=True)
        return ERROR

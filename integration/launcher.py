"""`offloader run` with faults, or without Spark: `python -m integration.launcher run FAULTS [--light] --config FILE
[--until-caught-up] [--timeout TIME]`.

FAULTS is a JSON list, see `tests.fakes.scripted`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from integration.light import without_spark
from offloader.cli.command import CommandSession, command
from offloader.cli.groups import Program
from offloader.cli.parsing import TIME
from offloader.cli.run import run
from offloader.offload.application import Application
from offloader.offload.settings import chosen_shard
from tests.fakes.scripted import ScriptedFaults


def program(faults: Iterable[Mapping[str, Any]] = (), *, light: bool = False) -> list[str]:
    """The command line to which `--config FILE` and other options of `offloader run` are added."""
    told = list(faults)
    if not told and not light:
        return [str(Path(sys.executable).with_name("offloader")), "run"]
    return [sys.executable, "-m", "integration.launcher", "run", json.dumps(told), *(["--light"] if light else [])]


@click.group(cls=Program)
def main() -> None:
    """As `offloader`."""


@main.command("run")
@click.argument("faults")
@click.option("--light", is_flag=True, help="Threads in place of Spark.")
@click.option("--until-caught-up", is_flag=True)
@click.option("--timeout", callback=TIME)
@command(log_level="INFO")
def launch(session: CommandSession, *, faults: str, light: bool, until_caught_up: bool, timeout: int | None) -> int:
    """As `offloader run`."""
    if light:
        without_spark()
    application = Application(
        chosen_shard(session.config, None),
        until_caught_up=until_caught_up,
        timeout=None if timeout is None else timeout / 1000,
        wrapper=ScriptedFaults("driver", faults),
        workers=ScriptedFaults("worker", faults),
    )
    return run(application)


if __name__ == "__main__":
    main()

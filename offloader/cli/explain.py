"""`offloader config check|explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import click

from offloader.cli.command import CommandSession, command
from offloader.cli.parsing import TOPIC
from offloader.config import Config
from offloader.config.levels import PolicyLevel
from offloader.config.policies import Resolved, namespace_switch
from offloader.config.problems import spell
from offloader.config.units import UnitKind
from offloader.model import TopicName


@click.group("config")
def config_group() -> None:
    """What the configuration says."""


@config_group.command()
@command()
def check(session: CommandSession) -> None:
    """Read and check the configuration; nothing is connected to.

    A file with no sections but `storage` and `gateway` is enough for commands that read the archive.

    \b
    JSON: {message, application}; application is null where the file is for reading alone.
    """
    config = session.archive_config
    if isinstance(config, Config):
        session.output.message("The configuration is sound", application=config.application)
    else:
        text = "The configuration is sound for reading the archive; `offloader run` also needs application and pulsar"
        session.output.message(text, application=None)


@config_group.command()
@click.argument("topic", callback=TOPIC)
@click.option("--offline", is_flag=True, help="Do not ask Pulsar for the namespace's property offloader.enabled.")
@command()
def explain(session: CommandSession, topic: TopicName, *, offline: bool) -> None:
    """A topic's policy, and which level sets each value.

    \b
    JSON: an array of {setting, value, level, set by}.
    """
    switch = None if offline else namespace_switch(session.admin.namespace_properties(topic.namespace))
    rows = [_row(resolved) for resolved in session.config.policies.explain(topic, switch)]
    session.output.table(("setting", "value", "level", "set by"), rows, "")


def _row(resolved: Resolved) -> tuple[object, ...]:
    field = PolicyLevel.model_fields[resolved.field]
    kind = next(_kinds((*field.metadata, field.annotation)), None)
    value = resolved.value
    if isinstance(value, bool):
        value = str(value).lower()
    elif kind is not None and value is not None:
        value = kind.format(value)
    return field.alias or resolved.field, value, resolved.level.name.lower(), spell(resolved.path)


def _kinds(marks: Iterable[Any]) -> Iterator[UnitKind]:
    """Whether a field is a size or a time stands in its type, at some depth."""
    for mark in marks:
        if isinstance(mark, UnitKind):
            yield mark
        else:
            yield from _kinds((*getattr(mark, "__metadata__", ()), *get_args(mark)))

"""`offloader takeover`."""

from __future__ import annotations

import click

from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.output import say
from offloader.metadata.takeover import takeover


@click.command("takeover")
@click.argument("old_application")
@command()
def takeover_command(session: CommandSession, old_application: str) -> int:
    """Adopt another application's journal and topics, for ever. Neither of the two may run.

    The application that adopts is that of the configuration. Can be repeated when it was interrupted. Exit code 1 where
    a topic's catalog cannot be read: the others are adopted; repeat it when that is mended.

    \b
    JSON: {message, topics}.
    """
    new = session.config.application
    dependencies = session.dependencies
    taken = takeover(session.store, old_application, new, dependencies.new_token, dependencies.clock_ms())
    text = f"{new} has taken over {len(taken.topics)} topics of {old_application}"
    session.output.message(text, topics=[str(topic) for topic in taken.topics])
    for line in taken.failed.values():
        say(f"error: {line}", err=True)
    return ERROR if taken.failed else OK

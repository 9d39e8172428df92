"""`offloader takeover`."""

from __future__ import annotations

import click

from offloader.cli.session import Session, command
from offloader.metadata.takeover import takeover


@click.command("takeover")
@click.argument("old_application")
@command()
def takeover_command(session: Session, old_application: str) -> None:
    """Adopt another application's journal and topics, for ever. Neither of the two may run.

    The application that adopts is that of the configuration. Can be repeated when it was interrupted.

    \b
    JSON: {message, topics}.
    """
    new = session.config.application
    doors = session.doors
    topics = takeover(session.store, old_application, new, doors.new_token, doors.clock_ms())
    text = f"{new} has taken over {len(topics)} topics of {old_application}"
    session.output.message(text, topics=[str(topic) for topic in topics])

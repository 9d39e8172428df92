"""What the commands of the first phase say in the end."""

from __future__ import annotations

from offloader.cli.command import CommandSession
from offloader.lifecycle.deletion.configured import timing_of
from offloader.lifecycle.explaining.words import counted, moment_text


def marked_told(session: CommandSession, number: int, what: str, *, yes: bool) -> str:
    """What the first phase comes to: how many, who deletes them, and not before when. `what`: one of them."""
    many = counted(number, what)
    if not yes:
        return f"{many} would be marked; nothing is without --yes"
    said = f"{many} {'is' if number == 1 else 'are'} marked"
    if not number:
        return said
    on = session.config.lifecycle.topic_two_phase_deletion_enabled
    off = "the application deletes nothing (lifecycle.topicTwoPhaseDeletionEnabled), `orphans purge --yes` does"
    goes = moment_text(session.dependencies.clock_ms() + timing_of(session.config.lifecycle).effective_delay)
    return f"{said}; {'the application deletes what is marked now' if on else off}, not before {goes}"

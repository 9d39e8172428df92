"""`offloader doctor`."""

from __future__ import annotations

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.offload.core.check import Check, Verdict
from offloader.operations.doctor.examine import examine


@click.command("doctor")
@command()
def doctor_command(session: CommandSession) -> int:
    """Look at everything that an offload needs, in Pulsar and in the store, and say what to do where something is
    wrong.

    Writes throw-away objects below _proof/ and removes them. Holds the offload subscription of a topic of each
    namespace for a moment; one that it creates it deletes again. Exit code 2 where a check fails.

    \b
    JSON: one object a line, {check, verdict, message, remedy}; verdict is ok, warn or fail.
    """
    probes = session.dependencies.probes(session)
    failed = 0
    for check in examine(session.config, probes):
        session.output.lines(
            _texts(check),
            {"check": check.name, "verdict": str(check.verdict), "message": check.message, "remedy": check.remedy},
        )
        failed += check.verdict is Verdict.FAIL
    return FINDINGS if failed else OK


def _texts(check: Check) -> list[str]:
    line = f"{check.verdict:<4}  {check.name}: {check.message}"
    return [line, f"      -> {check.remedy}"] if check.remedy else [line]

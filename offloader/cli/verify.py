"""`offloader verify`."""

from __future__ import annotations

from dataclasses import replace

import click

from offloader.archive.checking.bucket import check_root
from offloader.archive.checking.findings import Finding
from offloader.archive.checking.verify import Report, verify
from offloader.cli.parsing import TOPIC
from offloader.cli.session import FINDINGS, OK, Session, command
from offloader.cli.topics import chosen, journals_of
from offloader.config.units import format_size
from offloader.model import TopicName


@click.command("verify")
@click.argument("topics", callback=TOPIC, nargs=-1)
@click.option("--quick", is_flag=True, help="Existence, sizes, indexes and continuity only: no data is read.")
@click.option("--abort-uploads", is_flag=True, help="End the uploads that no journal names.")
@command()
def verify_command(session: Session, topics: tuple[TopicName, ...], *, quick: bool, abort_uploads: bool) -> int:
    """Check what is offloaded: catalogs, journals and objects against each other, byte for byte.

    All topics by default. May run beside the application. Exit code 2 where something is found.

    \b
    JSON: {message, topics, segments, entries, bytes, aborted, findings}; a finding is
    {kind, key, topic, offset, position, message}.
    """
    of_root = tuple(check_root(session.store))
    names = None
    if topics:
        journals = journals_of(session)
        names = [name for topic in topics for name in chosen(session, journals, topic)]
    report = verify(session.store, names, quick=quick, abort_uploads=abort_uploads)
    report = replace(report, findings=(*of_root, *report.findings))
    _show(session, report)
    return FINDINGS if report.findings else OK


def _show(session: Session, report: Report) -> None:
    summary = (
        f"{report.topics} topics, {report.segments} segments, {report.entries} entries, {format_size(report.bytes)} bytes: "
        f"{len(report.findings) or 'no'} findings"
    )
    if report.aborted:
        summary += f", {len(report.aborted)} uploads ended"
    session.output.message(
        summary,
        details=[str(finding) for finding in report.findings],
        topics=report.topics,
        segments=report.segments,
        entries=report.entries,
        bytes=report.bytes,
        aborted=report.aborted,
        findings=[_fields(finding) for finding in report.findings],
    )


def _fields(finding: Finding) -> dict[str, object]:
    return {
        "kind": str(finding.kind),
        "key": finding.key,
        "topic": None if finding.topic is None else str(finding.topic),
        "offset": finding.offset,
        "position": None if finding.position is None else str(finding.position),
        "message": finding.message,
    }

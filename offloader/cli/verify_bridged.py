"""`offloader verify --bridged`."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from offloader.archive.findings import Finding
from offloader.archive.ledgers.contexts import contexts_of_record
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.cli.command import FINDINGS, OK, CommandSession
from offloader.cli.output import text_or_none
from offloader.config.units import format_size
from offloader.errors import FatalError, RetryableError, TopicNotFoundError
from offloader.metadata import listing
from offloader.model import TopicName
from offloader.operations.verify.bridges import BridgeCheck, BridgeReport
from offloader.operations.verify.brokers_view import BrokersView

TIMEOUT = 30.0  # seconds that the metadata service may take


def verify_bridges(session: CommandSession, topics: Collection[TopicName], *, quick: bool) -> int:
    """Of these topics and their partitions, by default of all that have anything in the bucket: a catalog may be lost.

    Raises ConfigError; FatalError for a name that matches nothing, and, when all others are shown, for a topic that
    cannot be looked at."""
    named = {str(topic) for topic in topics}
    wanted = [t for t in sorted(listing.topics(session.store)) if not named or {str(t), t.partitioned_name} & named]
    unknown = named - {name for topic in wanted for name in (str(topic), topic.partitioned_name)}
    if unknown:
        raise FatalError(f"{min(unknown)} is not in the archive; `offloader topics list` shows what is")
    session.bookkeeper(TIMEOUT)  # says at once where no metadata service is configured
    report = BridgeReport()
    with closing(Stores(session.storage, borrowed=session.store, opener=session.dependencies.store)) as stores:
        check = BridgeCheck(OpenArchive(stores), lambda topic: _view(session, topic), quick=quick)
        failed = None
        for topic in wanted:
            try:
                report += check.topic(topic)
            except RetryableError as error:
                failed = failed or FatalError(f"{topic} was not checked: {error}")
    _show(session, report)
    if failed is not None:
        raise failed
    return FINDINGS if report.findings else OK


def _view(session: CommandSession, topic: TopicName) -> BrokersView | None:
    metadata, _ = session.bookkeeper(TIMEOUT)
    try:
        reported = session.admin.topic_info(topic).offloaded  # loads it, so the record is read behind that
    except TopicNotFoundError:
        reported = None
    node = metadata.nodes.get(metadata.topic_path(topic), latest=True)
    if node is None:
        return None
    return BrokersView({each.ledger: each for each in contexts_of_record(node.value)}, reported)


def _show(session: CommandSession, report: BridgeReport) -> None:
    off_list = f" ({report.off_list} of them off Pulsar's list)" if report.off_list else ""
    summary = (
        f"{report.topics} topics, {report.ledgers} bridged ledgers{off_list}, {format_size(report.bytes)} bytes: "
        f"{len(report.findings) or 'no'} findings"
    )
    if report.under_way:
        summary += f", {report.under_way} ledgers are being bridged"
    session.output.message(
        summary,
        details=[str(finding) for finding in report.findings],
        topics=report.topics,
        ledgers=report.ledgers,
        bytes=report.bytes,
        offList=report.off_list,
        underWay=report.under_way,
        findings=[finding_fields(finding) for finding in report.findings],
    )


def finding_fields(finding: Finding) -> dict[str, object]:
    """As JSON has it."""
    return {
        "kind": str(finding.kind),
        "key": finding.key,
        "topic": text_or_none(finding.topic),
        "offset": finding.offset,
        "position": text_or_none(finding.position),
        "message": finding.message,
    }

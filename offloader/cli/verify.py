"""`offloader verify`, and `offloader verify --bridged`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import click

from offloader.archive.findings import Finding, FindingKind
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.bridge.operations.verify import BridgeCheck, BridgeReport, BrokersView
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.output import text_or_none
from offloader.cli.parsing import TOPIC
from offloader.cli.reading import LedgersOption, ledger_options
from offloader.cli.topics import chosen, journals_of
from offloader.config.units import format_size
from offloader.errors import ConfigError, FatalError, RetryableError, TopicNotFoundError
from offloader.metadata import listing
from offloader.model import TopicName
from offloader.operations.verify.beside import verify_ledgers
from offloader.operations.verify.strays import check_root
from offloader.operations.verify.verify import Report, verify
from offloader.state.managed_ledger_codec import decode_managed_ledger

_WITHOUT_PARTNER = (FindingKind.MISSING_OBJECT, FindingKind.MISSING_INDEX)
TIMEOUT = 30.0  # seconds that the metadata service may take


@click.command("verify")
@click.argument("topics", callback=TOPIC, nargs=-1)
@click.option("--quick", is_flag=True, help="Existence, sizes, indexes and continuity only: no data is read.")
@click.option(
    "--abort-uploads", is_flag=True, help="End the uploads of segments that no journal names; never another product's."
)
@click.option(
    "--bridged",
    is_flag=True,
    help="Check instead what brokers know of bridged ledgers: Pulsar's record, what brokers report, their objects.",
)
@ledger_options
@command()
def verify_command(
    session: CommandSession,
    topics: tuple[TopicName, ...],
    *,
    quick: bool,
    abort_uploads: bool,
    bridged: bool,
    ledgers: LedgersOption,
) -> int:
    """Check what is offloaded: catalogs, journals and objects against each other, byte for byte.

    All topics by default. May run beside the application. With --ledgers also what Pulsar's own offloader has put into
    that bucket, and then there need be no archive; of named topics also what names no topic there. Exit code 2 where
    something is found.

    With --bridged it asks Pulsar, too, which loads the topics: whether its records name the copies that the bridge logs
    do, whether brokers know it, whether the objects are there, and have byte for byte what segments have (unless
    --quick), and what is left over on either side.

    \b
    JSON: {message, topics, segments, ledgers, entries, unreadable, bytes, deleted, aborted, findings}; with
    --bridged {message, topics, ledgers, bytes, offList, underWay, findings}; a finding is
    {kind, key, topic, offset, position, message}.
    """
    if bridged:
        if abort_uploads or ledgers.says_anything:
            raise ConfigError("--bridged is a check of its own: it takes neither --abort-uploads nor --ledgers")
        return verify_bridges(session, topics, quick=quick)
    bucket = ledgers.bucket(session)
    count, of_ledgers, only_there = None, list[Finding](), set[TopicName]()
    if bucket is not None:
        count, of_ledgers, only_there = _check_ledgers(session, bucket, topics, quick=quick)
    of_root, no_root = _check_root(session, may_be_empty=bucket is not None)
    names = None
    if topics:
        journals = journals_of(session)
        names = [name for topic in topics if topic not in only_there for name in chosen(session, journals, topic)]
    report = verify(session.store, names, quick=quick, abort_uploads=abort_uploads)
    report = replace(report, findings=(*of_root, *report.findings, *of_ledgers))
    _show(session, report, count, no_root)
    return FINDINGS if report.findings else OK


def _check_root(session: CommandSession, *, may_be_empty: bool) -> tuple[tuple[Finding, ...], str]:
    """What is wrong with the root, and a note where there is none. Raises ConfigError where there must be one."""
    try:
        return tuple(check_root(session.store)), ""
    except ConfigError as error:
        if not may_be_empty:
            raise
        return (), str(error)


def _check_ledgers(
    session: CommandSession, bucket: LedgerBucket, topics: Collection[TopicName], *, quick: bool
) -> tuple[int, list[Finding], set[TopicName]]:
    """How many ledgers of the topics (by default of all) stock brokers have offloaded, what is wrong with them, and the
    named topics that are only there."""
    scanned = bucket.scan()
    named = {str(topic) for topic in topics}
    # Brokers may know a topic of which nothing is left in the bucket.
    wanted = [t for t in sorted({*scanned.topics, *topics}) if not named or {str(t), t.partitioned_name} & named]
    count, findings = 0, [f for f in scanned.findings if not named or f.kind is not FindingKind.STRAY_OBJECT]
    in_bucket: set[str] = set()
    stores = session.open_archive(bucket).stores
    for topic in wanted:
        found = bucket.find(topic, scanned)
        count += len(found.ledgers)
        in_bucket |= {str(topic), topic.partitioned_name} if found.ledgers else set()
        findings += verify_ledgers(found, lambda url: stores.open(url).store, quick=quick)
        findings += [f for f in scanned.of(topic).findings if f.kind in _WITHOUT_PARTNER]
    archived = {name for t in session.catalogs.topics() for name in (str(t), t.partitioned_name)} if named else set()
    return count, list(dict.fromkeys(findings)), {topic for topic in topics if str(topic) in in_bucket - archived}


def _show(session: CommandSession, report: Report, ledgers: int | None, note: str) -> None:
    of_brokers = "" if ledgers is None else f", {ledgers} ledgers of stock brokers"
    no_messages = f" ({report.unreadable} no messages)" if report.unreadable else ""
    summary = (
        f"{report.topics} topics, {report.segments} segments, {report.entries} entries{no_messages}, "
        f"{format_size(report.bytes)} bytes{of_brokers}: {len(report.findings) or 'no'} findings"
    )
    if report.deleted:
        summary += f", {report.deleted} segments are deleted, as recorded"
    if report.aborted:
        summary += f", {len(report.aborted)} uploads ended"
    if note:
        summary += f" ({note})"
    session.output.message(
        summary,
        details=[str(finding) for finding in report.findings],
        topics=report.topics,
        segments=report.segments,
        ledgers=ledgers,
        entries=report.entries,
        unreadable=report.unreadable,
        bytes=report.bytes,
        deleted=report.deleted,
        aborted=report.aborted,
        findings=[finding_fields(finding) for finding in report.findings],
    )


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
    check = BridgeCheck(session.open_archive(), lambda topic: _view(session, topic), quick=quick)
    failed = None
    for topic in wanted:
        try:
            report += check.topic(topic)
        except RetryableError as error:
            failed = failed or FatalError(f"{topic} was not checked: {error}")
    _show_bridged(session, report)
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
    return BrokersView(decode_managed_ledger(node.value), reported)


def _show_bridged(session: CommandSession, report: BridgeReport) -> None:
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

"""`offloader catalog rebuild|compact`."""

from __future__ import annotations

from collections.abc import Iterable

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.output import text_or_none
from offloader.cli.parsing import POSITION, TOPIC, parsed
from offloader.errors import FatalError, OffloadError
from offloader.metadata.compaction import mend
from offloader.metadata.listing import holds_data
from offloader.metadata.manifest import FAN
from offloader.metadata.root import read_root
from offloader.metadata.state import Claim, LedgerClosed, Said
from offloader.model import Loss, Position, Segment, TopicName
from offloader.operations.rebuild.gather import gather
from offloader.operations.rebuild.propose import Proposal
from offloader.operations.rebuild.remains import Given, Remains
from offloader.operations.rebuild.write import check_agreement, proposed, rebuild
from offloader.pulsar.answers import instant


@click.group("catalog")
def catalog_group() -> None:
    """The catalogs: what says of each topic what is offloaded."""


@catalog_group.command("rebuild")
@click.argument("topic", callback=TOPIC)
@click.option(
    "--yes",
    is_flag=True,
    help="Write what is proposed. The application must not run: one that does is ended (exit code 3).",
)
@click.option(
    "--application",
    metavar="NAME",
    help="Whose topic it is, where no claim and no journal says so; the configuration's by default.",
)
@click.option(
    "--created",
    metavar="DATE",
    callback=parsed(instant),
    help=(
        "The topic's creationDate (`pulsar-admin topics info-internal`), where no claim says it; Pulsar is asked by "
        "default."
    ),
)
@click.option(
    "--ended",
    metavar="LEDGER:ENTRY",
    multiple=True,
    callback=POSITION,
    help=(
        "You know that nothing is missing behind this entry, which a note names as in doubt; may be repeated. It is "
        "recorded that you said so."
    ),
)
@command()
def rebuild_command(
    session: CommandSession,
    topic: TopicName,
    *,
    yes: bool,
    application: str | None,
    created: int | None,
    ended: tuple[Position, ...],
) -> int:
    """Make a topic's lost or damaged catalog again, from the records beside its segments.

    Each record of the catalog has a copy beside the segments, which names the one before it: all of them in that order
    are the catalog. It is written as a new generation of the catalog; what there was stays as it is. Where a record is
    lost as well, the positions up to what followed it become a loss. Of two records of the same positions the one that
    another one follows counts, else the one whose objects are sound; the other is left out. Without --yes nothing is
    written. Exit code 2 where something could not be known again, or is left out.

    \b
    JSON: {message, topic, written, records, notes}; a record is {kind, origin, uuid, start, end, entries, bytes}
    with origin kept, restored or made; a note is {kind, key, position, message} with kind unknown, left-out, lost
    or damaged.
    """
    if not holds_data(session.store, topic):  # else it is the right root, though its `_root` may be lost as well
        read_root(session.store)
    given = _given(session, gather(session.store, topic), application, created, ended)
    found = proposed(session.store, topic, given)
    if not found.records:
        raise FatalError(f"{topic}: no record is left of it that a catalog could be made from")
    if yes:
        _check_created(found)
        check_agreement(found)
        found = rebuild(session.store, topic, given, session.dependencies.new_token)
    _show(session, topic, found, written=yes)
    return FINDINGS if found.notes else OK


@catalog_group.command("compact")
@click.argument("topic", callback=TOPIC)
@command()
def compact_command(session: CommandSession, topic: TopicName) -> None:
    """Write anew what is missing or damaged of a topic's manifests, which sum up its catalog.

    Readers are slow where a manifest is missing, and nothing else depends on them. All records of the catalog are read.
    May run beside the application, which writes the same.

    \b
    JSON: {message, topic, written}; written are keys.
    """
    head = session.catalogs.head(topic)
    if head.claim is None:
        raise FatalError(f"{topic} has no catalog; `offloader topics list` shows what is archived")
    written = mend(session.store, head)
    text = f"{topic}: {len(written)} objects of {head.next_slot // FAN} manifests of {FAN} records were written anew"
    session.output.message(text, details=written, topic=str(topic), written=written)


def _given(
    session: CommandSession, remains: Remains, application: str | None, created: int | None, ended: Iterable[Position]
) -> Given:
    claimed = any(claim.created is not None for claim in remains.claims)
    return Given(
        application=_owner(remains, application, session.config.application),
        at=session.dependencies.clock_ms(),
        created=created if created is not None or claimed else _created(session, remains),
        ended=tuple((end.ledger, end.entry) for end in ended),
    )


def _owner(remains: Remains, asked: str | None, configured: str) -> str:
    """Whose topic it is. Raises FatalError where records or journals name another one than is asked for."""
    known = [claim.application for claim in sorted(remains.claims, key=lambda c: (c.incarnation, c.at))[-1:]]
    known = known or [application for application, _ in remains.open]
    if asked is not None and known and asked != known[-1]:
        raise FatalError(
            f"{remains.topic} is {known[-1] or 'nobody'}'s, not {asked}'s: `offloader takeover` changes that"
        )
    return known[-1] if known else configured if asked is None else asked


def _created(session: CommandSession, remains: Remains) -> int | None:
    """What Pulsar says, where its topic has several archived ledgers with the ends that were recorded: else it may be
    another topic of that name."""
    try:
        info = session.admin.topic_info(remains.topic)
    except OffloadError:
        return None
    segments = [span for span in remains.spans if isinstance(span, Segment)]
    last = max((segment.start.incarnation for segment in segments), default=0)
    held = [held for segment in segments if segment.start.incarnation == last for held in segment.ledgers]
    ends = ((each.ledger, each.closed_with) for each in held if each.closed_with is not None)
    return info.created if info.ledgers.has_ends(ends) else None


def _check_created(proposal: Proposal) -> None:
    """Raises FatalError without a date: the application would take the topic for one that was created again."""
    claim = proposal.catalog().claim
    if claim is not None and claim.created is None:
        raise FatalError(
            f"{proposal.remains.topic}: when it was created is in no record, and Pulsar does not list two archived "
            "ledgers with their recorded ends; give --created DATE (any date where the topic does not exist any more)"
        )


def _show(session: CommandSession, topic: TopicName, proposal: Proposal, *, written: bool) -> None:
    count = len(proposal.records)
    if proposal.in_force:
        text = f"{topic}: the catalog has all {count} records"
    elif written:
        text = f"{topic}: a new generation of the catalog was written, with {count} records"
    else:
        wanted = f"a new generation of the catalog with {count} records is to be written"
        text = f"{topic}: {wanted}; nothing is written without --yes"
    session.output.message(
        text,
        details=[*(f"{_origin(proposal, r):<8}  {_text(r)}" for r in proposal.records), *map(str, proposal.notes)],
        topic=str(topic),
        written=0 if proposal.in_force or not written else count,
        records=[_fields(proposal, r) for r in proposal.records],
        notes=[
            {"kind": str(n.kind), "key": n.key, "position": text_or_none(n.position), "message": n.message}
            for n in proposal.notes
        ],
    )


def _origin(proposal: Proposal, record: Said) -> str:
    uuid, remains = proposal.remains.uuid(record), proposal.remains
    return "kept" if uuid in remains.committed else "restored" if uuid in remains.records else "made"


def _text(record: Said) -> str:
    match record:
        case Claim():
            return f"claim    {record.application or 'nobody'} from {record.begin} on, incarnation {record.incarnation}"
        case Segment():
            held = f"{record.entries} entries, {record.size} bytes"
            return f"segment  {record.start}..{record.end}  {record.uuid}  {held}"
        case Loss():
            return f"loss     {record.start}..{record.end}  {record.reason}"
        case LedgerClosed():
            said = f", said by {record.vouched_by}" if record.vouched_by else ""
            return f"closed   ledger {record.ledger} with {record.last}{said}"
        case _:
            return f"deletion {record}"


def _fields(proposal: Proposal, record: Said) -> dict[str, object]:
    kind = "closed" if isinstance(record, LedgerClosed) else type(record).__name__.lower()
    uuid = proposal.remains.uuid(record)
    fields: dict[str, object] = {"kind": kind, "origin": _origin(proposal, record), "uuid": uuid}
    if isinstance(record, Segment | Loss):
        fields |= {"start": str(record.start), "end": str(record.end)}
    if isinstance(record, Segment):
        fields |= {"entries": record.entries, "bytes": record.size}
    return fields

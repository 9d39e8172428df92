"""`offloader catalog rebuild`."""

from __future__ import annotations

from collections.abc import Iterable

import click

from offloader.archive.rebuilding.found import Evidence, Given
from offloader.archive.rebuilding.gather import gather
from offloader.archive.rebuilding.propose import Proposal, Proposed, propose
from offloader.archive.rebuilding.replace import check_agreement, owner, rebuild
from offloader.cli.parsing import POSITION, TOPIC
from offloader.cli.session import FINDINGS, OK, Session, command
from offloader.errors import FatalError, OffloadError
from offloader.metadata.layout import holds_data
from offloader.metadata.root import read_root
from offloader.metadata.state import Claim, LedgerClosed, Record
from offloader.model import Loss, Position, Segment, TopicName


@click.group("catalog")
def catalog_group() -> None:
    """The catalogs: what says of each topic what is offloaded."""


@catalog_group.command("rebuild")
@click.argument("topic", callback=TOPIC)
@click.option(
    "--yes", is_flag=True, help="Write what is proposed. The application must not run: one that does is ended (exit code 3)."
)
@click.option(
    "--application",
    metavar="NAME",
    help="Whose topic it is, where no claim and no journal says so; the configuration's by default.",
)
@click.option(
    "--incarnation",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The topic's incarnation, where no record says it.",
)
@click.option(
    "--created",
    metavar="TEXT",
    help="The topic's creationDate (`pulsar-admin topics info-internal`), where no claim says it; Pulsar is asked by default.",
)
@click.option(
    "--ended",
    metavar="LEDGER:ENTRY",
    multiple=True,
    callback=POSITION,
    help="You know that nothing is missing behind this entry, which a note names as in doubt; may be repeated. It is recorded that you said so.",
)
@command()
def rebuild_command(
    session: Session,
    topic: TopicName,
    *,
    yes: bool,
    application: str | None,
    incarnation: int,
    created: str | None,
    ended: tuple[Position, ...],
) -> int:
    """Make a topic's lost or damaged catalog again, from the records, objects and journals that are left.

    Every object that no record names is read and checked as a whole. Records that can be read stay as they are; what an
    object or a neighbour does not prove is not guessed, but told; where entries may be missing, a loss is recorded. What
    an earlier rebuild has made is made again: bring objects back and repeat it. Without --yes nothing is written. Exit
    code 2 where something could not be known again, or is left out.

    \b
    JSON: {message, topic, written, records, notes}; a record is {slot, kind, origin, uuid, start, end, entries, bytes}
    with origin kept, remade or placeholder; a note is {kind, key, position, message} with kind unknown, left-out, lost
    or damaged.
    """
    if not holds_data(session.store, topic):  # else it is the right root, though its `_root` may be lost as well
        read_root(session.store)
    evidence = gather(session.store, topic)
    given = _given(session, evidence, application, incarnation, created, ended)
    proposal = propose(evidence, given)
    if not proposal.records:
        raise FatalError(f"{topic}: neither records nor objects are left of it that a catalog could be made from")
    proposal.catalog()
    if yes:
        _check_created(proposal)
        check_agreement(proposal)
        proposal = rebuild(session.store, topic, given, session.doors.new_token)
    _show(session, topic, proposal, written=yes)
    return FINDINGS if proposal.notes else OK


def _given(
    session: Session,
    evidence: Evidence,
    application: str | None,
    incarnation: int,
    created: str | None,
    ended: Iterable[Position],
) -> Given:
    claimed = any(claim.created for claim in evidence.claims)
    return Given(
        application=owner(evidence, application, session.config.application),
        at=session.doors.clock_ms(),
        incarnation=incarnation,
        created=created if created is not None or claimed else _created(session, evidence),
        cuts=session.config.policies.of(evidence.topic).cuts,
        root=session.store.url,
        ended=tuple((end.ledger, end.entry) for end in ended),
    )


def _created(session: Session, evidence: Evidence) -> str | None:
    """What Pulsar says, where the topic there still has a ledger of what is archived: else it may be another one of that name."""
    try:
        info = session.admin.topic_info(evidence.topic)
    except OffloadError:
        return None
    ours = {ledger for found in evidence.objects for ledger in found.ends}
    ours |= {held.ledger for segment in evidence.segments for held in segment.ledgers}
    return info.created if any(ledger in info.ledgers for ledger in ours) else None


def _check_created(proposal: Proposal) -> None:
    """The application would take a topic of an unknown creation date for one that was created again."""
    claim = proposal.catalog().claim
    if claim is not None and not claim.created:
        raise FatalError(
            f"{proposal.evidence.topic}: when it was created is in no record, and Pulsar does not list a ledger that is archived; give "
            "--created TEXT (any text where the topic does not exist any more)"
        )


def _show(session: Session, topic: TopicName, proposal: Proposal, *, written: bool) -> None:
    new = len(proposal.new)
    if not new:
        text = f"{topic}: all {len(proposal.records)} records can be read"
    elif written:
        text = f"{topic}: {new} records written, {len(proposal.records) - new} kept"
    else:
        text = f"{topic}: {new} records to be written, {len(proposal.records) - new} kept; nothing is written without --yes"
    session.output.message(
        text,
        details=[*(_line(p) for p in proposal.records), *(str(note) for note in proposal.notes)],
        topic=str(topic),
        written=new if written else 0,
        records=[_fields(p) for p in proposal.records],
        notes=[
            {"kind": str(n.kind), "key": n.key, "position": None if n.position is None else str(n.position), "message": n.message}
            for n in proposal.notes
        ],
    )


def _line(proposed: Proposed) -> str:
    return f"{proposed.slot:>4}  {proposed.origin:<11}  {_text(proposed.record)}"


def _text(record: Record) -> str:
    match record:
        case Claim():
            return f"claim    {record.application or 'nobody'} from {record.begin} on, incarnation {record.incarnation}"
        case Segment():
            return f"segment  {record.start}..{record.end}  {record.uuid}  {record.entries} entries, {record.size} bytes"
        case Loss():
            ranges = ", ".join(f"{first}..{last}" for first, last in (*record.also, (record.start, record.end)))
            return f"loss     {ranges}  {record.reason}"
        case LedgerClosed():
            said = f", said by {record.vouched_by}" if record.vouched_by else ""
            return f"closed   ledger {record.ledger} with {record.last}{said}"


def _fields(proposed: Proposed) -> dict[str, object]:
    record = proposed.record
    kind = "closed" if isinstance(record, LedgerClosed) else type(record).__name__.lower()
    fields: dict[str, object] = {"slot": proposed.slot, "kind": kind, "origin": str(proposed.origin)}
    if isinstance(record, Segment | Loss):
        fields |= {"start": str(record.start), "end": str(record.end)}
    if isinstance(record, Segment):
        fields |= {"uuid": record.uuid, "entries": record.entries, "bytes": record.size}
    return fields

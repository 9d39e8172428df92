"""`offloader topics restore`: publishing an archived topic again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from offloader.archive.archive import Archive
from offloader.archive.spark.values import parse_publish_time
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.output import say
from offloader.cli.parsing import TOPIC, parsed, positive_size
from offloader.cli.progress_bar import download_progress
from offloader.cli.reading import SEE_LIST, catalog_is_gone
from offloader.cli.restored_subscriptions import NONE_MADE, SubscriptionsWanted, SubscriptionTeller
from offloader.cli.topics import topics
from offloader.config import Config
from offloader.config.units import format_size
from offloader.cursors.backlog import segments_to_read
from offloader.cursors.copies import CursorCopy
from offloader.cursors.facts import archived_schemas
from offloader.errors import DataLostError
from offloader.lifecycle.topics.cursors.stored import StoredCursor
from offloader.metadata import listing
from offloader.metadata.root import read_root
from offloader.model import Position, TopicName
from offloader.operations.restore.choice import Choice
from offloader.operations.restore.numbering import MappedCursor, TargetPlaces, mapped
from offloader.operations.restore.pairs import Pairing, pairing
from offloader.operations.restore.ports import Cluster
from offloader.operations.restore.progress import Counts, RateLimiter, RestoreProgress
from offloader.operations.restore.provenance import Origin, added_bytes, unchanged
from offloader.operations.restore.restore import ArchiveSource, Outline, Restore, Tools, proven_numbering
from offloader.operations.restore.schemas import SchemaVersions
from offloader.operations.restore.subscriptions import RestoreStanding, SubscriptionRestorer
from offloader.operations.restore.tail import Tail
from offloader.runtime.connections import Runtime
from offloader.runtime.deletion import stored_topics

BOOKIE_SECONDS = 10.0  # for one answer of a bookie


@dataclass(frozen=True)
class RestoreOptions:
    """What the command was told."""

    rate: int | None
    allow_missing: bool
    subscriptions: SubscriptionsWanted


@dataclass(frozen=True)
class Job:
    """One topic's restore, as it was looked at before anything is sent. `copy`: of its subscriptions those that are to
    be restored; None: none is copied, or wanted."""

    topic: TopicName
    to: TopicName
    origin: Origin
    source: ArchiveSource
    tail: Tail
    outline: Outline
    copy: CursorCopy | None


@topics.command()
@click.argument("topic", callback=TOPIC)
@click.option(
    "--to",
    "to",
    metavar="TOPIC",
    callback=TOPIC,
    required=True,
    help="Where to: a new topic, or one of an earlier call.",
)
@click.option(
    "--to-config",
    type=click.Path(path_type=Path),
    help="A configuration whose section `pulsar` is that of the target's cluster; --config's by default.",
)
@click.option(
    "--rate",
    metavar="SIZE",
    callback=positive_size("nothing would ever go; write a rate above 0, or leave it out"),
    help="At most so many bytes a second, for example 50M.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="How many the topic had, where its highest ones hold nothing that is archived.",
)
@click.option(
    "--allow-missing", is_flag=True, help="Go on without what is lost or unreadable in the archive; it is counted."
)
@click.option(
    "--ignore-schemas",
    is_flag=True,
    help="Upload no schemas, and leave the versions that entries name as they are, whatever the target has.",
)
@click.option(
    "--subscriptions",
    metavar="all|none|NAME",
    multiple=True,
    default=("all",),
    show_default=True,
    help="Which subscriptions to bring back from the copy in the archive; repeat it for several names.",
)
@click.option(
    "--subscriptions-at",
    metavar="TIME",
    callback=parsed(parse_publish_time),
    help="As they stood at this moment (ISO 8601, or ms since 1970); by default as in the newest copy.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Look at everything and say what would be done. Schemas are tried in the target's registry, and deleted.",
)
@command()
def restore(
    session: CommandSession,
    topic: TopicName,
    *,
    to: TopicName,
    to_config: Path | None,
    rate: int | None,
    partitions: int | None,
    allow_missing: bool,
    ignore_schemas: bool,
    subscriptions: tuple[str, ...],
    subscriptions_at: int | None,
    dry_run: bool,
) -> int:
    """Publish an archived topic again, each entry once, in order; a call that was interrupted is made again to go on.

    Keys, payloads, times, compression and batches stay as they are. Each entry gets properties `offloader.source.*`
    (`root`, `topic`, `position`, `number`, `replicated-from`) that say where it was: consumers see them on messages
    that are not in a batch. What a message has under one of these names already, its own or from an earlier restore, it
    keeps as `offloader.source.before.*`.

    A partitioned topic goes to one with as many partitions. The target is made where it does not exist. It must keep
    everything (a retention without end, no TTL, no compaction), and may hold nothing else.

    Its schemas, as far as the archive has them (`topics schemas`), are uploaded first, in order. Entries name the
    versions that the target gives them.

    Once its entries are there, its subscriptions are made where they stood, as the archive has them (policies.
    archiveCursors), each read back and told; consumers should wait until then. One that is there already is not moved.

    \b
    JSON: one object a line, {message, topic, target, dryRun, sent, bytes, alreadyThere, skipped, gaps, losses}; with
    --dry-run, `sent` and `bytes` are what is left to send, at most. For each subscription {message, topic, target,
    dryRun, subscription, standing, copied, pending, ranges, acknowledged, batches, leftOut, losses, notes}; losses:
    {when, setting, entries, batches}, what the target will forget. Exit code 2: not all stand as wanted.
    """
    wanted = SubscriptionsWanted.parse(subscriptions, subscriptions_at)
    options = RestoreOptions(rate, allow_missing, wanted)
    config = session.config if to_config is None else Config.load(to_config)
    with closing(session.dependencies.target(config)) as cluster:
        archived = sorted(listing.topics(session.store))
        planned = pairing(topic, archived, to, cluster.existing(to.namespace), partitions)
        if planned.create is not None:
            cluster.check_new(to)
        jobs = list(_jobs(session, cluster, planned, options))
        schemas = () if ignore_schemas else archived_schemas(session.store, [topic for topic, _ in planned.pairs])
        if not ignore_schemas:
            versions = cluster.check_schemas(to, schemas, try_upload=dry_run)
            for job in jobs:
                _check_first(job, versions)
        wanted.check_found(topic, [job.copy for job in jobs])
        has_subscriptions = any(job.copy is not None and job.copy.cursors for job in jobs)
        if has_subscriptions:
            cluster.check_subscriptions(to, new=planned.create is not None)
        if planned.create is not None and not dry_run:
            cluster.create(to, planned.create)
            if has_subscriptions:  # what is in force may only be told now
                cluster.check_subscriptions(to, new=False)
        schema_version = unchanged
        if not ignore_schemas and not dry_run:
            schema_version = cluster.upload_schemas(to, schemas).of
        for job in jobs:
            if dry_run:
                _show_plan(session, job, new=planned.create is not None)
            else:
                _show(session, job, _run(session, cluster, job, options, schema_version))
        told = [one for job in jobs for one in _subscriptions(session, cluster, config, job, options, dry_run=dry_run)]
        return OK if all(one.is_as_wanted for one in told) else FINDINGS


def _jobs(session: CommandSession, cluster: Cluster, planned: Pairing, options: RestoreOptions) -> Iterator[Job]:
    """Refuses whatever is refused, before anything is sent."""
    root, opening = read_root(session.store).uuid, session.open_archive()
    archive = Archive(opening)
    for topic, to in planned.pairs:
        origin = Origin(root, topic)
        found = archive.find(topic)
        if found is None:
            gone = listing.holds_data(session.store, topic)
            raise catalog_is_gone(topic) if gone else opening.unknown(topic, SEE_LIST)
        source = ArchiveSource(found)
        tail = Tail() if planned.create is not None else cluster.target(to, origin).check()
        outline = source.outline(tail.position)
        if outline.lost and not options.allow_missing:
            more = f", and {len(outline.lost) - 1} more" if len(outline.lost) > 1 else ""
            raise DataLostError(f"{topic}: {outline.lost[0]}{more}; --allow-missing goes on without it")
        outline = replace(outline, bytes=outline.bytes + outline.entries * added_bytes(origin))
        yield Job(topic, to, origin, source, tail, outline, options.subscriptions.of(session.store, topic))


def _check_first(job: Job, versions: SchemaVersions) -> None:
    """Whether the first entry that is left to send names a schema version that is known: a topic whose schemas are not
    archived is refused before anything is made. Raises FatalError, and what reading the archive raises."""
    progress = RestoreProgress(job.origin, job.tail, Choice(allow_missing=True), versions.of)
    for item in job.source.items(job.tail.position):
        progress.take(item)
        if progress.waiting:
            return


def _run(
    session: CommandSession,
    cluster: Cluster,
    job: Job,
    options: RestoreOptions,
    schema_version: Callable[[bytes], bytes],
) -> Counts:
    target = cluster.target(job.to, job.origin)
    target.check()
    title, console = f"{job.topic} to {job.to}", Console(stderr=True)
    with download_progress(title, max(job.outline.bytes, 1), console) as advance, closing(target):
        dependencies = session.dependencies
        tools = Tools(lambda: dependencies.clock_ms() / 1000, dependencies.sleep, advance)
        begin = lambda tail: RestoreProgress(  # noqa: E731
            job.origin, tail, Choice(job.source.outcomes(), options.allow_missing), schema_version
        )
        return Restore(target, job.source.items, begin, RateLimiter(options.rate), tools).run()


def _subscriptions(
    session: CommandSession, cluster: Cluster, config: Config, job: Job, options: RestoreOptions, *, dry_run: bool
) -> Iterator[RestoreStanding]:
    if job.copy is None:
        if options.subscriptions.names is not None:
            say(f"{job.topic}: no copy of its subscriptions is in the archive; {NONE_MADE}", err=True)
        return
    if not job.copy.cursors:
        return
    teller = SubscriptionTeller(session.output, job.topic, job.to, job.copy, cluster.storing(job.to.namespace))
    if dry_run:
        yield from teller.plan(segments_to_read(session.catalogs.load(job.topic)))
        return
    stored = _stored(session, config)
    restorer = SubscriptionRestorer(cluster.subscriptions, stored, session.dependencies.sleep)
    found = _mapped(cluster, job, job.copy, allow_missing=options.allow_missing)
    yield from teller.restored(found, lambda one: restorer.restore(job.to, one))


def _mapped(cluster: Cluster, job: Job, copy: CursorCopy, *, allow_missing: bool) -> list[MappedCursor]:
    """The subscriptions in the target's positions, but those whose copy is damaged. Raises IntegrityError, and what
    reading the archive raises."""
    cursors = [one for one in copy.cursors if not one.damage]
    if not cursors:
        return []
    target = cluster.target(job.to, job.origin)
    tail = target.check()
    places = TargetPlaces(cluster.lengths(job.to), tail.number)
    lowest = min(Position(copy.incarnation, *one.mark_delete) for one in cursors)
    numbering = proven_numbering(job.source, target, places, tail, lowest, allow_missing=allow_missing)
    return [mapped(one, copy.incarnation, numbering, places) for one in cursors]


def _stored(session: CommandSession, config: Config) -> Callable[[TopicName, str], StoredCursor | None] | None:
    """What the target's metadata service and bookies say of a subscription; None: they are not configured."""
    if config.pulsar.metadata_service_uri is None:
        return None
    return stored_topics(session.closing(Runtime(config, session.dependencies)), BOOKIE_SECONDS).cursor


def _show_plan(session: CommandSession, job: Job, *, new: bool) -> None:
    entries, size = job.outline.entries, job.outline.bytes
    target = f"{job.to} (to be made)" if new else f"{job.to}"
    left = f"{entries} entries ({format_size(size)} bytes) to send"
    counts = Counts(already_there=job.tail.number, sent=entries, bytes=size, losses=len(job.outline.lost))
    text = f"would restore {job.topic} to {target}: {left}, {counts.already_there} there"
    _line(session, job, text, counts, dry_run=True)


def _show(session: CommandSession, job: Job, counts: Counts) -> None:
    skipped = "".join(f", {count} {why} skipped" for why, count in sorted(counts.skipped.items()))
    text = (
        f"{job.topic} is restored to {job.to}: {counts.sent} entries sent ({format_size(counts.bytes)} bytes), "
        f"{counts.already_there} were there{skipped}, {counts.gaps} positions in gaps, "
        f"{counts.losses} losses passed over"
    )
    _line(session, job, text, counts, dry_run=False)


def _line(session: CommandSession, job: Job, text: str, counts: Counts, *, dry_run: bool) -> None:
    fields = {
        "message": text,
        "topic": str(job.topic),
        "target": str(job.to),
        "dryRun": dry_run,
        "sent": counts.sent,
        "bytes": counts.bytes,
        "alreadyThere": counts.already_there,
        "skipped": {str(why): count for why, count in sorted(counts.skipped.items())},
        "gaps": counts.gaps,
        "losses": counts.losses,
    }
    session.output.line(text, fields)

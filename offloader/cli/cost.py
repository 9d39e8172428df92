"""`offloader cost`: what the archive takes, what that costs, and what other policies would save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import click
from rich.console import Console

from offloader.cli.command import ERROR, OK, CommandSession, command
from offloader.cli.output import plain_table, say
from offloader.cli.parsing import SCOPE, Scope
from offloader.cli.progress_bar import step_progress
from offloader.cli.reading import not_archived
from offloader.cli.topics import journals_of
from offloader.config.gateway import Gateway
from offloader.errors import AccessDeniedError, FatalError, RetryableError
from offloader.lifecycle.explaining.words import size_text
from offloader.metadata import listing
from offloader.metadata.journals import Journals
from offloader.metadata.layout import encoded, topic_folder
from offloader.metadata.state import CatalogHead
from offloader.model import SINGLE_PUT, TopicName
from offloader.offload.driver.retaining import RETENTION_FIELDS
from offloader.offload.settings import retention
from offloader.operations.cost.gather import Copies, evenly, listed, looks, still_held
from offloader.operations.cost.plan import Cuts
from offloader.operations.cost.prices import PriceList
from offloader.operations.cost.report import CostReport, report
from offloader.operations.cost.requests import Idling, Requests, Serving, total
from offloader.operations.cost.stored import ByteClass, Listed, StillHeld, TopicLook

LOOK_INTO = 1_000
LEFT_OUT = "--no-pulsar leaves Pulsar out"
NO_PRICES = (
    "no prices: set them, with their day, in the section `cost` of the configuration (docs/cost.md); bytes and "
    "requests are all that can be told"
)


@click.command("cost")
@click.argument("scope", metavar="[TOPIC|NAMESPACE]", required=False, callback=SCOPE)
@click.option(
    "--look-into",
    "most",
    type=click.IntRange(min=0),
    default=LOOK_INTO,
    show_default=True,
    metavar="N",
    help="Topics whose catalogs are read, for ages, requests and the plan; spread over all.",
)
@click.option(
    "--gateway-topics",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Topics that clients read through a gateway all the time.",
)
@click.option(
    "--gateway-subscriptions",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Durable subscriptions of theirs that acknowledge all the time.",
)
@click.option("--gateway-namespaces", type=click.IntRange(min=0), default=0, metavar="N",
              help="Namespaces in which they watch a pattern of topics.")  # fmt: skip
@click.option("--no-pulsar", is_flag=True, help="Do not ask Pulsar for copies, nor what BookKeeper holds.")
@command()
def cost_command(
    session: CommandSession,
    scope: Scope | None,
    *,
    most: int,
    gateway_topics: int,
    gateway_subscriptions: int,
    gateway_namespaces: int,
    no_pulsar: bool,
) -> int:
    """What is stored, by what it is and how old it is; the requests of a month; and what that costs.

    Of everything, of a namespace, or of a topic with its partitions. Bytes are counted by a listing. Catalogs are
    read of --look-into topics at most: requests are then those of all, by the share of the segments, as are the
    plan's savings. The requests of a gateway are told for as many topics as the options say. Prices are those of
    the section `cost` of the configuration; without them there are bytes and requests alone. The same bytes on
    bookies: with the write quorum that Pulsar says, else cost.bookieCopies copies. Exit code 1 where the catalog of
    a topic cannot be read: the others count.

    \b
    JSON: {topics, lookedInto, segmentShare, classes, namespaces, bytes, uploadingBytes, deletingBytes, unnamedBytes,
    ages, requestsAMonth, readOnce, bookies, plan, prices, monthly}. classes is [{class, objects, bytes, monthly}],
    namespaces [{namespace, topics, objects, bytes, monthly}], ages [{age, bytes}], requestsAMonth [{kind, writes,
    reads, lists, cost}], readOnce {reads, bytes, cost}, bookies {copies, bytes, monthly, heldBytes, archivedBytes}
    (the last two null without Pulsar), plan [{setting, factor, values, writes, reads, lists, saves, but}], prices
    {currency, asOf}, monthly the sum. A cost is null where its price is not configured.
    """
    topics = _topics(session, scope)
    chosen = evenly(topics, most)
    with step_progress("topics listed", max(len(topics), 1), Console(stderr=True)) as advance:
        found = listed(session.store, _prefixes(scope, topics), chosen, advance)
    looked, failed = _looked(session, chosen)
    made = report(
        found,
        looked,
        _cuts(session, looked),
        None if scope is not None else _idling(session, topics),
        _uploading(journals_of(session), scope),
        *_of_bookies(session, found, looked, no_pulsar=no_pulsar),
        _serving(session.config.gateway, gateway_topics, gateway_subscriptions, gateway_namespaces),
    )
    _show(session, made)
    for line in failed:
        say(f"error: {line}", err=True)
    return ERROR if failed else OK


def _topics(session: CommandSession, scope: Scope | None) -> list[TopicName]:
    if scope is None:
        return sorted(listing.topics(session.store))
    if scope.topic is not None:
        itself = any(True for _ in session.store.folders(topic_folder(scope.topic)))
        found = [*([scope.topic] if itself else ()), *listing.partitions(session.store, scope.topic)]
        if not found:
            raise not_archived(scope.topic)
        return found
    found = listing.topics_of(session.store, scope.namespace)
    if not found:
        raise FatalError(f"nothing of namespace {scope.namespace} is archived")
    return found


def _prefixes(scope: Scope | None, topics: Iterable[TopicName]) -> list[str]:
    if scope is None:
        return [""]
    if scope.topic is None:
        return ["".join(f"{encoded(piece)}/" for piece in scope.namespace.split("/"))]
    return [topic_folder(topic) for topic in topics]


def _looked(session: CommandSession, chosen: Sequence[TopicName]) -> tuple[list[TopicLook], list[str]]:
    failed: list[str] = []
    now = session.dependencies.clock_ms()
    found = []
    with step_progress("topics looked into", max(len(chosen), 1), Console(stderr=True)) as advance:
        for look in looks(session.catalogs, chosen, now, failed.append):
            found.append(look)
            advance(1)
    return found, failed


def _cuts(session: CommandSession, looked: Iterable[TopicLook]) -> dict[TopicName, Cuts]:
    policies = ((look.topic, session.config.policies.of(look.topic)) for look in looked)
    return {topic: Cuts(p.part_size, p.max_segment_size, p.max_rollover_ms) for topic, p in policies}


def _idling(session: CommandSession, topics: Iterable[TopicName]) -> Idling:
    config = session.config
    policies = config.policies
    says = policies.any_says(*RETENTION_FIELDS)
    return Idling(
        config.spark.trigger_ms,
        config.lifecycle.deletion_interval_ms,
        deletes=config.lifecycle.topic_two_phase_deletion_enabled,
        retained=sum(retention(policies.of(topic)).says_anything for topic in topics) if says else 0,
        applications=1 if config.shards is None else config.shards.count,
    )


def _serving(settings: Gateway, topics: int, subscriptions: int, namespaces: int) -> Serving | None:
    serving = Serving(
        topics,
        subscriptions,
        namespaces,
        settings.refresh_interval_ms,
        settings.flush_interval_ms,
        settings.claim_interval_ms,
    )
    return None if serving.is_idle else serving


def _uploading(journals: Journals, scope: Scope | None) -> int:
    return sum(
        segment.size
        for states in journals.states.values()
        for topic, state in states.items()
        if _is_in(scope, topic)
        for segment in state.unfinished
        if segment.upload != SINGLE_PUT  # its object is listed
    )


def _is_in(scope: Scope | None, topic: TopicName) -> bool:
    if scope is None or scope.topic is None:
        return scope is None or topic.namespace == scope.namespace
    return scope.topic in (topic, TopicName.parse(topic.partitioned_name))


def _of_bookies(
    session: CommandSession, found: Listed, looked: Sequence[TopicLook], *, no_pulsar: bool
) -> tuple[dict[str, int], list[StillHeld] | None]:
    """Copies by namespace; what is still held, None where Pulsar is not asked."""
    said = session.config.cost.bookie_copies
    if no_pulsar:
        return dict.fromkeys(found.namespaces, said), None
    asked = Copies(session.admin)
    try:
        copies = {namespace: asked.of(namespace) or said for namespace in found.namespaces}
        with step_progress("topics asked for in Pulsar", max(len(looked), 1), Console(stderr=True)) as advance:
            return copies, still_held(session.admin, _told(looked, advance))
    except RetryableError as error:
        raise RetryableError(f"{error}; {LEFT_OUT}") from error
    except AccessDeniedError as error:
        raise AccessDeniedError(f"{error}; {LEFT_OUT}") from error


def _told(looked: Iterable[TopicLook], advance: Callable[[int], None]) -> Iterator[CatalogHead]:
    for look in looked:
        yield look.head
        advance(1)


def _show(session: CommandSession, made: CostReport) -> None:
    prices = PriceList(session.config.cost)
    session.output.lines(list(lines(made, prices)), fields(made, prices))


def lines(made: CostReport, prices: PriceList) -> Iterator[str]:
    """What is printed for people."""
    scaled = "" if made.share >= 1 else f", which have {made.share:.1%} of the segments: requests are scaled up"
    yield f"{made.topics} topics; {made.looked_into} looked into{scaled}"
    yield from _block("STORED", ("class", "objects", "bytes", "a month"), _classes(made, prices))
    yield from _block("BY NAMESPACE", ("namespace", "topics", "objects", "bytes", "a month"), _namespaces(made, prices))
    yield from _block("BY AGE", ("newest message", "bytes"), [(age, size_text(size)) for age, size in _ages(made)])
    yield from _block("REQUESTS A MONTH", ("for", "writes", "reads", "lists", "a month"), _requests(made, prices))
    yield ""
    yield from _sums(made, prices)
    plan = [_change(each.setting, each.values, each.saves, each.but, prices) for each in made.plan]
    yield from _block("WHAT WOULD SAVE REQUESTS", ("setting", "value", "saves a month", "worth", "but"), plan)


def _block(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    if rows:
        yield ""
        yield title
        yield from plain_table(columns, rows)


def _classes(made: CostReport, prices: PriceList) -> list[tuple[object, ...]]:
    heap = made.heap
    rows: list[tuple[object, ...]] = [
        (of, heap.objects[of], size_text(heap.size[of]), prices.text(prices.stored(heap.size[of])))
        for of in ByteClass
        if heap.objects[of]
    ]
    if made.uploading:
        rows.append(("open uploads", "", size_text(made.uploading), prices.text(prices.stored(made.uploading))))
    return rows


def _namespaces(made: CostReport, prices: PriceList) -> list[tuple[object, ...]]:
    return [
        (name, heap.topics, heap.objects.total(), size_text(heap.size.total()),
         prices.text(prices.stored(heap.size.total())))
        for name, heap in made.namespaces.items()
    ]  # fmt: skip


def _ages(made: CostReport) -> Iterable[tuple[str, int]]:
    return ((str(age), size) for age, size in made.ages.items())


def _requests(made: CostReport, prices: PriceList) -> list[tuple[object, ...]]:
    return [(kind, *_rounded(each), prices.text(prices.asked(each))) for kind, each in made.monthly.items()]


def _rounded(requests: Requests) -> tuple[int, int, int]:
    return round(requests.writes), round(requests.reads), round(requests.lists)


def _sums(made: CostReport, prices: PriceList) -> Iterator[str]:
    if made.deleting:
        yield f"of the data {size_text(made.deleting)} are marked to be deleted, and cost as long as they are there"
    if made.unnamed:
        yield (
            f"of the data {size_text(made.unnamed)} are in no catalog: being sealed, or orphans "
            "(`offloader orphans scan --bucket-only`)"
        )
    data = made.heap.size[ByteClass.DATA]
    once = _sum(prices.leaving(data), prices.asked(made.read_once))
    yield f"to read all data once: {round(made.read_once.reads)} reads, {size_text(data)} out{_cost(once, prices)}"
    copies = " or ".join(map(str, sorted(set(made.copies.values())))) or "no"
    yield (
        f"on bookies the data would be {size_text(made.on_bookies())} in {copies} "
        f"{'copy' if copies == '1' else 'copies'}{_cost(prices.on_bookies(made.on_bookies()), prices, 'a month')}"
    )
    if made.held is not None:
        held, archived = made.held_on_bookies()
        yield (
            f"BookKeeper still holds {size_text(held)} of the topics looked into, all copies"
            f"{_cost(prices.on_bookies(held), prices, 'a month')}; {size_text(archived)} of that is archived"
        )
    if not prices.known:
        yield NO_PRICES
        return
    whole = _cost(monthly(made, prices), prices, "a month") or ": not known, a price of bytes or requests is missing"
    yield f"in all{whole}; by prices of {prices.settings.as_of}"


def _cost(cost: float | None, prices: PriceList, per: str = "") -> str:
    return "" if cost is None else f": {prices.text(cost)}{' ' if per else ''}{per}"


def _change(setting: str, values: str, saves: Requests, but: str, prices: PriceList) -> tuple[object, ...]:
    writes, reads, lists = _rounded(saves)
    return setting, values, f"{writes} writes, {reads} reads, {lists} lists", prices.text(prices.asked(saves)), but


def monthly(made: CostReport, prices: PriceList) -> float | None:
    """Store and requests; None where a price of these is missing."""
    return _sum(prices.stored(made.size), prices.asked(total(made.monthly)))


def fields(made: CostReport, prices: PriceList) -> dict[str, object]:
    """What is printed for programs, as JSON."""
    heap, data = made.heap, made.heap.size[ByteClass.DATA]
    held = None if made.held is None else made.held_on_bookies()
    return {
        "topics": made.topics,
        "lookedInto": made.looked_into,
        "segmentShare": made.share,
        "classes": [
            {"class": of, "objects": heap.objects[of], "bytes": heap.size[of], "monthly": prices.stored(heap.size[of])}
            for of in ByteClass
        ],
        "namespaces": [
            {
                "namespace": name,
                "topics": each.topics,
                "objects": each.objects.total(),
                "bytes": each.size.total(),
                "monthly": prices.stored(each.size.total()),
            }
            for name, each in made.namespaces.items()
        ],
        "bytes": made.size,
        "uploadingBytes": made.uploading,
        "deletingBytes": made.deleting,
        "unnamedBytes": made.unnamed,
        "ages": [{"age": age, "bytes": size} for age, size in made.ages.items()],
        "requestsAMonth": [
            {"kind": kind, **_request_fields(each), "cost": prices.asked(each)} for kind, each in made.monthly.items()
        ],
        "readOnce": {
            "reads": round(made.read_once.reads),
            "bytes": data,
            "cost": _sum(prices.leaving(data), prices.asked(made.read_once)),
        },
        "bookies": {
            "copies": dict(made.copies),
            "bytes": made.on_bookies(),
            "monthly": prices.on_bookies(made.on_bookies()),
            "heldBytes": None if held is None else held[0],
            "archivedBytes": None if held is None else held[1],
        },
        "plan": [
            {
                "setting": each.setting,
                "factor": each.factor,
                "values": each.values,
                **_request_fields(each.saves),
                "saves": prices.asked(each.saves),
                "but": each.but,
            }
            for each in made.plan
        ],
        "prices": {"currency": prices.settings.currency, "asOf": prices.settings.as_of},
        "monthly": monthly(made, prices),
    }


def _request_fields(requests: Requests) -> dict[str, int]:
    return dict(zip(("writes", "reads", "lists"), _rounded(requests), strict=True))


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second

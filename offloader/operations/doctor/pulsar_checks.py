"""Whether Pulsar, and where it is configured its bookies, can be reached and deliver what we need. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from offloader.config.units import format_size
from offloader.errors import AuthorizationFailedError, InexactBytesError, OffloadError, SubscriptionBusyError
from offloader.model import TopicName
from offloader.offload.core.check import ADDRESS, Check, fail, ok, remedy_for, warn
from offloader.pulsar.exactness import check_exactness

MOST_NAMED = 5
BUSY = (
    "stop the other consumer; if there is none, let a topic have two consumers more (maxConsumersPerTopic, "
    "maxConsumersPerSubscription)"
)
BOOKIES_FROM = "pulsar.metadataServiceUri"
CONSUME = "grant it: pulsar-admin namespaces grant-permission NAMESPACE --role ROLE --actions consume"


def reachable(name: str, answer: str | OffloadError, where: str) -> Check:
    """A port that was tried."""
    if isinstance(answer, OffloadError):
        return fail(name, str(answer), remedy_for(answer, CONSUME, f"{where}: {ADDRESS}"))
    return ok(name, answer)


def exact_bytes(configuration: Mapping[str, str] | OffloadError, *, vouched: bool) -> Check:
    """Entries must arrive as BookKeeper stores them; `vouched`: the operator says so where our role may not ask."""
    name = "exact-bytes"
    if isinstance(configuration, AuthorizationFailedError) and vouched:
        return ok(name, "entries are delivered byte for byte, says pulsar.entriesAreExact; our role may not ask")
    if isinstance(configuration, OffloadError):
        remedy = (
            "let a super user's role ask; or make sure that exposingBrokerEntryMetadataToClientEnabled=true is in "
            "broker.conf, and set pulsar.entriesAreExact: true"
        )
        return warn(name, f"not known: {configuration}", remedy)
    try:
        check_exactness(configuration)
    except InexactBytesError as error:
        remedy = "set exposingBrokerEntryMetadataToClientEnabled=true in broker.conf and restart the brokers"
        return fail(name, str(error), remedy)
    return ok(name, "entries are delivered byte for byte")


def entry_size(configuration: Mapping[str, str] | OffloadError, max_entry_size: int) -> Iterator[Check]:
    """Our guard against too large segments must know the largest entry."""
    if isinstance(configuration, OffloadError) or "maxMessageSize" not in configuration:
        return
    theirs = int(configuration["maxMessageSize"])
    if theirs > max_entry_size:
        ours = f"maxEntrySizeInBytes is {format_size(max_entry_size)}"
        text = f"the brokers take messages of {format_size(theirs)}, {ours}"
        yield warn("entry-size", text, f"set policies.maxEntrySizeInBytes: {theirs}")
    else:
        yield ok("entry-size", f"no message is larger than {format_size(max_entry_size)}")


def readable(answer: str | OffloadError) -> Check:
    """The offload subscription was held, and a reader opened beside it."""
    name = "read-topic"
    if isinstance(answer, SubscriptionBusyError):
        return fail(name, str(answer), BUSY)
    if isinstance(answer, OffloadError):
        return fail(name, str(answer), remedy_for(answer, CONSUME, "check whether the topic was deleted or unloaded"))
    return ok(name, answer)


def enabled(
    count: int, unread: Mapping[str, OffloadError], absent: Collection[str], chosen: Collection[str]
) -> Iterator[Check]:
    """What the configuration selects. `absent`: namespaces of it that do not exist; `chosen`: that it enables."""
    for namespace, reason in unread.items():
        permission = "make the role an administrator of the tenant; see docs/permissions.md#pulsar"
        yield fail(
            "namespace", f"{namespace} cannot be read: {reason}", remedy_for(reason, permission, "see the reason")
        )
    for namespace in absent:
        text = f"{namespace} does not exist"
        yield fail(
            "namespace", text, f"pulsar-admin namespaces create {namespace}, or correct its name in `namespaces`"
        )
    if count:
        yield ok("topics", f"{count} topics are enabled")
    elif chosen:
        more = f" and {len(chosen) - 1} more" if len(chosen) > 1 else ""
        yield ok("topics", f"there is no topic yet in {next(iter(chosen))}{more}: enabled, and waited for")
    else:
        remedy = (
            "set enabled: true for a namespace, or the property: pulsar-admin namespaces set-property NAMESPACE -k "
            "offloader.enabled -v true"
        )
        yield warn("topics", "no topic is enabled", remedy)


def skipped(topics: Collection[TopicName]) -> Iterator[Check]:
    """Topics of enabled namespaces that are never offloaded."""
    if topics:
        yield ok("system-topics", f"Pulsar's own topics are not offloaded: {_some(topics)}")


def _some(topics: Collection[TopicName]) -> str:
    names = sorted(map(str, topics))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{' '.join(names[:MOST_NAMED])}{more}"


def names_fit(topics: Collection[TopicName], url: str) -> Iterator[Check]:
    """`topics`: those whose names are too long for the store."""
    if topics:
        text = f"{url} cannot hold names as long as these, and the topics are not offloaded: {_some(topics)}"
        remedy = "disable these topics, or move the archive to an object store; names count as they are URL-encoded"
        yield fail("topic-names", text, remedy)


def bookies_reachable(found: Mapping[str, OffloadError | None] | OffloadError) -> Iterator[Check]:
    """The metadata service, and all bookies that it lists."""
    name = "metadata-service"
    if isinstance(found, OffloadError):
        yield fail(name, str(found), f"{BOOKIES_FROM}: check the address, and whether workers may reach it")
        return
    if not found:
        remedy = f"{BOOKIES_FROM}: check that it is the brokers' own, its path included"
        yield fail(name, "no bookie is registered", remedy)
        return
    yield ok(name, f"{len(found)} bookies are registered")
    errors = [error for error in found.values() if error is not None]
    if not errors:
        yield ok("bookies", "all registered bookies answer")
        return
    remedy = (
        "check whether they run, and whether workers may reach their addresses; entries that no other bookie has are "
        "waited for"
    )
    verdict = fail if len(errors) == len(found) else warn
    yield verdict("bookies", "; ".join(map(str, errors)), remedy)


def ledger_readable(found: str | OffloadError) -> Check:
    """One topic's entries, read as workers do."""
    if isinstance(found, OffloadError):
        remedy = f"{BOOKIES_FROM}: check that it is the brokers' own, and that bookies let us read"
        return fail("read-ledger", str(found), remedy)
    return ok("read-ledger", found)


def ledgers_deletable(found: tuple[str, ...] | OffloadError | None) -> Iterator[Check]:
    """Whether a scan of ledgers could judge anything, and what would stand against deleting what it finds."""
    name = "ledger-deletion"
    if isinstance(found, OffloadError):
        yield fail(name, str(found), f"{BOOKIES_FROM}: a scan reads nearly all nodes there; see docs/permissions.md")
    elif found:
        yield warn(name, f"no ledger would be deleted: {' '.join(found)}", "see docs/orphans.md#refusals")
    elif found is not None:
        yield ok(name, "what a scan finds to be an orphan could be deleted")

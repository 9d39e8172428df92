"""Whether Pulsar, and where it is configured its bookies, can be reached and deliver what we need. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from offloader.config.units import format_size
from offloader.errors import AuthenticationFailedError, AuthorizationFailedError, InexactBytesError, OffloadError
from offloader.offload.core.check import Check, fail, ok, warn
from offloader.pulsar.exactness import check_exactness

BOOKIES_FROM = "pulsar.metadataServiceUri"
ADDRESS = "check the address, the network and whether the broker runs"
WHO = "check pulsar.authPlugin and pulsar.authParams"
MAY = "grant the role this permission: pulsar-admin namespaces grant-permission NAMESPACE --role ROLE --actions consume"


def reachable(name: str, answer: str | OffloadError, where: str) -> Check:
    """A port that was tried."""
    if isinstance(answer, OffloadError):
        return fail(name, str(answer), _remedy(answer, f"{where}: {ADDRESS}"))
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


def readable(topic: str, answer: OffloadError | None) -> Check:
    """A reader was opened as workers do, which needs look-up and subscribe."""
    if answer is not None:
        return fail("read-topic", str(answer), _remedy(answer, MAY))
    return ok("read-topic", f"{topic} can be read")


def enabled(count: int, unread: Mapping[str, OffloadError], chosen: Collection[str]) -> Iterator[Check]:
    """What the configuration selects. `chosen`: namespaces that it enables."""
    for namespace, reason in unread.items():
        yield fail("namespace", f"{namespace} cannot be read: {reason}", "check its name and the role's permissions")
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


def _remedy(error: OffloadError, other: str) -> str:
    if isinstance(error, AuthenticationFailedError):
        return WHO
    return MAY if isinstance(error, AuthorizationFailedError) else other

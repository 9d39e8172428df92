"""Whether entries can be read straight from bookies, where that is configured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from offloader.errors import OffloadError
from offloader.offload.core.check import Check, fail, ok, warn

SETTING = "pulsar.metadataServiceUri"


def reachable(found: Mapping[str, OffloadError | None] | OffloadError) -> Iterator[Check]:
    """The metadata service, and all bookies that it lists."""
    if isinstance(found, OffloadError):
        yield fail("metadata-service", str(found), f"{SETTING}: check the address, and whether workers may reach it")
        return
    if not found:
        yield fail(
            "metadata-service", "no bookie is registered", f"{SETTING}: check that it is the brokers' own, its path included"
        )
        return
    yield ok("metadata-service", f"{len(found)} bookies are registered")
    silent = {name: error for name, error in found.items() if error is not None}
    remedy = (
        "check whether they run, and whether workers may reach their addresses; entries that no other bookie has are waited for"
    )
    if not silent:
        yield ok("bookies", "all registered bookies answer")
    else:
        verdict = fail if len(silent) == len(found) else warn
        yield verdict("bookies", "; ".join(str(error) for error in silent.values()), remedy)


def readable(found: str | OffloadError) -> Check:
    """One topic's entries, read as workers do."""
    if isinstance(found, OffloadError):
        return fail("read-ledger", str(found), f"{SETTING}: check that it is the brokers' own, and that bookies let us read")
    return ok("read-ledger", found)

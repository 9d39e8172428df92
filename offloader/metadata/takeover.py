"""One application takes over another one's journal and claims, for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from offloader.errors import ConfigError
from offloader.metadata.beside import last_owner
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import family_of, is_shard_of
from offloader.metadata.journal import Journal
from offloader.metadata.journal_codec import EncodedTopic
from offloader.metadata.journal_start import JournalStart
from offloader.metadata.listing import topics
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


class TakenOver(NamedTuple):
    """The topics that changed hands; and in one line each, why others were passed over: nobody knows whose they are."""

    topics: tuple[TopicName, ...]
    failed: Mapping[TopicName, str]


def takeover(
    store: ObjectStore, old_application: str, new_application: str, new_token: Callable[[], str], now: int
) -> TakenOver:
    """Take over all topics of an application. Neither of the two applications may run.

    Should the old one run, it meets a fence and stops for good; the new one stops, too, since this process opens its
    journal. Each topic's state is in the new
    journal before its catalog is claimed: so no topic is ever without an owner that knows its open segment. An
    interrupted takeover can be repeated. A topic whose catalog cannot be read stays where it is: repeat the takeover
    when it can be read. Raises ConfigError, OvertakenError, and JournalUnavailableError: repeated, it goes on."""
    if old_application == new_application:
        raise ConfigError(f"application: {new_application} cannot take over itself")
    if is_shard_of(old_application, new_application):  # whose process could never start again
        raise ConfigError(
            f"application: {old_application} is a shard of {family_of(new_application)}; `shards.count` says how many "
            "there are, and those beyond it are run by others until all of their topics are passed on"
        )
    inherited = _end_journal(store, old_application, new_application, new_token)
    catalogs = Catalogs(store, new_application)
    known, failed = catalogs.heads(topics(store))
    owned = [c for c in known.values() if c.claim is not None and c.claim.application == old_application]
    # A claim counts, whatever the old journal remembers.
    of_others = {c.topic for c in known.values() if c.claim is not None and c.claim.application != old_application}
    with Journal.open(store, new_application, new_token) as journal:
        wanted = [t for t in inherited if not (t in failed or t in journal.topics or t in of_others)]
        # Nobody is on the way to a shard any more: its name means nothing in this journal.
        journal.record(replace(inherited[topic].state, passed_to="") for topic in wanted)
    for head in owned:
        catalogs.take_over_claim(head, old_application, now)
    _inherit_released(store, catalogs, known.values(), old_application, new_application, now)
    return TakenOver(tuple(sorted({*wanted, *(c.topic for c in owned)})), failed)


def _inherit_released(
    store: ObjectStore, catalogs: Catalogs, known: Iterable[CatalogHead], old: str, new: str, now: int
) -> None:
    """What the old application had released is still nobody's: the new one decides from here on what goes of it."""
    for head in known:
        claim = head.claim
        if claim is not None and not claim.application and last_owner(store, head) == old:
            reason = f"taken over from {old}"
            catalogs.append(head, replace(claim, at=now, reason=reason, released_by=new))


def _end_journal(
    store: ObjectStore, old: str, new: str, new_token: Callable[[], str]
) -> Mapping[TopicName, EncodedTopic]:
    """Begin the old journal's last epoch, which names the new owner and keeps what there is to inherit."""
    start = JournalStart(store, old)
    loaded = start.load()
    if loaded.epoch == 0:
        raise ConfigError(
            f"application: there is no journal of {old} at {store.url}; the names are those below _journal/"
        )
    if loaded.taken_over_by == new:
        return start.decode(loaded)
    return start.new_epoch(new_token, taken_over_by=new).topics

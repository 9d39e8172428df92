"""Concludes what is true of a topic from what was observed of it; nothing else does. Pure.

No single answer proves that data may be given up. So each function here concludes the least that everything known
allows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from offloader.metadata.state import CatalogHead, TopicState
from offloader.model import LedgerList, Position
from offloader.offload.core.history import behind, first_saved, next_follows
from offloader.ports.admin import Identity


@dataclass(frozen=True, slots=True)
class TopicListing:
    """What Pulsar said of a topic at one look. `mark_delete`: where the pin stands; None: there is none. `awaited`: the
    first position behind the accounted ones that any look has seen. `token`: the pin's; None: nobody asked, or the
    broker does not know it."""

    ledgers: LedgerList
    mark_delete: Position | None
    awaited: Position | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """What is gone: `first` up to `last`, before the first ledger that is left. `extends`: it goes on from a loss."""

    first: Position
    last: Position
    extends: bool = False


def pin_target(catalog: CatalogHead, bridged: Position | None = None) -> Position | None:
    """How far the pin may be acknowledged; None: nothing is to be acknowledged. `bridged`: no further than there, since
    stock brokers are to read what is let go of.

    The last committed entry stays unacknowledged, so Pulsar lists its ledger and what follows. It is acknowledged
    where a record says that its ledger ended with it and that any next ledger follows (`pinHoldsLastEntry: false`)."""
    held, closing = _held_entry(catalog), catalog.closing
    if held is None:
        return None
    target = held if closing is not None and closing.followed_by is None else held.previous_entry
    return target if bridged is None else min(target, bridged)


def pin_moved(catalog: CatalogHead, listed: TopicListing) -> bool:
    """Whether the mark-delete is past what we acknowledge: it has reached an entry that we still hold."""
    held, mark, after = _held_entry(catalog), listed.mark_delete, catalog.accounted
    if after is None or mark is None:
        return False
    if held is not None and held != pin_target(catalog):
        return mark >= held
    start = catalog.next_start(listed.ledgers)
    return (mark.entry >= 0 and mark > after) or (start is not None and mark >= start.position)


def needs_token(catalog: CatalogHead) -> bool:
    """Whether only the token tells the claimed pin from one that was made anew.

    So it is until something is committed: we hold no entry yet, and a new pin may stand where ours would. A claim
    without a token leaves it unknown."""
    return catalog.claim is not None and catalog.claim.token != "" and catalog.end is None


def remade(catalog: CatalogHead, listed: TopicListing) -> bool:
    """Whether there is another pin than the one that the topic was claimed with."""
    return needs_token(catalog) and catalog.claim is not None and listed.token not in (None, catalog.claim.token)


def doubtful(catalog: CatalogHead, listed: TopicListing) -> bool:
    """Whether nobody can say what followed the last accounted position, although its ledger has ended.

    Either an entry behind it was seen and is gone. Or its ledger is not listed, no listed ledger is recorded as the
    next one, and the pin was moved, is gone, or is another one."""
    after, awaited, closing = catalog.accounted, listed.awaited, catalog.closing
    if after is None:
        return False
    if awaited is not None and awaited > after:
        later = listed.ledgers.next_ledger(awaited.ledger) is not None  # else the list is older than what was seen
        return awaited.ledger not in listed.ledgers and later
    known = closing is not None and closing.followed_by in listed.ledgers
    if after.ledger in listed.ledgers or known:
        return False
    return listed.mark_delete is None or remade(catalog, listed) or pin_moved(catalog, listed)


def lost(state: TopicState, catalog: CatalogHead, ledgers: LedgerList, confirmed: Position | None) -> Lost | None:
    """What is gone before it was offloaded. `confirmed`: the last entry that these ledgers store.

    The pin holds the ledger of the last accounted position. If that is not listed any more, somebody moved or deleted
    the pin, and whatever lay before the first ledger that is left counts as lost. Two ledgers may go without a loss,
    unless what followed is in doubt (`TopicState.lost_after`): one that was claimed while it was empty, and one whose
    end and successor are recorded.

    A loss ends before a ledger, or before what is uploaded of a segment ahead. If that ledger goes, too, the loss goes
    on: somebody may have written to it. Without doubt it goes on only once there is an entry behind it: a broker
    replaces an empty ledger whenever it loads the topic."""
    after = catalog.accounted
    if after is None:
        return None
    if state.open is not None:
        after = state.open.covered or after
        needed = state.open.covered or state.open.start
        gone = needed.ledger not in ledgers
    elif next_follows(state, after, behind(after, ledgers)):
        return None
    else:
        needed = after
        gone = state.lost_after is not None or (after.ledger not in ledgers and not catalog.is_settled(ledgers))
    if not gone:
        return None
    following = ledgers.next_ledger(needed.ledger)
    if following is None:
        return None
    extends = state.open is None and after.entry < 0 and catalog.end is not None
    if extends and state.lost_after is None and (confirmed is None or confirmed.ledger < following):
        return None
    last, saved = Position(after.incarnation, following, -1), first_saved(state, after)
    if saved is not None:
        last = min(last, saved.start.previous_entry)
    if last <= after:  # what is uploaded follows: a loss would end where it began, and be recorded again for ever
        return None
    return Lost(after.next_entry, last, extends)


def _held_entry(catalog: CatalogHead) -> Position | None:
    """The last committed entry. Behind a loss there is none: whatever moved the pin did so past it."""
    newest, end = catalog.newest, catalog.end
    return end if newest is not None and newest.end == end else None


# Whether a topic is there


CONFIRM_MS = 60_000
"""An absence is believed once it was seen over and over for so long. A failing ingress or a starting broker is over
by then."""
GAP_MS = 20_000
"""More than this between two looks counts no further: a clock that jumps proves nothing."""


class Being(StrEnum):
    """What became of a topic."""

    SAME = "the same topic"
    DELETED = "the topic was deleted"
    ANOTHER = "the topic was deleted and created again"
    UNKNOWN = "unknown, look again"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look, begun at `at`, found out about whether a topic is there.

    `cluster`: who answered, before and after everything else; None: two different ones. `witness`: another topic of
    ours that was there as it was claimed, before the missing one was last seen. `same`: the topic of our catalog is
    there. `another`: one that was created then is there, and is not ours. `absent`: Pulsar says that it is not there,
    and gave a list above it that lacks it. `why`: what else was answered."""

    at: int
    cluster: Identity | None = None
    witness: str = ""
    same: bool = False
    another: int | None = None
    absent: bool = False
    why: str = ""


def being(ours: str, looks: Collection[Look], *, vouched: bool = False) -> Being:
    """What a topic is by now, from all looks at it in any order. `ours`: our cluster's name; `vouched`: somebody says
    that it was deleted.

    Deleted or another one only where our own cluster has said so, and nothing else, for `CONFIRM_MS`. A witness shows
    that it is our own: an ingress that leads to another healthy Pulsar gives the same answers. Where all that we know
    vanishes at once there is no witness; then somebody must vouch."""
    ordered = sorted(set(looks), key=lambda look: (look.at, look.same))
    if ordered and ordered[-1].same:
        return Being.SAME
    run: list[Look] = []
    for look in ordered:
        if look.same:
            run.clear()
        elif (
            look.cluster is not None
            and look.cluster.cluster == ours
            and (look.witness or vouched)
            and (look.absent or look.another)
        ):
            if run and (run[-1].absent, run[-1].another, run[-1].cluster) != (look.absent, look.another, look.cluster):
                run.clear()
            run.append(look)
    lasted = sum(min(after.at - before.at, GAP_MS) for before, after in pairwise(run))
    if lasted < CONFIRM_MS:
        return Being.UNKNOWN
    return Being.DELETED if run[-1].absent else Being.ANOTHER

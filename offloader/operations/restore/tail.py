"""Whether a restore may go on in a target, and after which entry: told by what the target holds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import DamagedObjectError, FatalError, IntegrityError
from offloader.model import Position, TopicName
from offloader.operations.restore.provenance import Origin, Provenance, read_mark

PRODUCER = "offloader-restore-"


@dataclass(frozen=True, slots=True)
class Found:
    """What a target holds. `entries` counts those that brokers do not deliver, too; `last`: the last one's place.

    `last_data` is None where there is none or the broker did not deliver it. `producers`: names of those that are
    connected.
    """

    entries: int
    last: tuple[int, int] | None
    last_data: bytes | None
    producers: tuple[str, ...] = ()
    terminated: bool = False
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """The last restored entry: its number, and its position in the archive (None while there is none)."""

    number: int = 0
    position: Position | None = None


def tail_of(target: TopicName, origin: Origin, found: Found, *, settled: bool) -> Tail:
    """After what to go on. Raises FatalError where the target is neither empty nor a restore of `origin`, or cannot be
    written.

    `settled`: nothing is being written. Then IntegrityError where its entries are not those that its last one's number
    tells.
    """
    _check_usable(target, found)
    if found.entries == 0 and found.last is None:
        return Tail()
    if found.entries == 0:
        raise FatalError(
            f"{target} held entries that were removed, so nothing tells what was restored: restore to a new topic"
        )
    if found.last_data is None:
        raise FatalError(
            f"{target} is neither empty nor a restore: {_place(found)} is not a message; restore to a new topic"
        )
    mark = _mark_of(target, origin, found, found.last_data)
    if settled and mark.number != found.entries:
        raise IntegrityError(
            f"{target} holds {found.entries} entries, but the last one says that it is number {mark.number} of the "
            "restore: something was added or removed; delete the topic and restore it again"
        )
    return Tail(mark.number, mark.position)


def _check_usable(target: TopicName, found: Found) -> None:
    if found.terminated:
        raise FatalError(f"{target} is terminated: restore to a new topic")
    if found.compacted:
        raise FatalError(
            f"{target} was compacted: consumers that read compacted would miss entries; restore to a new topic"
        )
    others = [name for name in found.producers if not name.startswith(PRODUCER)]
    if others:
        raise FatalError(
            f"{target}: producer {others[0]} is connected, and a restore would fence it out: stop it first"
        )


def _mark_of(target: TopicName, origin: Origin, found: Found, data: bytes) -> Provenance:
    try:
        mark = read_mark(parse_envelope(data).metadata)
    except DamagedObjectError as error:
        raise FatalError(f"{target}: {_place(found)}: {error}; restore to a new topic") from error
    if mark is None:
        raise FatalError(
            f"{target} is neither empty nor a restore: {_place(found)} was not restored; restore to a new topic"
        )
    if mark.origin != origin:
        raise FatalError(f"{target} is a restore of {mark.origin}, not of {origin}: restore to a new topic")
    return mark


def _place(found: Found) -> str:
    return "its last entry" if found.last is None else f"its last entry {found.last[0]}:{found.last[1]}"

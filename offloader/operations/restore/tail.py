"""Whether a restore may go on in a target, and after which entry: the target's last entry tells. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import DamagedObjectError, FatalError, IntegrityError
from offloader.model import Position, TopicName
from offloader.operations.restore.provenance import Origin, Provenance, read_provenance

PRODUCER = "offloader-restore-"


@dataclass(frozen=True, slots=True)
class TargetContents:
    """What a target holds. `entries` counts those, too, that brokers do not deliver; `last`: ledger and entry.

    `last_data`: None where there is no last entry or the broker did not deliver it. `producers`: the connected ones.
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


def tail_of(target: TopicName, origin: Origin, contents: TargetContents, *, settled: bool) -> Tail:
    """The tail after which to go on. `settled`: nothing is being written.

    Raises FatalError where the target cannot be written, or is neither empty nor a restore of `origin`; IntegrityError
    where it is settled and its last entry's number is not that of its entries.
    """
    _check_usable(target, contents)
    if contents.entries == 0:
        if contents.last is None:
            return Tail()
        raise FatalError(
            f"{target} held entries that were removed, so nothing tells what was restored: restore to a new topic"
        )
    provenance = _last_provenance(target, origin, contents)
    if settled and provenance.number != contents.entries:
        raise IntegrityError(
            f"{target} holds {contents.entries} entries, but the last one says that it is number {provenance.number} "
            "of the restore: something was added or removed; delete the topic and restore it again"
        )
    return Tail(provenance.number, provenance.position)


def _check_usable(target: TopicName, contents: TargetContents) -> None:
    if contents.terminated:
        raise FatalError(f"{target} is terminated: restore to a new topic")
    if contents.compacted:
        raise FatalError(
            f"{target} was compacted: consumers that read compacted would miss entries; restore to a new topic"
        )
    other = next((name for name in contents.producers if not name.startswith(PRODUCER)), None)
    if other is not None:
        raise FatalError(f"{target}: producer {other} is connected, and a restore would fence it out: stop it first")


def _last_provenance(target: TopicName, origin: Origin, contents: TargetContents) -> Provenance:
    last = "its last entry" if contents.last is None else f"its last entry {contents.last[0]}:{contents.last[1]}"
    foreign = f"{target} is neither empty nor a restore: {last} "
    if contents.last_data is None:
        raise FatalError(f"{foreign}is not a message; restore to a new topic")
    try:
        provenance = read_provenance(parse_envelope(contents.last_data).metadata)
    except DamagedObjectError as error:
        raise FatalError(f"{target}: {last}: {error}; restore to a new topic") from error
    if provenance is None:
        raise FatalError(f"{foreign}was not restored; restore to a new topic")
    if provenance.origin != origin:
        raise FatalError(f"{target} is a restore of {provenance.origin}, not of {origin}: restore to a new topic")
    return provenance

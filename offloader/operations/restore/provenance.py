"""What a restored entry says of where it came from: properties of its outer message metadata. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.messages.envelope import text
from offloader.errors import DamagedObjectError
from offloader.model import Position, TopicName

PREFIX = "offloader.source."
ROOT, TOPIC, POSITION, NUMBER = (PREFIX + name for name in ("root", "topic", "position", "number"))
REPLICATED_FROM = PREFIX + "replicated-from"
BEFORE = PREFIX + "before."
_NAMES = (ROOT, TOPIC, POSITION, NUMBER)
# One more `before.` each time: no two become one.
_SHORT = "|".join(name.removeprefix(PREFIX) for name in (*_NAMES, REPLICATED_FROM))
_OURS = re.compile(rf"{re.escape(PREFIX)}((?:before\.)*(?:{_SHORT}))")


@dataclass(frozen=True, slots=True)
class Origin:
    """An archived topic: the uuid of its archive's root, and its name."""

    root: str
    topic: TopicName

    def __str__(self) -> str:
        return f"{self.topic} of the archive {self.root}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """An entry's position in its origin, and its number among those that were restored, from 1."""

    origin: Origin
    position: Position
    number: int


def put_provenance(metadata: MessageMetadata, provenance: Provenance) -> None:
    """Add the properties. Those that have these names already stay as `offloader.source.before.*`."""
    for each in metadata.properties:
        if found := _OURS.fullmatch(text(each.key)):
            each.key = BEFORE + found[1]
    position = provenance.position
    metadata.properties.add(key=ROOT, value=provenance.origin.root)
    metadata.properties.add(key=TOPIC, value=str(provenance.origin.topic))
    metadata.properties.add(key=POSITION, value=f"{position.incarnation}:{position.ledger}:{position.entry}")
    metadata.properties.add(key=NUMBER, value=str(provenance.number))


def read_provenance(metadata: MessageMetadata) -> Provenance | None:
    """An entry's provenance, None where it has none. Raises DamagedObjectError where it makes no sense."""
    found = {p.key: text(p.value) for p in metadata.properties if p.key in _NAMES}
    if not found:
        return None
    try:
        incarnation, ledger, entry = map(int, found[POSITION].split(":"))
        origin = Origin(found[ROOT], TopicName.parse(found[TOPIC]))
        return Provenance(origin, Position(incarnation, ledger, entry), int(found[NUMBER]))
    except (KeyError, ValueError) as error:
        raise DamagedObjectError(f"properties {PREFIX}* that no restore has written: {found}") from error

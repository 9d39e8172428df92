"""`offloader topics peek`: one position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.archive.messages.message import MAX_MESSAGE, parse_message_size
from offloader.archive.peek.entry import is_sound
from offloader.archive.peek.place import peek_facts
from offloader.archive.shown import when
from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.parsing import POSITION, TOPIC, parsed
from offloader.cli.reading import LedgersOption, archived, ledger_options
from offloader.cli.topics import topics
from offloader.model import Position, TopicName

_TIMES = ("publish_time", "event_time", "deliver_at_time", "broker_timestamp")


@topics.command()
@click.argument("topic", callback=TOPIC)
@click.argument("position", metavar="LEDGER:ENTRY", callback=POSITION)
@click.option(
    "--max-message-size",
    metavar="SIZE",
    callback=parsed(parse_message_size),
    help="A message or batch that is larger uncompressed is not opened; 5M and 10K by default, as for brokers.",
)
@ledger_options
@command()
def peek(
    session: CommandSession,
    topic: TopicName,
    position: Position,
    *,
    max_message_size: int | None,
    ledgers: LedgersOption,
) -> int:
    """Show one position of a topic: where it is stored, and every field of its entry, also such that have no name here.

    Of a gap, a loss or a deletion: what is recorded of it. Beside the topic's records it asks the bucket for the index
    object and for one range. Exit code 2 where the entry is not what its frame says (CRC32C, lengths).

    \b
    JSON: {position, incarnation, segment|ledger|loss|deleted, gap, missing, object, entry}; an entry is {size,
    brokerEntryMetadata, checksum, messageMetadata, payload, messages, problem}, with Pulsar's names of fields and bytes
    in hex.
    """
    found = archived(session, topic, ledgers).peek(position)
    facts = peek_facts(found, max_message_size or MAX_MESSAGE)
    if session.output.name == "json":
        session.output.line("", facts)
    else:
        for line in _lines(facts, ""):
            session.output.line(line, {})
    return OK if "entry" not in facts or is_sound(facts["entry"]) else FINDINGS


def _lines(facts: Mapping[str, Any], indent: str) -> Iterator[str]:
    """A field a line, what belongs to a field below it."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{name}:{'' if value else ' none'}"
            yield from _listed(value, indent + "  ")
        else:
            yield f"{indent}{name}: {_text(value)}{_note(name, value)}"


def _listed(values: list[Any], indent: str) -> Iterator[str]:
    for value in values:
        lines = _lines(value, "") if isinstance(value, dict) else iter([_text(value)])
        for number, line in enumerate(lines):
            yield f"{indent}{'  ' if number else '- '}{line}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return str(value)


def _note(name: str, value: Any) -> str:
    if name in _TIMES and value:
        return f" ({when(value)})"
    if name == "compression":
        return f" ({CompressionType.Name(value) if value in CompressionType.values() else 'unknown'})"
    return ""

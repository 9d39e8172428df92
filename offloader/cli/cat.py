"""`offloader topics cat`: reading back."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import click

from offloader.archive.continuity import spans
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.peek import look
from offloader.archive.reading.read import items
from offloader.cli.parsing import POSITION, TOPIC
from offloader.cli.session import Session, command
from offloader.cli.topics import time_text, topics
from offloader.errors import FatalError
from offloader.format.entry import inspect
from offloader.metadata.state import TopicCatalog
from offloader.model import Position, TopicName


@topics.command()
@click.argument("topic", callback=TOPIC)
@click.option(
    "--from", "start", metavar="LEDGER:ENTRY", callback=POSITION, help="First position; the archive's first by default."
)
@click.option("--to", "end", metavar="LEDGER:ENTRY", callback=POSITION, help="Last position; the archive's last by default.")
@click.option("--entries", is_flag=True, help="The entries themselves instead of what their messages say.")
@command()
def cat(session: Session, topic: TopicName, *, start: Position | None, end: Position | None, entries: bool) -> None:
    """Read a topic's archived entries, one line each, fields separated by tabs.

    Fields: position, bytes, publish time, messages, payload. A payload that would have to be decompressed, decrypted
    or unpacked from a batch is not shown: a note in parentheses says why. With --entries: position, bytes, SHA-256.
    What is recorded as missing (gaps, losses) is a line that begins with `#`.

    \b
    JSON: one object a line, {position, size, publishTime, messages, payload, undecoded}, payload in base64;
    with --entries {position, size, publishTime, messages, brokerTime, index, sha256, data}, data in base64;
    and {missing: {from, to}, why}.
    """
    catalog = session.catalogs.load(topic)
    if catalog.claim is None:
        raise FatalError(f"{topic} is not in the archive; `offloader topics list` shows what is")
    for item in items(session.store, catalog, _resolved(catalog, start), _resolved(catalog, end)):
        if isinstance(item, Missing):
            fields = {"missing": {"from": str(item.start), "to": str(item.end)}, "why": item.why}
            session.output.line(f"# {item.start}..{item.end} is missing: {item.why}", fields)
        elif entries:
            _show_entry(session, item)
        else:
            _show_message(session, item)


def _resolved(catalog: TopicCatalog, position: Position | None) -> Position | None:
    """In the incarnation that had the ledger; ledger ids are not used twice."""
    if position is None:
        return None
    had = (s.start.incarnation for s in spans(catalog) if s.start.ledger <= position.ledger <= s.end.ledger)
    newest = catalog.claim.incarnation if catalog.claim is not None else 0
    return replace(position, incarnation=next(had, newest))


def _show_message(session: Session, entry: ArchivedEntry) -> None:
    seen = look(entry.data)
    when = None if seen.publish_time is None else time_text(seen.publish_time)
    shown = f"({seen.undecoded}: not decoded)" if seen.payload is None else _text(seen.payload)
    line = f"{entry.position}\t{len(entry.data)}\t{when or '-'}\t{seen.messages}\t{shown}"
    fields = {
        "position": str(entry.position),
        "size": len(entry.data),
        "publishTime": when,
        "messages": seen.messages,
        "payload": None if seen.payload is None else _base64(seen.payload),
        "undecoded": seen.undecoded or None,
    }
    session.output.line(line, fields)


def _show_entry(session: Session, entry: ArchivedEntry) -> None:
    facts = inspect(entry.data)
    digest = hashlib.sha256(entry.data).hexdigest()
    fields = {
        "position": str(entry.position),
        "size": len(entry.data),
        "publishTime": None if facts.publish_time is None else time_text(facts.publish_time),
        "messages": facts.messages,
        "brokerTime": None if facts.broker_time is None else time_text(facts.broker_time),
        "index": facts.broker_index,
        "sha256": digest,
        "data": _base64(entry.data),
    }
    session.output.line(f"{entry.position}\t{len(entry.data)}\t{digest}", fields)


def _text(payload: bytes) -> str:
    """Readable on one line, whatever the bytes."""
    text = payload.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()

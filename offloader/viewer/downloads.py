"""A range of a topic to be saved: sent as it is read, bounded, and with a last line that says how it ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import chain

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.encryption import KeyReader
from offloader.archive.messages.message import Message
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.selection import Selection
from offloader.archive.shown import (
    entry_fields,
    hex_lines,
    message_fields,
    message_head,
    missing_fields,
    missing_line,
    value_shown,
)
from offloader.archive.topic import ArchivedTopic
from offloader.errors import OffloadError
from offloader.model import GIB, Position

MOST_BYTES = GIB
MOST_SECONDS = 3600.0
PIECE = 64 * 1024

Line = Callable[[Item | Message], str]


def text_line(item: Item | Message) -> str:
    """As `topics cat` prints it."""
    match item:
        case Missing():
            return missing_line(item)
        case ArchivedEntry():
            return f"{item.position}\t{len(item.data)}\t{hashlib.sha256(item.data).hexdigest()}"
        case Message():
            return f"{message_head(item)}\t{value_shown(item)}"


def json_line(item: Item | Message) -> str:
    """The same as an object."""
    match item:
        case Missing():
            return json.dumps(missing_fields(item))
        case ArchivedEntry():
            return json.dumps(entry_fields(item))
        case Message():
            return json.dumps(message_fields(item))


def hex_text(item: Item | Message) -> str:
    """A head, then the bytes."""
    match item:
        case Missing():
            return missing_line(item)
        case ArchivedEntry():
            return "\n".join([f"{item.position}\t{len(item.data)}", *hex_lines(item.data)])
        case Message():
            head = message_head(item) if item.value is not None else f"{message_head(item)}\t{value_shown(item)}"
            return "\n".join([head, *hex_lines(item.value or b"")])


FORMS: dict[str, Line] = {"text": text_line, "json": json_line, "hex": hex_text}


def items_of(
    topic: ArchivedTopic, selection: Selection, keys: KeyReader | None, *, entries: bool
) -> Iterator[Item | Message | Position]:
    """Messages or entries, and what is missing in its place. A position says how far it is where nothing came yet:
    consumers may get no message of very many entries."""
    if entries:
        yield from topic.items(selection)
        return
    from offloader.archive.messages.filters import MessageFilter

    unpacker = Unpacker(topic.unpacking(keys), MessageFilter(selection.published_from, selection.published_to))
    for run in topic.runs(selection):
        if isinstance(run, Missing):
            yield run
        else:
            yield Position(run.incarnation, run.ledger, run.first)
            yield from unpacker.messages(run)


def lines_of(items: Iterator[Item | Message | Position], form: str, clock: Callable[[], float]) -> Iterator[bytes]:
    """The pieces of a download. Raises what the first of the items raises; a later error is in the last line."""
    first = next(items, None)
    return _pieces(items if first is None else chain([first], items), form, clock, items)


def _pieces(
    found: Iterator[Item | Message | Position],
    form: str,
    clock: Callable[[], float],
    source: Iterator[Item | Message | Position],
) -> Iterator[bytes]:
    line, until, sent, count = FORMS[form], clock() + MOST_SECONDS, 0, 0
    held, yielded, before = list[bytes](), 0, None
    ended = "complete"
    try:
        for item in found:
            position = _position(item)
            if (sent > MOST_BYTES or clock() > until) and position != before:  # a batch is not cut: it has one position
                ended = f"there is more: go on from {position}"
                break
            before = position
            if isinstance(item, Position):
                continue
            held.append(f"{line(item)}\n".encode())
            sent += len(held[-1])
            count += not isinstance(item, Missing)
            if sent - yielded >= PIECE:
                yield b"".join(held)
                held.clear()
                yielded = sent
    except OffloadError as error:
        ended = f"ended early: {error}"
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
    if form == "json":
        held.append(f"{json.dumps({'end': ended, 'count': count})}\n".encode())
    else:
        shown = ended.encode("unicode_escape").decode()
        held.append(f"# {count}: {shown}\n".encode())
    yield b"".join(held)


def _position(item: Item | Message | Position) -> Position:
    if isinstance(item, Position):
        return item
    return item.start if isinstance(item, Missing) else item.position

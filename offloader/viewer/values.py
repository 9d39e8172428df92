"""The ways to look at a payload: by its schema, as JSON, as text, as hex. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice

from offloader.archive.shown import hex_lines
from offloader.errors import DamagedRecordError
from offloader.json_text import parse_json
from offloader.pages.rendering import TextBlock, text_block
from offloader.ports.topic_states import TopicSchema
from offloader.viewer.schemas import decoded

SHOWN_TEXT = 16 * 1024  # characters
SHOWN_HEX = 4 * 1024  # bytes
LARGEST_DECODED = 512 * 1024  # of what is larger the beginning is shown as text
UNBOUNDED = frozenset(("JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE"))  # two bytes may be a value of these


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at it. `note`: what has to be known beside it; `cut`: there is more."""

    name: str
    text: TextBlock
    note: str = ""
    cut: bool = False


def views_of(value: bytes, schema: TopicSchema | None = None) -> list[View]:
    """The best one first. There is always hex."""
    found = [view for view in (_by_schema(value, schema), _as_json(value), _as_text(value)) if view is not None]
    if len(found) > 1 and found[0].text == found[1].text:  # the schema says that it is JSON, and it is
        del found[1]
    return [*found, _as_hex(value)]


def json_text(value: object) -> tuple[str, bool]:
    """With a field a line; and whether there is more than is shown."""
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False, default=_bytes_as_hex)
    pieces, length = [], 0
    try:
        for piece in encoder.iterencode(value):
            pieces.append(piece[: SHOWN_TEXT - length])
            length += len(piece)
            if length > SHOWN_TEXT:
                return "".join(pieces), True
    except RecursionError:
        return "".join(pieces), True
    return "".join(pieces), False


def _by_schema(value: bytes, schema: TopicSchema | None) -> View | None:
    if schema is None or schema.type in ("BYTES", "NONE"):
        return None
    name = f"{schema.type}, version {schema.version}"
    if schema.type in UNBOUNDED and len(value) > LARGEST_DECODED:
        return View(name, TextBlock(""), f"It is larger than {LARGEST_DECODED} bytes, too large to be decoded here.")
    try:
        text, cut = json_text(decoded(schema, value))
    except DamagedRecordError as error:
        return View(name, TextBlock(""), f"The schema does not fit: {error}")
    return View(name, text_block(text), cut=cut)


def _as_json(value: bytes) -> View | None:
    if not value[:1].strip() or value.lstrip()[:1] not in (b"{", b"[") or len(value) > LARGEST_DECODED:
        return None
    try:
        text, cut = json_text(parse_json(value))
    except ValueError:
        return None
    return View("JSON", text_block(text), cut=cut)


def _as_text(value: bytes) -> View | None:
    try:
        value[: 4 * SHOWN_TEXT].decode()
    except UnicodeDecodeError as error:
        if error.start < len(value[: 4 * SHOWN_TEXT]) - 3:  # else the cut went through a character
            return None
    shown = value[: 4 * SHOWN_TEXT].decode(errors="ignore")
    return View("Text", text_block(shown[:SHOWN_TEXT]), cut=len(shown) > SHOWN_TEXT or len(value) > 4 * SHOWN_TEXT)


def _as_hex(value: bytes) -> View:
    lines = islice(hex_lines(value[:SHOWN_HEX]), SHOWN_HEX)
    return View("Hex", text_block("\n".join(lines)), cut=len(value) > SHOWN_HEX)


def _bytes_as_hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)

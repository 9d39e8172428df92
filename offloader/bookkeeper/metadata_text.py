"""The text form of LedgerMetadataFormat (format 2), and how its unknown fields survive a rewrite. Pure.

Protobuf's text parser drops fields that it does not know, so we keep the text of those, and of each field that did not
change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from google.protobuf import text_format

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.errors import DamagedRecordError

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<open>[{<\[])
    |(?P<close>[}>\]])
    |(?P<mark>[:,;])
    |(?P<word>[^\s"'{}<>\[\]:,;\#]+)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"""\\(?:[abfnrtv\\'"]|[0-3][0-7]{2}|[0-7]{1,2}(?![0-7])|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"""
)
_KNOWN = LedgerMetadataFormat.DESCRIPTOR.fields_by_name


class _Field(NamedTuple):
    name: str
    text: str

    @property
    def meaning(self) -> bytes:
        """What we know of it: the same for the same value, however it is written."""
        return text_format.Parse(self.text, LedgerMetadataFormat(), allow_unknown_field=True).SerializePartialToString()


def parse_text(body: bytes) -> LedgerMetadataFormat:
    """The message without what we do not know of it. Raises DamagedRecordError."""
    try:
        text = body.decode()
        if "\\" in _ESCAPE.sub("", text):
            raise text_format.ParseError("a backslash begins no escape sequence")  # the parser only warns
        return text_format.Parse(text, LedgerMetadataFormat(), allow_unknown_field=True)
    except (UnicodeError, text_format.ParseError, RecursionError) as error:
        raise DamagedRecordError(f"a ledger's metadata are no text that can be read: {error}") from error


def merge_text(message: LedgerMetadataFormat, before: bytes) -> bytes:
    """The message as text, with what `before`, from which it comes, has that we do not know."""
    old: defaultdict[bytes, list[str]] = defaultdict(list)
    unknown = []
    for field in _fields(before.decode()):
        if field.name in _KNOWN:
            old[field.meaning].append(field.text)
        else:
            unknown.append(field.text)
    new = _fields(text_format.MessageToString(message))
    texts = [old[meaning].pop(0) if old[meaning := field.meaning] else field.text for field in new]
    return "\n".join([*texts, *unknown, ""]).encode()


def _fields(text: str) -> Iterator[_Field]:
    """The outermost fields, each with its text."""
    for (begin, name), (end, _) in pairwise([*_beginnings(text), (len(text), "")]):
        yield _Field(name, text[begin:end].rstrip(" \t\r\n,;"))


def _beginnings(text: str) -> Iterator[tuple[int, str]]:
    """Where an outermost field's name stands: a word that a colon or a block follows and no colon precedes."""
    depth, before = 0, ""
    candidate: tuple[int, str] | None = None
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[0]
        if kind == "space":
            continue
        if candidate is not None and word in (":", "{", "<"):
            yield candidate
        candidate = (token.start(), word) if kind == "word" and depth == 0 and before != ":" else None
        depth += (kind == "open") - (kind == "close")
        before = word

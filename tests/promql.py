"""What an expression of PromQL names: metrics, the labels that it asks for, and the values that it wants of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

GROUPINGS = frozenset(("by", "without", "on", "ignoring", "group_left", "group_right"))
WORDS = GROUPINGS | {"and", "or", "unless", "offset", "bool", "inf", "nan", "start", "end"}
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<variable>\$\w+|\$\{\w+\})
    | (?P<number>(?:\d+(?:ms|[smhdwy]))+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],:@])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """`kind`: a name of the groups of `_TOKEN`."""

    kind: str
    text: str


@dataclass
class Named:
    """What one expression names. `matched`: label and value of each selector, with its metric."""

    metrics: set[str] = field(default_factory=set)
    matched: list[tuple[str, str, str]] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def named(expression: str) -> Named:
    """Raises ValueError where it is no expression that this reads."""
    tokens = [*_tokens(expression), Token("end", "")]
    found, place = Named(), 0
    while tokens[place].kind != "end":
        token, following = tokens[place], tokens[place + 1]
        place += 1
        if token.kind != "name":
            continue
        if token.text in GROUPINGS:
            if following.text == "(":
                labels, place = _list(tokens, place + 1)
                found.grouped |= labels
        elif token.text not in WORDS and not (following.text == "(" or _aggregates(tokens, place)):
            found.metrics.add(token.text)
            if following.text == "{":
                place = _selector(tokens, place + 1, token.text, found)
    return found


def _tokens(text: str) -> Iterator[Token]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise ValueError(f"not read: {text[place:]!r}")
        place = match.end()
        if match.lastgroup != "space":
            yield Token(match.lastgroup, match[0])


def _aggregates(tokens: list[Token], place: int) -> bool:
    """Whether `sum by (…) (…)` begins here: the name before `by` is a function."""
    return tokens[place].text in ("by", "without")


def _list(tokens: list[Token], place: int) -> tuple[set[str], int]:
    labels = set()
    while tokens[place].text != ")":
        if tokens[place].kind == "end":
            raise ValueError("a list of labels does not end")
        if tokens[place].kind == "name":
            labels.add(tokens[place].text)
        place += 1
    return labels, place + 1


def _selector(tokens: list[Token], place: int, metric: str, found: Named) -> int:
    while tokens[place].text != "}":
        label, sign, value = tokens[place : place + 3]
        if label.kind != "name" or sign.text not in ("=", "!=", "=~", "!~") or value.kind != "string":
            raise ValueError(f"no selector: {label.text}{sign.text}{value.text}")
        texts = value.text[1:-1].split("|") if "~" in sign.text else [value.text[1:-1]]
        found.matched += [(metric, label.text, text) for text in texts]
        place += 3
        if tokens[place].text == ",":
            place += 1
    return place + 1

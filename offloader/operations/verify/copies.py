"""Records of journals that stand twice: every write has a token of its own. (A catalog's record says itself where it belongs.)"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from offloader.archive.findings import Finding, FindingKind
from offloader.metadata.layout import parse_topic_key


def copies(tokens: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Of records given as (key, token): those whose token another one has. Which of the two is the copy nobody can tell."""
    keys: dict[str, list[str]] = {}
    for key, token in tokens:
        keys.setdefault(token, []).append(key)
    for same in keys.values():
        for key in same if len(same) > 1 else ():
            parsed = parse_topic_key(key)
            others = ", ".join(other for other in same if other != key)
            topic = None if parsed is None else parsed.topic
            yield Finding(FindingKind.DAMAGED_RECORD, key, f"the same record as {others}: one of them is a copy", topic)

"""What is said of an entry, bounded: a producer may put millions of fields into one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

MOST_VALUES = 5_000
MOST_OF_A_LIST = 200


@dataclass(frozen=True, slots=True)
class FewFacts:
    """The first of them. `cut`: there are more."""

    facts: object
    cut: bool


def few_of(facts: Mapping[str, object], most: int = MOST_VALUES) -> FewFacts:
    """At most so many values of them, and of a list at most `MOST_OF_A_LIST`."""
    left, cut = most, False

    def copied(value: object) -> object:
        nonlocal left, cut
        left -= 1
        if isinstance(value, Mapping):
            shown = dict(islice(value.items(), max(left, 0)))
            cut = cut or len(shown) < len(value)
            return {name: copied(each) for name, each in shown.items()}
        if isinstance(value, list):
            shown_of_list = value[: max(min(left, MOST_OF_A_LIST), 0)]
            cut = cut or len(shown_of_list) < len(value)
            return [copied(each) for each in shown_of_list]
        return value

    return FewFacts(copied(facts), cut)

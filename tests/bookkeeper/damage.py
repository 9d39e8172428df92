"""Bytes that were damaged: some flipped, some cut out or put in, or all of them noise."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """What may become of `data`."""
    places = st.integers(0, len(data))
    new = st.binary(max_size=4) | st.text("\\\"'{}<>[]:,;#\n 07x", max_size=4).map(str.encode)
    edits = st.lists(st.tuples(places, places, new), min_size=1, max_size=3)
    return st.one_of(st.binary(max_size=80), edits.map(lambda chosen: _edited(data, chosen)))


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for begin, end, new in edits:
        data = data[: min(begin, end)] + new + data[min(max(begin, end), begin + 4) :]
    return data


def refusal(decode: Callable[[], object], *kinds: type[Exception]) -> str | None:
    """The one line with which it refuses; None where it does not. Any other exception is raised."""
    try:
        decode()
    except kinds as error:
        text = str(error)
    else:
        return None
    assert text
    assert "\n" not in text
    return text

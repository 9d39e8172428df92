"""A topic's catalog in few pieces, however long it is: sums from its manifests, single records where they are few."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.metadata.history import History
from offloader.metadata.manifest import FAN, ManifestNode, frontier, row_of
from offloader.viewer.piece import Piece

MOST = 256  # pieces


def outline(history: History, first: int, after: int, most: int = MOST) -> list[Piece]:
    """The slots from `first` up to `after` in at most about `most` pieces. Records are read where all of them are not
    more than that; else manifests alone, some few. Raises DamagedRecordError, and what the store raises."""
    if after - first <= most:
        numbers = range(first, after)
        read = zip(numbers, history.read(numbers), strict=True)
        return [Piece(number, number + 1, row_of(written.record), written.record) for number, written in read]

    def within(pieces: Iterator[tuple[ManifestNode | None, Piece]]) -> list[tuple[ManifestNode | None, Piece]]:
        return [(node, piece) for node, piece in pieces if piece.first < after and piece.after > first]

    found = within(_top(history))
    while found:
        at = max(range(len(found)), key=lambda index: found[index][1].count)
        node = found[at][0]
        if node is None:
            break
        below = within(_below(history, node))
        if len(found) - 1 + len(below) > most:
            break
        found[at : at + 1] = below
    return [piece for _, piece in found]


def _top(history: History) -> Iterator[tuple[ManifestNode | None, Piece]]:
    leaves = history.leaves
    for node, row in zip(frontier(leaves), history.before(leaves), strict=True):
        yield node, Piece(node.slots.start, node.slots.stop, row)
    tail = range(leaves * FAN, history.head.next_slot)
    for number, written in zip(tail, history.read(tail), strict=True):
        yield None, Piece(number, number + 1, row_of(written.record), written.record)


def _below(history: History, node: ManifestNode) -> Iterator[tuple[ManifestNode | None, Piece]]:
    for index, row in enumerate(history.manifest(node).rows):
        if node.level > 0:
            child = node.child(index)
            yield child, Piece(child.slots.start, child.slots.stop, row)
        else:
            number = node.slots[index]
            yield None, Piece(number, number + 1, row)

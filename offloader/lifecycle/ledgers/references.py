"""What the nodes of a metadata store refer to: ledger lists, cursors, schema locators, compacted views. Pure.

A node that cannot be read is a value, too: whoever depends on it is not judged. A node that says more than we know (a
newer version wrote it) may refer to ledgers in a way that we do not see; `says_more` tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.lifecycle.ledgers.kinds import COMPACTION, RefereeKind
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.names import encoded
from offloader.state.subscription import CursorState


@dataclass(frozen=True, slots=True)
class UnreadableNode:
    """A node whose value is damaged, or an answer that did not come."""

    version: int
    why: str


@dataclass(frozen=True, slots=True)
class LocatorNode:
    """A topic's schema locator: the ledgers of all its versions, in order.

    `whole`: no version is missing in its index. Old brokers left some out and found them by the entries of others.
    `created_ms`, `born`: as of a `ManagedLedger`.
    """

    version: int
    ledgers: tuple[int, ...]
    whole: bool = True
    says_more: bool = False
    created_ms: int | None = None
    born: int | None = None

    @property
    def greatest(self) -> int:
        return self.ledgers[-1]


@dataclass(frozen=True, slots=True)
class References:
    """All that one metadata store refers to.

    `lists` by the managed ledgers' names, `cursors` by these and by subscription (decoded), `schemas` by their ids.
    `views`: the last entries of the ledgers of the cursors named `__compaction`, by managed ledger: all of them that
    have a ledger. `packages`: the ledgers of functions' packages. `namespaces`: those that have policies.
    """

    store: str
    namespaces: frozenset[str] = frozenset()
    lists: Mapping[str, ManagedLedger | UnreadableNode] = field(default_factory=dict, hash=False)
    cursors: Mapping[str, Mapping[str, CursorState | UnreadableNode]] = field(default_factory=dict, hash=False)
    schemas: Mapping[str, LocatorNode | UnreadableNode] = field(default_factory=dict, hash=False)
    views: Mapping[str, CursorState | UnreadableNode] = field(default_factory=dict, hash=False)
    packages: frozenset[int] = frozenset()


class Referee(NamedTuple):
    """A node that names, or would have to name, a ledger. `version` None: it is not there."""

    store: str
    kind: RefereeKind
    node: str
    version: int | None


def list_path(managed_ledger: str) -> str:
    """The node of a managed ledger, below the store's root."""
    return f"/managed-ledgers/{managed_ledger}"


def cursor_path(managed_ledger: str, cursor: str) -> str:
    """The node of a subscription's cursor."""
    return f"{list_path(managed_ledger)}/{encoded(cursor)}"


def schema_path(schema: str) -> str:
    """The node of a schema locator."""
    return f"/schemas/{schema}"


def view_of(references: References, managed_ledger: str) -> int | UnreadableNode | None:
    """The compacted view that a topic uses: by its cursor ledger's last entry, by the cursor's node where it has no
    ledger. None: none is named."""
    cursor = references.cursors.get(managed_ledger, {}).get(COMPACTION)
    if cursor is None or isinstance(cursor, UnreadableNode):
        return cursor
    if cursor.cursor_ledger is None:
        return cursor.view
    last = references.views.get(managed_ledger)
    if last is None:
        return UnreadableNode(cursor.version, f"the last entry of cursor ledger {cursor.cursor_ledger} was not read")
    if isinstance(last, UnreadableNode):
        return last
    if last.cursor_ledger != cursor.cursor_ledger or last.says_more:
        return UnreadableNode(cursor.version, f"the last entry of cursor ledger {cursor.cursor_ledger} is not known")
    return last.view


def named_ledgers(references: References) -> Iterator[tuple[int, Referee]]:
    """Every ledger that is named and should be in BookKeeper, with who names it."""
    store = references.store
    for name, listed in references.lists.items():
        if isinstance(listed, ManagedLedger):
            referee = Referee(store, RefereeKind.LEDGER_LIST, list_path(name), listed.version)
            yield from ((one.ledger, referee) for one in listed.ledgers if not one.copy.bookkeeper_deleted)
    for name, cursors in references.cursors.items():
        for cursor, node in cursors.items():
            if isinstance(node, CursorState):
                yield from _named_by_cursor(references, name, cursor, node)
    for schema, locator in references.schemas.items():
        if isinstance(locator, LocatorNode):
            referee = Referee(store, RefereeKind.SCHEMA_LOCATOR, schema_path(schema), locator.version)
            yield from ((ledger, referee) for ledger in locator.ledgers)
    for ledger in references.packages:
        yield ledger, Referee(store, RefereeKind.FUNCTIONS_LOG, "/pulsar/functions", None)


def _named_by_cursor(
    references: References, managed_ledger: str, cursor: str, node: CursorState
) -> Iterator[tuple[int, Referee]]:
    path = cursor_path(managed_ledger, cursor)
    if node.cursor_ledger is not None:
        yield node.cursor_ledger, Referee(references.store, RefereeKind.CURSOR_NODE, path, node.version)
    for ledger in node.buckets.values():
        yield ledger, Referee(references.store, RefereeKind.DELAYED_BUCKETS, path, node.version)
    view = view_of(references, managed_ledger) if cursor == COMPACTION else None
    if isinstance(view, int):
        yield view, Referee(references.store, RefereeKind.COMPACTION_CURSOR, path, node.version)

"""Whether objects of Pulsar's own offloader are orphans: by their uuids in the ledger lists. Pure.

They are another program's. A running offload is listed, with its uuid, before it uploads; so what no list names,
complete or not, nobody will read. An object whose metadata say another cluster, or none, is foreign."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from offloader.lifecycle.bucket.verdicts import CERTAIN, SUSPECT, BucketRuling, Doubts, too_young
from offloader.lifecycle.ledgers.references import ListNode, References, UnreadableNode
from offloader.metadata.stock_keys import LedgerKey
from offloader.model import TopicName

CLUSTER, OWNER = "pulsarclustername", "managedledgername"


@dataclass(frozen=True, slots=True)
class StockNames:
    """What the lists name. `copies`: by ledger, the uuids that any list has for it. `unreadable`: lists that could not
    be read. `says_more`: managed ledgers whose lists say what we do not know."""

    copies: Mapping[int, frozenset[str]]
    namespaces: frozenset[str]
    unreadable: tuple[str, ...] = ()
    says_more: frozenset[str] = frozenset()

    def names(self, key: LedgerKey) -> bool:
        """Whether any list names this copy, complete or not."""
        return key.uuid in self.copies.get(key.ledger, ())


def stock_names(stores: Iterable[References]) -> StockNames:
    """From all metadata stores. They were read after the objects' keys."""
    copies: dict[int, frozenset[str]] = {}
    namespaces, unreadable, says_more = set[str](), list[str](), set[str]()
    for store in stores:
        namespaces |= store.namespaces
        for name, node in store.lists.items():
            if isinstance(node, UnreadableNode):
                unreadable.append(name)
            elif isinstance(node, ListNode):
                if node.says_more:
                    says_more.add(name)
                for one in node.ledgers:
                    uuid = () if one.copy is None else (one.copy.uuid,)
                    copies[one.ledger] = copies.get(one.ledger, frozenset()).union(uuid)
    return StockNames(copies, frozenset(namespaces), tuple(sorted(unreadable)), frozenset(says_more))


def stock_ruling(
    key: LedgerKey, meta: Mapping[str, str], names: StockNames, cluster: str, modified_ms: int | None, doubts: Doubts
) -> BucketRuling | None:
    """Of what no list names; None: it is foreign."""
    if meta.get(CLUSTER) != cluster:
        return None
    owner = meta.get(OWNER, "")
    namespace = "/".join(owner.split("/")[:2])
    said: tuple[str, ...] = (f"No ledger list has the copy {key.uuid} of ledger {key.ledger}.",)
    if key.ledger in names.copies:
        said += (f"Ledger {key.ledger} is listed, with another copy or with none.",)
    doubt = [*doubts.of_all, *too_young(modified_ms, doubts)]
    if names.unreadable:
        doubt.append(f"{len(names.unreadable)} ledger lists cannot be read, the first of {names.unreadable[0]}.")
    if owner in names.says_more or (names.says_more and not owner):
        doubt.append(f"The list of {owner or 'some topic'} says more than we know: look with a newer version.")
    if not names.copies:
        doubt.append("No ledger list was found at all: look whether the metadata store is the right one.")
    elif owner and namespace not in names.namespaces:
        doubt.append(f"Nobody knows its namespace {namespace}.")
    elif not owner:
        doubt.append("It does not say whose it is.")
    return BucketRuling(SUSPECT if doubt else CERTAIN, (*said, *doubt))


def owner_of(meta: Mapping[str, str]) -> TopicName | None:
    """The topic of which an object is a copy, as its metadata say it; None: they name none."""
    parts = meta.get(OWNER, "").split("/")
    if len(parts) != 4 or parts[2] != "persistent" or not all(parts):
        return None
    return TopicName(parts[0], parts[1], unquote(parts[3]))

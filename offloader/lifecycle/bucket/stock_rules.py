"""Whether objects of Pulsar's own offloader are orphans: by their uuids in the ledger lists. Pure.

They are another program's. A running offload is listed, with its uuid, before it uploads; so what no list names,
complete or not, nobody will read. An object whose metadata say another cluster, or none, is foreign.

Metadata may have been rolled back, to before the offload: then the list names the ledger in BookKeeper, where it is not
any more, or does not have it yet. As with ledgers, what no trim leaves behind is data, and is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from offloader.lifecycle.bucket.verdicts import CERTAIN, SUSPECT, BucketRuling, Doubts, too_young
from offloader.lifecycle.ledgers.references import References, UnreadableNode
from offloader.metadata.stock_keys import LedgerKey
from offloader.model import TopicName
from offloader.state.managed_ledger import ManagedLedger

CLUSTER, OWNER = "pulsarclustername", "managedledgername"


@dataclass(frozen=True, slots=True)
class StockNames:
    """What the lists name. `copies`: by ledger, the uuids that any list has for it. `unreadable`: lists that could not
    be read. `says_more`: managed ledgers whose lists say what we do not know. `lists`: all that each managed ledger
    has. `complete`: ledgers of which a list has a whole copy."""

    copies: Mapping[int, frozenset[str]]
    namespaces: frozenset[str]
    unreadable: tuple[str, ...] = ()
    says_more: frozenset[str] = frozenset()
    lists: Mapping[str, Sequence[ManagedLedger]] = field(default_factory=dict, hash=False)
    complete: frozenset[int] = frozenset()

    def names(self, key: LedgerKey) -> bool:
        """Whether any list names this copy, complete or not."""
        return key.uuid in self.copies.get(key.ledger, ())


def stock_names(stores: Iterable[References]) -> StockNames:
    """From all metadata stores. They were read after the objects' keys."""
    copies: dict[int, frozenset[str]] = {}
    namespaces, unreadable, says_more = set[str](), list[str](), set[str]()
    lists, complete = defaultdict[str, list[ManagedLedger]](list), set[int]()
    for store in stores:
        namespaces |= store.namespaces
        for name, node in store.lists.items():
            if isinstance(node, UnreadableNode):
                unreadable.append(name)
            elif isinstance(node, ManagedLedger):
                lists[name].append(node)
                if node.says_more:
                    says_more.add(name)
                for one in node.ledgers:
                    uuid = () if one.context is None else (one.context.uuid,)
                    if one.copy.complete:
                        complete.add(one.ledger)
                    copies[one.ledger] = copies.get(one.ledger, frozenset()).union(uuid)
    return StockNames(
        copies, frozenset(namespaces), tuple(sorted(unreadable)), frozenset(says_more), lists, frozenset(complete)
    )


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
    if doubt:
        return BucketRuling(SUSPECT, (*said, *doubt))
    data = _why_data(key.ledger, names, names.lists.get(owner, ()), modified_ms or 0)
    return BucketRuling(SUSPECT, (*said, data), kept=True) if data else BucketRuling(CERTAIN, said)


def doubted(ruling: BucketRuling, why: str) -> BucketRuling:
    """The same, with one more doubt."""
    return BucketRuling(SUSPECT, (*ruling.evidence, why), ruling.kept)


def _why_data(ledger: int, names: StockNames, lists: Sequence[ManagedLedger], modified_ms: int) -> str:
    """Why it may be the only copy of what somebody wrote; "": a trim, or another copy, has left it behind."""
    if ledger in names.copies:
        if ledger in names.complete:
            return ""
        return "No list has a whole copy of its ledger: where metadata were rolled back, it is the only one. It stays."
    if not lists:
        return ""  # the whole topic is gone
    if not all(node.created_ms is not None and node.created_ms <= modified_ms for node in lists):
        return "It is older than its ledger list: it was not this one that was trimmed. It is data. It stays."
    first = min((node.ledgers[0].ledger for node in lists if node.ledgers), default=None)
    if first is not None and ledger < first:
        return ""
    begins = "is empty" if first is None else f"begins before it, with ledger {first}"
    return f"Its list {begins}: no trim leaves that. It is data. It stays."


def owner_of(meta: Mapping[str, str]) -> TopicName | None:
    """The topic of which an object is a copy, as its metadata say it; None: they name none."""
    parts = meta.get(OWNER, "").split("/")
    if len(parts) != 4 or parts[2] != "persistent" or not all(parts):
        return None
    return TopicName(parts[0], parts[1], unquote(parts[3]))

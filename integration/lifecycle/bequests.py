"""Orphans that deletions leave behind, and ledgers of others that lie beside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from integration.bookkeeper.contents import Contents
from integration.bookkeeper.official import Shape
from integration.lifecycle import topics
from integration.lifecycle.ground import KEPT, Ground, list_of, path_of
from integration.lifecycle.makings import CERTAIN, SUSPECT, LeftBehind, Making, deletes
from integration.pulsar.waiting import until
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.model import TopicName
from offloader.state.managed_ledger_codec import decode_record

_SHAPE = {"ensemble": 2, "write_quorum": 2, "ack_quorum": 2}
_CONTENTS = Contents(seed=1)
_NUMBERS = itertools.count()
_GONE = {"application": "pulsar", "component": "managed-ledger", "pulsar/managed-ledger": f"{KEPT}/persistent/gone"}


def deleted_compacted(ground: Ground) -> list[LeftBehind]:
    """`DELETE` of a compacted topic that no broker has loaded."""
    topic = topics.compacted(ground)
    made = topics.views(ground, topic)
    delete_unloaded(ground, topic)
    return [LeftBehind("deleted compacted", ledger, LedgerKind.COMPACTED_VIEW, CERTAIN, topic) for ledger in made]


def deleted_delayed(ground: Ground) -> list[LeftBehind]:
    """The same for a topic with delayed messages."""
    topic = topics.delayed(ground)
    ground.unload(topic)
    made = topics.indexes(ground, topic)
    delete_unloaded(ground, topic)
    return [LeftBehind("deleted delayed", ledger, LedgerKind.DELAYED_INDEX, CERTAIN, topic) for ledger in made]


def deleted_transactional(ground: Ground) -> list[LeftBehind]:
    """The same for a topic with pending acknowledgements: no orphans, but a managed ledger that belongs to nobody."""
    topic = topics.transactional(ground)
    delete_unloaded(ground, topic)
    assert ground.naming(managed_ledger=topics.pending_acks(topic))
    return []


def deleted_namespace(ground: Ground) -> list[LeftBehind]:
    """`DELETE` of a namespace with force, its topics unloaded. Nobody knows the namespace any more."""
    namespace = ground.new_namespace()
    compacted, delayed = topics.compacted(ground, namespace), topics.delayed(ground, namespace)
    for topic in (compacted, delayed):
        ground.unload(topic)
    kinds = {
        **dict.fromkeys(topics.views(ground, compacted), LedgerKind.COMPACTED_VIEW),
        **dict.fromkeys(topics.indexes(ground, delayed), LedgerKind.DELAYED_INDEX),
    }
    of = {LedgerKind.COMPACTED_VIEW: compacted, LedgerKind.DELAYED_INDEX: delayed}
    until(lambda: ground.cluster.broker().answer("DELETE", f"namespaces/{namespace}?force=true").status_code == 204)
    left = {ledger: kind for ledger, kind in kinds.items() if ledger in ground.ledgers()}
    return [LeftBehind("deleted namespace", ledger, kind, SUSPECT, of[kind]) for ledger, kind in sorted(left.items())]


def offloaded_cut(ground: Ground) -> list[LeftBehind]:
    """A broker dies between `bookkeeperDeleted` and the delete of an offloaded ledger. Until its copy is read back, it
    is suspect."""
    topic = ground.new_topic("offloaded")
    ground.produce(topic, 25)
    owner = ground.owner(topic)
    last = owner.admin("GET", f"{topic.rest_path}/internalStats").json()["lastConfirmedEntry"]
    ledger, _, entry = last.partition(":")
    before = ground.listed(topic)[:-1]
    with ground.cluster.proxy.freezing(deletes({path_of(one) for one in before})) as frozen:
        owner.admin("PUT", f"{topic.rest_path}/offload", {"ledgerId": int(ledger), "entryId": int(entry)})
        until(lambda: owner.admin("GET", f"{topic.rest_path}/offload").json()["status"] == "SUCCESS")
        trims = [ground.asked(owner, "POST", f"{topic.rest_path}/trim")]

        def is_trimmed() -> bool:
            """Asked for again where the broker has answered and nothing came of it."""
            if trims[-1].done() and not frozen.happened:
                trims.append(ground.asked(owner, "POST", f"{topic.rest_path}/trim"))
            return frozen.happened

        until(is_trimmed)
        listed = decode_record(ground.zookeeper.get(list_of(topic))[0]).ledgerInfo
        made = [one.ledgerId for one in listed if one.offloadContext.bookkeeperDeleted]
        owner.kill()
    for trim in trims:
        trim.result()
    assert made
    assert set(made) <= ground.ledgers()
    return [LeftBehind("offloaded cut", one, LedgerKind.DATA, SUSPECT, topic) for one in made]


BEQUESTS: Mapping[str, Making] = {
    "deleted compacted": deleted_compacted,
    "deleted delayed": deleted_delayed,
    "deleted transactional": deleted_transactional,
    "deleted namespace": deleted_namespace,
    "offloaded cut": offloaded_cut,
}


def foreign_ledgers(ground: Ground) -> dict[str, int]:
    """Ledgers of others, by what they are."""
    return {what: make(ground) for what, make in _FOREIGN.items()}


def _without_metadata(ground: Ground) -> int:
    return ground.cluster.books.official.write(Shape(**_SHAPE), 3, _CONTENTS)


def _of_another_application(ground: Ground) -> int:
    custom = {"application": "hbase", "component": "managed-ledger"}
    return ground.cluster.books.official.write(Shape(**_SHAPE), 3, _CONTENTS, custom=custom)


def _unknown_component(ground: Ground) -> int:
    custom = {"application": "pulsar", "component": "of a later version"}
    return ground.cluster.books.official.write(Shape(**_SHAPE), 3, _CONTENTS, custom=custom)


_FOREIGN: Mapping[str, Callable[[Ground], int]] = {
    "without metadata": _without_metadata,
    "another application": _of_another_application,
    "unknown component": _unknown_component,
}


def package_ledger(ground: Ground) -> int:
    """A ledger as DistributedLog writes it for functions' packages, with the node that names it."""
    ledger = ground.cluster.books.official.write(Shape(**_SHAPE, digest="CRC32"), 3, _CONTENTS)
    log = f"/pulsar/functions/public/kept/package-{next(_NUMBERS)}/<default>/ledgers"
    value = f"3;{ledger};1;1700000000000;3;0;3;0;1;0;0"
    ground.zookeeper.create(f"{log}/logrecs_000000000000000000{ledger}", value.encode(), makepath=True)
    return ledger


def closed_orphan(ground: Ground) -> int:
    """A ledger of ten entries, of a topic that is not there."""
    return ground.cluster.books.official.write(Shape(2, 2, 2), 10, Contents(seed=7, smallest=1), custom=_GONE)


def of_a_gone_broker(ground: Ground) -> int:
    """A ledger of the health check of a broker that is gone: nobody knows its namespace."""
    name = "pulsar/10.255.0.1:8080/persistent/healthcheck"
    custom = {"application": "pulsar", "component": "managed-ledger", "pulsar/managed-ledger": name}
    return ground.cluster.books.official.write(Shape(**_SHAPE), 4, _CONTENTS, custom=custom)


def created_again(ground: Ground) -> tuple[TopicName, list[int]]:
    """Somebody removes a topic's nodes while no broker has it loaded, and it is created again under the same name.
    The topic, which is loaded, and its former ledgers of data, which are closed."""
    topic = ground.new_topic("again")
    ground.produce(topic, 15)
    ground.unload(topic)
    before = ground.listed(topic)
    ground.zookeeper.delete(list_of(topic), recursive=True)
    ground.cluster.admin("PUT", topic.rest_path)
    ground.load(topic)
    assert not set(before) & set(ground.listed(topic))
    return topic, before


def of_another_cluster(ground: Ground) -> int:
    """The ledger of the health check of another cluster in the same BookKeeper."""
    name = b"pulsar/elsewhere/broker-1:8080/persistent/healthcheck"
    custom = {"application": "pulsar", "component": "managed-ledger", "pulsar/managed-ledger": name.decode()}
    return ground.cluster.books.official.write(Shape(**_SHAPE), 1, _CONTENTS, custom=custom)


def delete_unloaded(ground: Ground, topic: TopicName) -> None:
    """Unload it, and delete it before anybody loads it."""
    ground.unload(topic)
    delete(ground, topic)


def delete(ground: Ground, topic: TopicName) -> None:
    """Where nobody has it loaded, that loads nothing."""
    broker = ground.cluster.broker()
    until(lambda: broker.answer("DELETE", topic.rest_path).status_code in (204, 404))
    assert ground.zookeeper.exists(list_of(topic)) is None

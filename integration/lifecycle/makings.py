"""Orphans made on purpose, each in the way in which stock Pulsar makes it.

Every making returns what it left behind, and what a scan has to say of it at that moment.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from integration.lifecycle.frames import NodeWrite, Write
from integration.lifecycle.ground import KEPT, TRIMMED, Ground, at_once, cursor_of, ids, list_of, path_of, sets
from integration.pulsar.waiting import until
from offloader.bookkeeper.model import LedgerState
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.model import TopicName
from offloader.state.subscription_codec import decode_cursor_record

CERTAIN, SUSPECT = Standing.CERTAIN, Standing.SUSPECT
SUBSCRIPTION = "sub"
_READ_ONLY = [make_acl("world", "anyone", read=True, admin=True)]


@dataclass(frozen=True)
class LeftBehind:
    """A ledger that nobody refers to. `standing`: what can be said of it."""

    making: str
    ledger: int
    kind: LedgerKind
    standing: Standing
    topic: TopicName


Making = Callable[[Ground], list[LeftBehind]]


def trim_cut(ground: Ground) -> list[LeftBehind]:
    """A broker dies between list update and delete."""
    topic = ground.new_topic("trim", TRIMMED)
    ground.subscribe(topic, SUBSCRIPTION)
    ground.produce(topic, 25)
    *trimmed, last = ground.listed(topic)
    assert len(trimmed) == 2
    paths = {path_of(ledger) for ledger in trimmed}
    owner = ground.owner(topic)
    with ground.cluster.proxy.freezing(deletes(paths)) as frozen:
        calls = [ground.asked(owner, "DELETE", f"{topic.rest_path}/subscription/{SUBSCRIPTION}")]
        calls.append(ground.asked(owner, "POST", f"{topic.rest_path}/trim"))
        frozen.wait()
        assert ground.listed(topic) == [last]
        owner.kill()
    for call in calls:
        call.result()
    assert ground.ledgers() >= set(trimmed)
    return [LeftBehind("trim cut", ledger, LedgerKind.DATA, CERTAIN, topic) for ledger in trimmed]


def roll_cut(ground: Ground) -> list[LeftBehind]:
    """A broker dies between create and list update, at a roll."""
    topic = ground.new_topic("roll")
    ground.produce(topic, 10)
    before = ground.listed(topic)
    path, owner = list_of(topic), ground.owner(topic)

    def rolls(asked: tuple[NodeWrite, ...]) -> bool:
        value = sets(asked, path)
        return value is not None and not set(ids(value)) <= set(before)

    with ground.cluster.proxy.freezing(rolls) as frozen, ground.client(owner) as client:
        producer = client.create_producer(str(topic), batching_enabled=False)
        for number in range(11):  # wherever the ledger is full
            producer.send_async(b"%d" % number, lambda *_: None)
        (made,) = set(ids(sets(frozen.wait(), path) or b"")) - set(ground.listed(topic))
        owner.kill()
    assert made not in ground.listed(topic)
    assert ground.metadata(made).state is LedgerState.OPEN
    return [LeftBehind("roll cut", made, LedgerKind.DATA, SUSPECT, topic)]


def first_loads_cut(ground: Ground) -> list[LeftBehind]:
    """The same while topics are loaded for the first time: their writes share transactions."""
    owner = ground.owner(ground.new_topic("beside"))
    topics = [TopicName.parse(f"{KEPT}/first-{time.time_ns()}-{number}") for number in range(6)]
    paths = {list_of(topic) for topic in topics}

    def lists(asked: tuple[NodeWrite, ...]) -> bool:
        return any(one.write is Write.SET and one.path in paths and one.value for one in asked)

    with ground.cluster.proxy.freezing(lists) as frozen:
        calls = [ground.asked(owner, "PUT", topic.rest_path) for topic in topics]
        held = frozen.wait()
        with contextlib.suppress(AssertionError):  # brokers create ledgers in a session of their own
            until(lambda: sum(bool(ground.of_topic(topic)) for topic in topics) > 2, seconds=3.0)
        owner.kill()
    for call in calls:
        call.result()
    made = [
        LeftBehind("first loads cut", ledger, LedgerKind.DATA, SUSPECT, topic)
        for topic in topics
        for ledger in sorted(ground.of_topic(topic))
    ]
    assert len(made) >= sum(one.path in paths and one.write is Write.SET for one in held)
    assert not any(ground.listed(topic) for topic in topics)
    return made


def cursor_cut(ground: Ground) -> list[LeftBehind]:
    """A broker dies between the creation of a cursor's ledger and the update of its node."""
    topic = ground.new_topic("cursor")
    ground.produce(topic, 5)
    path, owner = cursor_of(topic, SUBSCRIPTION), ground.owner(topic)

    def ledger_in(asked: tuple[NodeWrite, ...]) -> int:
        values = [one.value for one in asked if one.path == path and one.value]
        return max((int(decode_cursor_record(value).cursorsLedgerId) for value in values), default=-1)

    with ground.cluster.proxy.freezing(lambda asked: ledger_in(asked) >= 0) as frozen:
        beginning = {"ledgerId": -1, "entryId": -1}
        call = ground.asked(owner, "PUT", f"{topic.rest_path}/subscription/{SUBSCRIPTION}", beginning)
        made = ledger_in(frozen.wait())
        owner.kill()
    call.result()
    assert ground.metadata(made).state is LedgerState.OPEN
    until(lambda: ground.load(topic))
    standing = CERTAIN if ground.named_by_cursor(topic, SUBSCRIPTION) > made else SUSPECT
    return [LeftBehind("cursor cut", made, LedgerKind.CURSOR, standing, topic)]


def load_refused(ground: Ground) -> list[LeftBehind]:
    """The write of the list is refused while the topic loads. It is loaded in the end."""
    topic = ground.new_topic("refused")
    ground.produce(topic, 3)
    ground.unload(topic)
    before = ground.of_topic(topic)
    ground.zookeeper.set_acls(list_of(topic), _READ_ONLY)
    broker = ground.cluster.broker()
    for _ in range(2):
        answer = broker.answer("GET", f"{topic.rest_path}/internalStats")
        assert not answer.is_success, answer.text
    made = ground.of_topic(topic) - before
    ground.zookeeper.set_acls(list_of(topic), OPEN_ACL_UNSAFE)
    until(lambda: broker.answer("GET", f"{topic.rest_path}/internalStats").is_success)
    left = sorted((ground.of_topic(topic) | made) - {*ground.listed(topic)})
    assert left
    assert set(left) <= ground.ledgers()
    return [LeftBehind("load refused", ledger, LedgerKind.DATA, CERTAIN, topic) for ledger in left]


def schema_twice(ground: Ground) -> list[LeftBehind]:
    """Two first registrations of a schema at once."""
    topic = ground.new_topic("schema")
    owner = ground.owner(topic)
    schema = {"type": "STRING", "schema": "", "properties": {}}
    path = f"schemas/{topic.namespace}/{topic.name}/schema"
    at_once([lambda: owner.answer("POST", path, schema)] * 4)
    made = ground.naming(schemaId=f"{topic.namespace}/{topic.name}")
    named = set(until(lambda: ground.load(topic)["schemaLedgers"] and _schema_ledgers(ground, topic)))
    return [
        LeftBehind("schema twice", ledger, LedgerKind.SCHEMA, CERTAIN if ledger < max(named) else SUSPECT, topic)
        for ledger in sorted(made - named)
    ]


def _schema_ledgers(ground: Ground, topic: TopicName) -> list[int]:
    return [one["ledgerId"] for one in ground.load(topic)["schemaLedgers"]]


def compaction_cut(ground: Ground) -> list[LeftBehind]:
    """A broker dies while compacting."""
    topic = ground.new_topic("compacting")
    ground.produce(topic, 15, keys=4)
    owner = ground.owner(topic)

    def closes(asked: tuple[NodeWrite, ...]) -> bool:
        values = [one.value for one in asked if one.write is Write.SET and one.path.startswith("/ledgers/")]
        return any(topic.name.encode() in value and b"compacted-ledger" in value for value in values)

    with ground.cluster.proxy.freezing(closes) as frozen:
        owner.admin("PUT", f"{topic.rest_path}/compaction")
        held = frozen.wait()
        owner.kill()
    made = {ledger for ledger in ground.ledgers() if path_of(ledger) in {one.path for one in held}}
    assert all(ground.metadata(ledger).state is LedgerState.OPEN for ledger in made)
    return [LeftBehind("compaction cut", ledger, LedgerKind.COMPACTED_VIEW, SUSPECT, topic) for ledger in made]


def nodes_removed(ground: Ground) -> list[LeftBehind]:
    """Somebody removes a topic's nodes, after its broker died: what the cursor's node named is left, too."""
    topic = ground.new_topic("removed")
    ground.subscribe(topic, SUBSCRIPTION)
    ground.produce(topic, 15)
    ground.acknowledge(topic, SUBSCRIPTION, 1)
    until(lambda: ground.named_by_cursor(topic, SUBSCRIPTION) >= 0)
    ground.owner(topic).kill()
    cursor, data = ground.named_by_cursor(topic, SUBSCRIPTION), ground.listed(topic)
    ground.zookeeper.delete(list_of(topic), recursive=True)
    kinds = {**dict.fromkeys(data, LedgerKind.DATA), cursor: LedgerKind.CURSOR}
    return [LeftBehind("nodes removed", ledger, kind, CERTAIN, topic) for ledger, kind in sorted(kinds.items())]


def deletes(paths: set[str]) -> Callable[[tuple[NodeWrite, ...]], bool]:
    """Whether a frame deletes one of these nodes."""
    return lambda asked: any(one.write is Write.DELETE and one.path in paths for one in asked)


MAKINGS: Mapping[str, Making] = {
    "trim cut": trim_cut,
    "roll cut": roll_cut,
    "first loads cut": first_loads_cut,
    "cursor cut": cursor_cut,
    "load refused": load_refused,
    "schema twice": schema_twice,
    "compaction cut": compaction_cut,
    "nodes removed": nodes_removed,
}

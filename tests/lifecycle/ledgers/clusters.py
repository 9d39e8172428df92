"""Random clusters: what brokers do, and what section 3 of the reference says that they leave behind.

Each making of orphans is a function of a world and a topic, by the name of its row in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo
from offloader.bookkeeper.model import DigestType
from offloader.lifecycle.ledgers.references import cursor_path

from .world import World, cursor_of, data_of, metadata, schema_of, view_custom

COMPACTION = "__compaction"

Step = Callable[[World, str], object]


def schema_id(name: str) -> str:
    pieces = name.split("/")
    return "/".join((*pieces[:-2], pieces[-1]))


# What brokers do


def roll(world: World, name: str) -> None:
    world.roll(name)


def trim(world: World, name: str) -> None:
    world.trim(name)


def acknowledge(world: World, name: str) -> None:
    world.acknowledge(name, world.subscribe(name))


def unload(world: World, name: str) -> None:
    world.unload(name)


def new_schema(world: World, name: str) -> None:
    world.schema(schema_id(name))


def compact(world: World, name: str) -> None:
    world.compact(name)


def delay(world: World, name: str) -> None:
    world.delay(name, world.subscribe(name))


def transact(world: World, name: str) -> None:
    world.pending_acks(name, world.subscribe(name), plain=world.random.random() < 0.5)


def offload(world: World, name: str) -> int:
    """The first ledger that is not yet: copied, and gone from BookKeeper."""
    ledger = _offloaded(world, name)
    world.drop(ledger)
    return ledger


def delete_loaded(world: World, name: str) -> None:
    world.delete(name)


def transaction_log(world: World, name: str) -> None:
    log = "pulsar/system/persistent/__transaction_log_0"
    if log not in world.managed_ledgers:
        world.topic(log)
        world.acknowledge(log, world.subscribe(log, "transaction.subscription"))


ORDINARY: tuple[Step, ...] = (
    *(roll, roll, trim, acknowledge, acknowledge, unload, new_schema, compact, delay, transact, offload),
    *(delete_loaded, transaction_log),
)


# The table of section 3


def dies_between_list_update_and_delete(world: World, name: str) -> None:
    world.roll(name)
    world.roll(name)
    world.trim(name, deleted=False)


def dies_between_create_and_list_update(world: World, name: str) -> None:
    for _ in range(world.random.randint(1, 3)):  # writes of several topics share one transaction
        world.forget(world.create(data_of(world.random.choice([name, *world.topics]))), "created, not listed")


def dies_before_a_cursor_names_its_ledger(world: World, name: str) -> None:
    world.forget(world.create(cursor_of(name, world.subscribe(name))), "created, not named")


def write_refused_while_a_topic_loads(world: World, name: str) -> None:
    for _ in range(3):
        world.forget(world.create(data_of(name), 0), "one for each attempt")


def two_first_registrations_of_a_schema(world: World, name: str) -> None:
    world.forget(world.create(schema_of(schema_id(name)), 1), "second registration")
    world.schema(schema_id(name))


def dies_while_compacting(world: World, name: str) -> None:
    world.subscribe(name, COMPACTION)
    world.forget(world.create(view_custom(name)), "compaction died")


def delete_of_an_unloaded_topic(world: World, name: str) -> None:
    world.compact(name)
    world.delay(name, world.subscribe(name))
    world.unload(name)
    world.left_over |= {*world.pending_of(name)}
    for ledger, way in world.used_by(name).items():
        if way in ("view", "delayed"):
            world.forget(ledger, "topic deleted while unloaded")
        else:
            world.drop(ledger)
    world.remove_nodes(name)


def dies_between_bookkeeper_deleted_and_the_delete(world: World, name: str) -> None:
    ledger = _offloaded(world, name)
    world.copies[ledger] = True
    world.forget(ledger, "offloaded, not deleted")


def somebody_removes_a_topics_nodes(world: World, name: str) -> None:
    world.left_over |= {*world.pending_of(name)}
    for ledger in world.used_by(name):
        world.forget(ledger, "nodes removed")
    world.remove_nodes(name)


def bookies_down_over_three_tries(world: World, name: str) -> None:
    cursor = world.subscribe(name)
    world.acknowledge(name, cursor)
    world.acknowledge(name, cursor, deleted=False)


def list_write_after_trimming_fails(world: World, name: str) -> None:
    world.roll(name)
    world.trim(name, deleted=False, how="dropped from memory")
    world.roll(name)


def unsubscribe_with_the_encoded_name(world: World, name: str) -> None:
    cursor = "a sub/b-c"
    world.subscribe(name, cursor)
    pending = world.pending_acks(name, cursor)
    info: ManagedCursorInfo = world.cursors(name)[cursor]
    if info.cursorsLedgerId >= 0:
        world.drop(info.cursorsLedgerId)
    del world.nodes[cursor_path(name, cursor)]
    world.left_over.add(pending)


MAKINGS: tuple[Step, ...] = (
    dies_between_list_update_and_delete,
    dies_between_create_and_list_update,
    dies_before_a_cursor_names_its_ledger,
    write_refused_while_a_topic_loads,
    two_first_registrations_of_a_schema,
    dies_while_compacting,
    delete_of_an_unloaded_topic,
    dies_between_bookkeeper_deleted_and_the_delete,
    somebody_removes_a_topics_nodes,
    bookies_down_over_three_tries,
    list_write_after_trimming_fails,
    unsubscribe_with_the_encoded_name,
)


def pause(world: World, name: str) -> None:
    """A broker stops between create and list."""
    if schema_id(name) in [p.removeprefix("/schemas/") for p in world.nodes] and world.random.random() < 0.3:
        world.pause_schema(schema_id(name))
    elif world.random.random() < 0.5:
        world.pause_acknowledge(name, world.subscribe(name))
    else:
        world.pause_roll(name)


def add_foreign(world: World) -> None:
    """What others keep in the same BookKeeper."""
    for known in (
        metadata({"application": b"another"}, 3),
        metadata({}, 3),
        metadata(data_of("pulsar/east/b:8080/persistent/healthcheck"), 3),
        metadata({"application": b"pulsar", "component": b"\xff"}),
        None,
    ):
        world.next_id += 1
        world.ledgers[world.next_id] = known
        world.foreign.add(world.next_id)
    world.packages.add(world.create({}, 2, digest=DigestType.CRC32))


def cluster(seed: int, steps: int = 40, *, jumps: bool = False) -> World:
    """A cluster with a history: ordinary steps, all makings in any order, foreign ledgers, and paused brokers."""
    world = World(Random(seed), jumps=jumps)
    for _ in range(6):
        world.topic()
    add_foreign(world)
    makings = world.random.sample(MAKINGS, len(MAKINGS))
    for _ in range(steps):
        if len(world.topics) < 4:
            world.topic()
        step = makings.pop() if makings and world.random.random() < 0.4 else world.random.choice(ORDINARY)
        step(world, some_topic(world))
    for _ in range(3):
        pause(world, some_topic(world))
    return world


def some_topic(world: World) -> str:
    return world.random.choice([name for name in world.topics if name.startswith("t/")] or [world.topic()])


def _offloaded(world: World, name: str) -> int:
    world.roll(name)
    info = world.info(name)
    one = next(one for one in info.ledgerInfo if not one.offloadContext.bookkeeperDeleted)
    context = one.offloadContext
    context.uidMsb, context.uidLsb, context.complete, context.bookkeeperDeleted = 1, -2, True, True
    world.put_list(name, info)
    return int(one.ledgerId)


def left_over_names(world: World) -> set[str]:
    """Those that are still there."""
    return {name for name in world.left_over if name in world.managed_ledgers}

"""Which ledger is an orphan: row by row of section 4 of the reference."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo
from offloader.bookkeeper.model import DigestType
from offloader.lifecycle.ledgers.evidence import Fact, Remedy, Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.references import UnreadableNode, cursor_path, list_path, schema_path
from offloader.lifecycle.ledgers.verdicts import KnownStores, LedgerJudge

from .world import World, bucket_custom, cursor_of, data_of, metadata, schema_of, view_custom

TOPIC = "t/ns/persistent/orders"
SCHEMA = "t/ns/orders"
BUCKET = "#pulsar.internal.delayed.bucket_1_2"


@pytest.fixture
def world():
    made = World(Random(1))
    made.topic(TOPIC)
    return made


def judge(world, ledger, *, alone=True, clusters=("west",), others=(), **changed):
    """The verdict on one ledger of the world; `changed`: of what was read."""
    ours = replace(world.references(), **changed)
    known = KnownStores((ours, *others), alone=alone, clusters=frozenset(clusters), copies=world.copies)
    return LedgerJudge(known).verdict(world.look(ledger))


def facts(verdict):
    return [one.fact for one in verdict.evidence]


def check(verdict, standing, *expected, remedies=()):
    assert (verdict.standing, facts(verdict), list(verdict.remedies)) == (standing, list(expected), list(remedies))


# Data


def test_data_that_is_listed_is_referenced(world):
    verdict = judge(world, world.roll(TOPIC))
    check(verdict, Standing.REFERENCED, Fact.NAMED)
    assert verdict.evidence[0].node == list_path(TOPIC)
    assert verdict.evidence[0].version == world.version(list_path(TOPIC))


def test_data_whose_managed_ledgers_node_is_absent_is_certain(world):
    ledger = world.create(data_of("t/ns/persistent/gone"), 5)
    verdict = judge(world, ledger)
    check(verdict, Standing.CERTAIN, Fact.OWNER_ABSENT)
    assert verdict.deletable
    assert [(one.node, one.version) for one in verdict.referees] == [(list_path("t/ns/persistent/gone"), None)]


def test_data_that_the_list_lacks_and_that_was_passed_by_is_certain(world):
    ledger = world.create(data_of(TOPIC))
    greater = world.roll(TOPIC)
    verdict = judge(world, ledger)
    check(verdict, Standing.CERTAIN, Fact.PASSED_BY, Fact.ENTRIES_UNKNOWN)
    assert verdict.evidence[0].other == greater
    assert [(one.node, one.version) for one in verdict.referees] == [
        (list_path(TOPIC), world.version(list_path(TOPIC)))
    ]


def test_data_listed_as_deleted_from_bookkeeper_is_certain_once_its_copy_was_read_back(world):
    ledger = offloaded(world)
    check(judge(world, ledger), Standing.SUSPECT, Fact.LEFT_BOOKKEEPER, Fact.COPY_NOT_READ, remedies=[Remedy.READ_COPY])
    world.copies[ledger] = True
    check(judge(world, ledger), Standing.CERTAIN, Fact.LEFT_BOOKKEEPER, Fact.COPY_READ_BACK)
    assert judge(world, ledger).deletable


def test_data_whose_copy_is_not_whole_is_kept(world):
    ledger = offloaded(world)
    world.copies[ledger] = False
    verdict = judge(world, ledger)
    check(verdict, Standing.SUSPECT, Fact.LEFT_BOOKKEEPER, Fact.COPY_FAILS, remedies=[Remedy.READ_COPY])
    assert verdict.kept


def test_a_copy_that_the_list_does_not_call_complete_is_never_believed(world):
    ledger = offloaded(world, complete=False)
    world.copies[ledger] = True
    check(judge(world, ledger), Standing.SUSPECT, Fact.LEFT_BOOKKEEPER, Fact.COPY_FAILS, remedies=[Remedy.READ_COPY])


def offloaded(world, *, complete=True):
    world.roll(TOPIC)
    info = world.info(TOPIC)
    context = info.ledgerInfo[0].offloadContext
    context.uidMsb, context.uidLsb, context.complete, context.bookkeeperDeleted = 1, 2, complete, True
    world.put_list(TOPIC, info)
    return info.ledgerInfo[0].ledgerId


def test_data_greater_than_all_listed_is_suspect(world):
    ledger = world.create(data_of(TOPIC))
    verdict = judge(world, ledger)
    check(verdict, Standing.SUSPECT, Fact.NOT_PASSED, Fact.ENTRIES_UNKNOWN, remedies=[Remedy.LOAD_TOPIC])
    assert not verdict.deletable


def test_data_of_a_list_that_is_empty_is_suspect(world):
    ledger = world.create(data_of(TOPIC), 0)
    world.put(list_path(TOPIC), b"")
    check(judge(world, ledger), Standing.SUSPECT, Fact.NOT_PASSED, Fact.EMPTY, remedies=[Remedy.LOAD_TOPIC])


def test_to_have_the_topic_loaded_turns_suspect_into_certain(world):
    ledger = world.create(data_of(TOPIC))
    assert judge(world, ledger).remedies == (Remedy.LOAD_TOPIC,)
    world.roll(TOPIC)
    assert judge(world, ledger).standing is Standing.CERTAIN


# What is in an unlisted one


def test_unlisted_and_empty_was_never_used(world):
    ledger = world.create(data_of(TOPIC), 0)
    world.roll(TOPIC)
    verdict = judge(world, ledger)
    check(verdict, Standing.CERTAIN, Fact.PASSED_BY, Fact.EMPTY)
    assert verdict.deletable


def test_unlisted_with_entries_below_the_lists_first_id_was_trimmed(world):
    first = world.info(TOPIC).ledgerInfo[0].ledgerId
    world.roll(TOPIC)
    info = world.info(TOPIC)
    del info.ledgerInfo[0]
    world.put_list(TOPIC, info)
    verdict = judge(world, first)
    check(verdict, Standing.CERTAIN, Fact.PASSED_BY, Fact.TRIMMED)
    assert verdict.deletable


def test_unlisted_with_entries_above_the_first_listed_id_is_never_deleted_but_reported(world):
    ledger = world.create(data_of(TOPIC), 5)
    world.roll(TOPIC)
    verdict = judge(world, ledger)
    check(verdict, Standing.CERTAIN, Fact.PASSED_BY, Fact.NO_TRIMS_WORK)
    assert verdict.orphan
    assert verdict.kept
    assert not verdict.deletable


def test_unlisted_with_entries_and_an_empty_list_is_never_deleted(world):
    ledger = world.create(data_of(TOPIC), 5)
    world.put(list_path(TOPIC), b"")
    assert judge(world, ledger).kept


def cut_off(world, *, anew):
    """The list is restored from a backup that has only its first ledger: into the node, or the node made anew."""
    info = world.info(TOPIC)
    del info.ledgerInfo[1:]
    if anew:
        world.remove_nodes(TOPIC)
    world.put_list(TOPIC, info)


@pytest.mark.parametrize("anew", [False, True])
def test_data_behind_a_list_that_was_restored_is_kept(world, anew):
    lost = world.roll(TOPIC, 5)
    world.roll(TOPIC, 5)
    cut_off(world, anew=anew)
    assert judge(world, lost).kept
    world.roll(TOPIC, 5)
    assert judge(world, lost).kept


def test_a_list_that_was_made_anew_was_not_trimmed_of_what_is_older(world):
    """Whatever it begins with: its backup was older than the topic, or what came before was trimmed since."""
    lost = world.roll(TOPIC, 5)
    world.roll(TOPIC, 5)
    cut_off(world, anew=True)
    world.roll(TOPIC, 5)
    info = world.info(TOPIC)
    del info.ledgerInfo[0]
    world.put_list(TOPIC, info)
    verdict = judge(world, lost)
    check(verdict, Standing.SUSPECT, Fact.PASSED_BY, Fact.MADE_SINCE, Fact.FORMER_DATA)
    assert verdict.kept


def test_of_several_lists_each_must_have_been_there_to_be_trimmed(world):
    first = world.info(TOPIC).ledgerInfo[0].ledgerId
    world.roll(TOPIC, 5)
    info = world.info(TOPIC)
    del info.ledgerInfo[0]
    world.put_list(TOPIC, info)
    assert judge(world, first).deletable
    other = World(Random(2), next_id=100, now=world.now)
    other.topic(TOPIC)
    verdict = judge(world, first, others=[other.references(store="theirs")])
    assert verdict.kept
    assert verdict.standing is Standing.SUSPECT


# A node that was deleted and made again has its versions from the beginning: whoever was paused may meet them


@pytest.mark.parametrize("custom", [data_of(TOPIC), cursor_of(TOPIC, "sub"), view_custom(TOPIC)])
def test_what_a_node_that_was_made_since_names_passes_nothing_by(world, custom):
    for cursor in ("sub", "__compaction"):
        world.subscribe(TOPIC, cursor)
    ledger = world.create(custom, 0)
    world.remove_nodes(TOPIC)
    world.put(list_path(TOPIC), b"")
    world.roll(TOPIC)
    world.acknowledge(TOPIC, world.subscribe(TOPIC, "sub"))
    world.compact(TOPIC)
    verdict = judge(world, ledger)
    assert verdict.standing is Standing.SUSPECT
    assert facts(verdict)[:2] == [Fact.PASSED_BY, Fact.MADE_SINCE]
    assert verdict.remedies == ()


def test_several_first_schemas_may_be_under_way_before_there_is_a_locator_but_not_for_long(world):
    ledger = world.create(schema_of(SCHEMA), 1)
    world.schema(SCHEMA)
    check(judge(world, ledger), Standing.CERTAIN, Fact.PASSED_BY)
    world.made[schema_path(SCHEMA)] += 3_600_000
    verdict = judge(world, ledger)
    check(verdict, Standing.SUSPECT, Fact.PASSED_BY, Fact.MADE_SINCE, Fact.UNCLAIMED_DATA)
    assert verdict.kept


def test_where_nobody_knows_when_something_was_made_nothing_is_passed_by(world):
    ledger = world.create(data_of(TOPIC), 0)
    world.roll(TOPIC)
    lists = world.references().lists
    assert judge(world, ledger).standing is Standing.CERTAIN
    unknown = {TOPIC: replace(lists[TOPIC], created_ms=None, born=None)}
    assert judge(world, ledger, lists=unknown).standing is Standing.SUSPECT
    del world.made[ledger], world.born[ledger]
    assert judge(world, ledger).standing is Standing.SUSPECT


# Cursors


def test_a_cursors_ledger_that_its_node_names_is_referenced(world):
    ledger = world.acknowledge(TOPIC, world.subscribe(TOPIC, "s b/ä"))
    check(judge(world, ledger), Standing.REFERENCED, Fact.NAMED)


@pytest.mark.parametrize("name", [TOPIC, "t/ns/persistent/gone"])
def test_a_cursors_ledger_without_managed_ledger_or_cursor_node_is_certain(world, name):
    verdict = judge(world, world.create(cursor_of(name, "gone")))
    check(verdict, Standing.CERTAIN, Fact.CURSOR_ABSENT if name == TOPIC else Fact.OWNER_ABSENT)
    assert verdict.referees[0].version is None


def test_a_cursors_ledger_that_was_passed_by_is_certain(world):
    world.subscribe(TOPIC, "sub")
    ledger = world.create(cursor_of(TOPIC, "sub"))
    world.acknowledge(TOPIC, "sub")
    verdict = judge(world, ledger)
    check(verdict, Standing.CERTAIN, Fact.PASSED_BY)
    assert verdict.referees[0].node == cursor_path(TOPIC, "sub")


def test_a_cursors_ledger_greater_than_the_one_named_is_suspect(world):
    world.acknowledge(TOPIC, world.subscribe(TOPIC, "sub"))
    ledger = world.create(cursor_of(TOPIC, "sub"))
    check(judge(world, ledger), Standing.SUSPECT, Fact.NOT_PASSED, remedies=[Remedy.LOAD_AND_ACKNOWLEDGE])


def test_a_cursors_ledger_while_the_node_names_none_is_suspect(world):
    world.subscribe(TOPIC, "sub")
    ledger = world.create(cursor_of(TOPIC, "sub"))
    check(judge(world, ledger), Standing.SUSPECT, Fact.NO_CURSOR_LEDGER, remedies=[Remedy.LOAD_AND_ACKNOWLEDGE])


def test_a_cursor_that_ledgers_name_encoded_is_found(world):
    world.subscribe(TOPIC, "a b")
    assert judge(world, world.create(cursor_of(TOPIC, "a+b"))).standing is Standing.SUSPECT


# Schemas


def test_every_schema_of_the_locators_index_is_referenced(world):
    first = world.schema(SCHEMA)
    world.schema(SCHEMA)
    check(judge(world, first), Standing.REFERENCED, Fact.NAMED)


def test_a_schema_that_was_passed_by_is_certain(world):
    ledger = world.create(schema_of(SCHEMA), 1)
    world.schema(SCHEMA)
    verdict = judge(world, ledger)
    check(verdict, Standing.CERTAIN, Fact.PASSED_BY)
    assert verdict.deletable


def test_a_schema_greater_than_all_in_the_locator_is_suspect(world):
    world.schema(SCHEMA)
    ledger = world.create(schema_of(SCHEMA), 1)
    check(judge(world, ledger), Standing.SUSPECT, Fact.NOT_PASSED, remedies=[Remedy.NEW_SCHEMA])


def test_a_schema_without_a_locator_is_suspect(world):
    ledger = world.create(schema_of(SCHEMA), 1)
    check(
        judge(world, ledger), Standing.SUSPECT, Fact.LOCATOR_ABSENT, Fact.UNCLAIMED_DATA, remedies=[Remedy.NEW_SCHEMA]
    )


def test_a_locator_of_an_old_cluster_that_lacks_versions_is_no_proof(world):
    ledger = world.create(schema_of(SCHEMA), 1)
    world.schema(SCHEMA)
    world.schema(SCHEMA)
    locator = world.locator(SCHEMA)
    del locator.index[0]
    world.put(schema_path(SCHEMA), locator.SerializeToString())
    check(judge(world, ledger), Standing.SUSPECT, Fact.PASSED_BY, Fact.LOCATOR_HAS_HOLES)


# Compacted views


def test_the_view_that_is_named_is_referenced_loaded_or_not(world):
    view = world.compact(TOPIC)
    check(judge(world, view), Standing.REFERENCED, Fact.NAMED)
    world.unload(TOPIC)
    check(judge(world, view), Standing.REFERENCED, Fact.NAMED)


def test_a_view_whose_managed_ledger_is_absent_is_certain(world):
    check(judge(world, world.create(view_custom("t/ns/persistent/gone"))), Standing.CERTAIN, Fact.OWNER_ABSENT)


@pytest.mark.parametrize("unloaded", [False, True])
def test_a_view_that_was_passed_by_is_certain(world, unloaded):
    world.subscribe(TOPIC, "__compaction")
    ledger = world.create(view_custom(TOPIC))
    world.compact(TOPIC)
    if unloaded:
        world.unload(TOPIC)
    check(judge(world, ledger), Standing.CERTAIN, Fact.PASSED_BY)


@pytest.mark.parametrize("compacted", [False, True])
def test_any_other_view_is_suspect_for_a_compaction_may_run_for_hours(world, compacted):
    if compacted:
        world.compact(TOPIC)
    fact = Fact.NOT_PASSED if compacted else Fact.NO_VIEW_NAMED
    check(judge(world, world.create(view_custom(TOPIC))), Standing.SUSPECT, fact, remedies=[Remedy.COMPACT])


def test_a_last_entry_that_cannot_be_read_makes_all_views_of_its_topic_suspect(world):
    passed = world.create(view_custom(TOPIC))
    named = world.compact(TOPIC)
    views = {TOPIC: UnreadableNode(0, "no bookie answers")}
    for ledger in (passed, named):
        verdict = judge(world, ledger, views=views)
        check(verdict, Standing.SUSPECT, Fact.UNREADABLE, remedies=[Remedy.REPAIR_NODE])


# The delayed index


def test_a_bucket_that_the_cursor_names_is_referenced(world):
    check(judge(world, world.delay(TOPIC, world.subscribe(TOPIC))), Standing.REFERENCED, Fact.NAMED)


@pytest.mark.parametrize("name", [TOPIC, "t/ns/persistent/gone"])
def test_a_bucket_without_managed_ledger_or_cursor_node_is_certain(world, name):
    verdict = judge(world, world.create(bucket_custom(name, "gone", BUCKET), 2))
    check(verdict, Standing.CERTAIN, Fact.CURSOR_ABSENT if name == TOPIC else Fact.OWNER_ABSENT)


def test_a_bucket_whose_cursor_is_there_is_suspect(world):
    world.delay(TOPIC, world.subscribe(TOPIC, "sub"))
    ledger = world.create(bucket_custom(TOPIC, "sub", BUCKET), 2)
    world.delay(TOPIC, "sub")  # a greater one: no proof here
    verdict = judge(world, ledger)
    expected = (Fact.CURSOR_IS_THERE, Fact.UNCLAIMED_DATA)
    check(verdict, Standing.SUSPECT, *expected, remedies=[Remedy.REMOVE_CURSOR])


# Foreign


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (metadata({"application": b"another"}, 3), LedgerKind.FOREIGN),
        (metadata({"application": b"pulsar", "component": b"new"}, 3), LedgerKind.FOREIGN),
        (metadata({"component": b"managed-ledger", "pulsar/managed-ledger": TOPIC.encode()}, 3), LedgerKind.FOREIGN),
        (metadata({}, 3, DigestType.CRC32), LedgerKind.FUNCTIONS_PACKAGES),
        (metadata({}, 3), LedgerKind.FOREIGN),
        (None, LedgerKind.FOREIGN),  # damaged, or an empty value
    ],
)
def test_anything_else_is_foreign_and_never_touched(world, known, kind):
    world.ledgers[500] = known
    verdict = judge(world, 500)
    check(verdict, Standing.FOREIGN, Fact.FOREIGN)
    assert verdict.kind is kind
    assert not verdict.deletable


def test_functions_packages_that_their_log_names_are_referenced(world):
    ledger = world.create({}, 3, digest=DigestType.CRC32)
    world.packages.add(ledger)
    verdict = judge(world, ledger)
    check(verdict, Standing.REFERENCED, Fact.NAMED)
    assert verdict.kind is LedgerKind.FUNCTIONS_PACKAGES


def test_a_damaged_ledger_that_is_listed_is_referenced(world):
    ledger = world.roll(TOPIC)
    world.ledgers[ledger] = None
    check(judge(world, ledger), Standing.REFERENCED, Fact.NAMED, Fact.FOREIGN)


def test_a_ledger_that_names_another_clusters_health_check_is_foreign(world):
    health = data_of("pulsar/east/b:8080/persistent/healthcheck")
    verdict = judge(world, world.create(health, 3))
    check(verdict, Standing.FOREIGN, Fact.ANOTHER_CLUSTER)
    assert verdict.evidence[0].text == "east"


def test_a_shadow_topics_list_is_a_reference_too(world):
    """It repeats its source's ids; the custom metadata name the source."""
    shadow = world.topic("t/ns/persistent/shadow")
    ledger = world.info(TOPIC).ledgerInfo[0].ledgerId
    info = world.info(shadow)
    info.ledgerInfo.add(ledgerId=ledger)
    world.put_list(shadow, info)
    world.remove_nodes(TOPIC)
    check(judge(world, ledger), Standing.REFERENCED, Fact.NAMED)


# What takes the proof away


def test_without_the_operators_word_nothing_is_certain(world):
    gone = world.create(data_of("t/ns/persistent/gone"), 5)
    passed = world.create(data_of(TOPIC), 0)
    world.roll(TOPIC)
    for ledger, fact in ((gone, Fact.OWNER_ABSENT), (passed, Fact.PASSED_BY)):
        verdict = judge(world, ledger, alone=False)
        assert verdict.standing is Standing.SUSPECT
        assert facts(verdict)[0] is fact
        assert Fact.MAY_BE_SHARED in facts(verdict)
        assert verdict.remedies == (Remedy.DECLARE,)


def test_a_ledger_whose_namespace_has_no_policies_stays_suspect(world):
    gone = world.create(data_of("t/other/persistent/gone"), 5)
    verdict = judge(world, gone)
    expected = (Fact.OWNER_ABSENT, Fact.NAMESPACE_UNKNOWN, Fact.UNCLAIMED_DATA)
    check(verdict, Standing.SUSPECT, *expected, remedies=[Remedy.KNOW_NAMESPACE])
    assert verdict.evidence[1].node == "/admin/policies/t/other"


def test_of_several_stores_all_must_agree(world):
    other = World(Random(2), next_id=100)
    ledger = world.create(data_of(TOPIC), 0)
    world.roll(TOPIC)
    other.namespaces.add("t/ns")
    assert judge(world, ledger, others=[other.references(store="theirs")]).standing is Standing.CERTAIN
    other.put(list_path(TOPIC), b"")
    assert judge(world, ledger, others=[other.references(store="theirs")]).standing is Standing.SUSPECT
    other.list_ledger(TOPIC, ledger)
    assert judge(world, ledger, others=[other.references(store="theirs")]).standing is Standing.REFERENCED


def test_a_store_without_the_namespace_has_no_say(world):
    other = World(Random(2))
    ledger = world.create(data_of(TOPIC), 0)
    world.roll(TOPIC)
    verdict = judge(world, ledger, others=[other.references(store="theirs")])
    check(verdict, Standing.CERTAIN, Fact.PASSED_BY, Fact.EMPTY)
    assert len(verdict.referees) == 2  # both are checked when it is deleted


@pytest.mark.parametrize("custom", [data_of(TOPIC), cursor_of(TOPIC, "sub"), schema_of(SCHEMA), view_custom(TOPIC)])
def test_a_referee_that_cannot_be_read_proves_nothing(world, custom):
    ledger = world.create(custom, 0)
    world.subscribe(TOPIC, "__compaction")
    for path in (list_path(TOPIC), schema_path(SCHEMA), cursor_path(TOPIC, "sub"), cursor_path(TOPIC, "__compaction")):
        world.put(path, b"\xff\xff damaged")
    verdict = judge(world, ledger)
    assert (verdict.standing, facts(verdict)[0]) == (Standing.SUSPECT, Fact.UNREADABLE)
    assert verdict.remedies == (Remedy.REPAIR_NODE,)


@pytest.mark.parametrize("custom", [data_of(TOPIC), cursor_of(TOPIC, "sub"), schema_of(SCHEMA), view_custom(TOPIC)])
def test_a_referee_of_a_newer_version_proves_nothing(world, custom):
    for cursor in ("sub", "__compaction"):
        world.subscribe(TOPIC, cursor)
    ledger = world.create(custom, 0)
    world.roll(TOPIC)
    world.acknowledge(TOPIC, world.subscribe(TOPIC, "sub"))
    world.schema(SCHEMA)
    world.compact(TOPIC)
    assert judge(world, ledger).standing is Standing.CERTAIN
    world.unload(TOPIC)
    newer = ManagedCursorInfo(cursorsLedgerId=world.next_id + 1).SerializeToString()
    world.put(cursor_path(TOPIC, "sub"), newer)
    for path, (value, _) in list(world.nodes.items()):
        plain = world.info(TOPIC).SerializeToString() if path == list_path(TOPIC) else value
        plain = world.cursors(TOPIC)["__compaction"].SerializeToString() if path.endswith("__compaction") else plain
        world.put(path, plain + bytes.fromhex("d00505"))
    verdict = judge(world, ledger)
    assert verdict.standing is Standing.SUSPECT
    assert facts(verdict)[:2] == [Fact.PASSED_BY, Fact.SAYS_MORE]
    assert verdict.remedies == (Remedy.NEWER_OFFLOADER,)

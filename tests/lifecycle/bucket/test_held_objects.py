"""A hold binds a topic's orphans, too: neither the mark nor the second look lets one go, whatever is proven of it."""

from __future__ import annotations

import pytest

from offloader.config import Config
from offloader.lifecycle.bucket.holds import holds, why_held
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.bucket.stock_rules import owner_of
from offloader.lifecycle.deletion.machine import ReferencedLedger, UnreferencedLedger, rule
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.metadata import layout, rescued_keys
from offloader.model import TopicName
from tests.archive.support import TOPIC
from tests.cli.support import CONFIG

from .support import a_uuid, archive, scanner
from .test_bucket_side import DATA, SWITCH, TIMING, U, mark, marked_strays, strays

OTHER = TopicName.parse("persistent://public/other/orders")
FREE = holds(Config.parse(CONFIG).policies)
HELD = holds(Config.parse(CONFIG + 'policies: {hold: "case 4711"}\n').policies)


def of_topic(name: str) -> str:
    return (
        CONFIG.replace("namespaces:\n", "").replace("  public/default: {enabled: true}\n", "")
        + f"namespaces: {{public/default: {{topics: {{'{name}': {{policies: {{hold: court}}}}}}}}}}\n"
    )


def test_a_mark_leaves_out_what_is_held_and_says_by_whom():
    made, clock = archive()
    strays(made, U)
    made.store.put(layout.topic_folder(TOPIC) + "_catalog-damaged-1/00000000000000000000", b"x")
    clock.now += 10**8
    queue = DeletionQueue(made.store, "memory", lambda: "token")
    phase = ObjectQuarantine(queue, DeletionBounds(percent=100), clock, "command", held=HELD)
    scan = scanner(made.store, clock).scan()
    assert {each.id for each in scan.orphans if each.deletable} >= {DATA}
    marks = phase.mark(scan).marks
    assert len(marks) == len([each for each in scan.orphans if each.deletable]) > 3
    assert {(one.outcome, one.why) for one in marks} == {(MarkOutcome.KEPT, "held by case 4711")}
    assert list(queue.records()) == []
    assert phase.mark(scan, {DATA}).marks[0].outcome is MarkOutcome.KEPT  # nor by its name


def test_what_was_marked_before_the_hold_is_kept_by_the_second_look():
    made, clock, records = marked_strays(U, a_uuid(2))
    held = BucketSide(made.store, scanner(made.store, clock), held=HELD)
    for record in records:
        look = held.look([record]).looks[record.name]
        assert look == ReferencedLedger("held by case 4711")
        ended = rule(record, look, clock.now, TIMING, SWITCH).record
        assert (ended.state, ended.answer, ended.reason) == (
            DeletionState.KEPT,
            DeletionAnswer.STILL_IN_USE,
            "held by case 4711",
        )
        assert not ended.was_spared  # once the hold is lifted, the next mark takes it again
    free = BucketSide(made.store, scanner(made.store, clock), held=FREE)
    assert all(isinstance(look, UnreferencedLedger) for look in free.look(records).looks.values())


def test_once_the_hold_is_lifted_it_is_marked_again_and_goes():
    made, clock, records = marked_strays(U)
    queue = DeletionQueue(made.store, "memory", lambda: f"token-{clock.now}")
    held = BucketSide(made.store, scanner(made.store, clock), held=HELD)
    for record in records:
        look = held.look([record]).looks[record.name]
        queue.write(rule(record, look, clock.now, TIMING, SWITCH).record, None)
    phase = ObjectQuarantine(queue, DeletionBounds(percent=100), clock, "command", held=FREE)
    marks = phase.mark(scanner(made.store, clock).scan()).marks
    assert {one.outcome for one in marks} == {MarkOutcome.MARKED}


def test_an_upload_of_a_held_topic_is_held_by_the_path_of_its_object():
    made, clock = archive()
    made.store.begin(layout.data_key(TOPIC, a_uuid(3)))
    clock.now += 10**8
    records = mark(scanner(made.store, clock).scan().orphans, clock.now)
    [upload] = [record for record in records if record.upload]
    held = BucketSide(made.store, scanner(made.store, clock), held=HELD)
    assert held.look([upload]).looks[upload.name] == ReferencedLedger("held by case 4711")


@pytest.mark.parametrize(
    ("config", "key", "why"),
    [
        (CONFIG, layout.data_key(TOPIC, U), ""),
        (of_topic(str(TOPIC)), layout.data_key(TOPIC, U), "held by court"),
        (of_topic(str(TOPIC)), layout.data_key(TopicName.parse(f"{TOPIC}-partition-3"), U), "held by court"),
        (of_topic(str(TOPIC)), layout.data_key(OTHER, U), ""),
        (of_topic(str(TOPIC)), layout.topic_folder(TOPIC) + "_catalog-damaged-x/", "held by court"),
        (of_topic(str(TOPIC)), "_proof/token", ""),  # it has nothing of any topic
        (
            of_topic(str(TOPIC)),
            rescued_keys.rescued_objects_folder("c", 7, 0) + U,
            "held by court, as far as anybody knows",
        ),
        (CONFIG, rescued_keys.rescued_objects_folder("c", 7, 0) + U, ""),
        (of_topic(str(TOPIC)), "what/is%2Dthis/name/x", "held by court, as far as anybody knows"),
    ],
)
def test_the_topic_is_that_of_the_path_and_what_has_none_is_held_by_any_hold(config, key, why):
    found = why_held(holds(Config.parse(config).policies), key, None, of_stock=False)
    assert found.partition(": it does not")[0] == why


def test_a_copy_of_pulsars_own_offloader_is_held_by_the_topic_that_its_metadata_name():
    held = holds(Config.parse(of_topic(str(TOPIC))).policies)
    names = {
        "public/default/persistent/orders": "held by court",
        "public/default/persistent/orders-partition-1": "held by court",
        "public/other/persistent/orders": "",
        "public/default/persistent/orders%2Fnew": "",
        "pulsar/c/host:1/persistent/healthcheck": "held by court, as far as anybody knows",
        "": "held by court, as far as anybody knows",
    }
    for name, why in names.items():
        owner = owner_of({"managedledgername": name})
        found = why_held(held, f"{U}-ledger-7", owner, of_stock=True)
        assert found.partition(": it does not")[0] == why, name

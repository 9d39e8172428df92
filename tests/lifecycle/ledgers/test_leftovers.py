"""Pending-ack managed ledgers: every split at `-`, plain and encoded."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.lifecycle.ledgers.evidence import Fact, Remedy, Standing
from offloader.lifecycle.ledgers.leftovers import is_pending_acks, leftover_managed_ledgers, owners_of
from offloader.lifecycle.ledgers.references import cursor_path, list_path
from offloader.lifecycle.ledgers.told import leftover_told
from offloader.state.names import encoded

from .world import World

NAMES = st.text(st.sampled_from("ab-/%+ é"), min_size=1, max_size=8)
SUFFIX = "__transaction_pending_ack"


@given(NAMES.filter(lambda name: "/" not in name), NAMES, st.booleans())
def test_its_owner_is_among_the_splits_whatever_the_names(topic, subscription, plain):
    local = f"{topic}-{subscription if plain else encoded(subscription)}{SUFFIX}"
    name = f"t/ns/persistent/{encoded(local)}"
    assert is_pending_acks(name)
    assert (f"t/ns/persistent/{encoded(topic)}", subscription) in owners_of(name)


def test_every_split_is_tried_plain_and_encoded():
    assert list(owners_of(f"t/ns/persistent/{encoded(f'a-b-c%2Fd{SUFFIX}')}")) == [
        ("t/ns/persistent/a", "b-c%2Fd"),
        ("t/ns/persistent/a", "b-c/d"),
        ("t/ns/persistent/a-b", "c%2Fd"),
        ("t/ns/persistent/a-b", "c/d"),
    ]


def test_a_plain_subscription_with_a_slash_makes_a_name_of_the_old_form():
    assert ("t/ns/persistent/topic", "a/b") in owners_of(f"t/ns/topic-a/persistent/b{SUFFIX}")


@pytest.mark.parametrize("name", ["t/ns/persistent/x", "x" + SUFFIX, f"t/ns/persistent/{SUFFIX}x"])
def test_other_managed_ledgers_are_none(name):
    assert not is_pending_acks(name)


@pytest.fixture
def world():
    made = World(Random(1))
    made.topic("t/ns/persistent/a-b")
    return made


@pytest.mark.parametrize("plain", [False, True])
def test_one_whose_topic_and_cursor_are_there_is_in_use(world, plain):
    world.subscribe("t/ns/persistent/a-b", "c/d-e")
    world.pending_acks("t/ns/persistent/a-b", "c/d-e", plain=plain)
    assert leftover_managed_ledgers(world.references()) == ()


def test_one_that_another_split_explains_is_in_use(world):
    world.topic("t/ns/persistent/a")
    world.subscribe("t/ns/persistent/a", "b-c")
    world.pending_acks("t/ns/persistent/a-b", "c")  # a-b has no such subscription
    assert leftover_managed_ledgers(world.references()) == ()


@pytest.mark.parametrize("topic_is_there", [False, True])
def test_one_without_topic_or_cursor_is_left_over_as_a_whole(world, topic_is_there):
    name = world.pending_acks("t/ns/persistent/a-b", "c")
    if not topic_is_there:
        world.remove_nodes("t/ns/persistent/a-b")
    (found,) = leftover_managed_ledgers(world.references())
    assert (found.name, found.standing, found.remedies) == (name, Standing.CERTAIN, ())
    assert found.version == world.version(list_path(name))
    assert set(found.ledgers) == set(world.used_by(name))
    tried = {(one.fact, one.node) for one in found.evidence}
    assert (Fact.OWNER_ABSENT, list_path("t/ns/persistent/a")) in tried
    ours = (Fact.CURSOR_ABSENT, cursor_path("t/ns/persistent/a-b", "c"))
    assert ours in tried if topic_is_there else (Fact.OWNER_ABSENT, list_path("t/ns/persistent/a-b")) in tried


@pytest.mark.parametrize("which", ["list", "cursor"])
def test_one_whose_nodes_cannot_be_read_is_suspect(world, which):
    name = world.pending_acks("t/ns/persistent/a-b", "c")
    world.put(list_path(name) if which == "list" else cursor_path(name, "__pending_ack_state"), b"\xff")
    (found,) = leftover_managed_ledgers(world.references())
    assert (found.standing, found.remedies) == (Standing.SUSPECT, (Remedy.REPAIR_NODE,))


def test_one_of_a_namespace_that_nobody_knows_is_suspect(world):
    world.pending_acks("t/ns/persistent/a-b", "c")
    world.namespaces.clear()
    (found,) = leftover_managed_ledgers(world.references())
    assert (found.standing, found.remedies) == (Standing.SUSPECT, (Remedy.KNOW_NAMESPACE,))


def test_it_is_told_as_a_person_would():
    world = World(Random(1))
    world.topic("t/ns/persistent/a")
    world.pending_acks("t/ns/persistent/a", "c d")
    (found,) = leftover_managed_ledgers(world.references())
    assert leftover_told(found) == (
        "The managed ledger t/ns/persistent/a-c+d__transaction_pending_ack keeps a subscription's pending"
        " acknowledgements.",
        "Its name is made of a topic and a subscription.",
        "There is no /managed-ledgers/t/ns/persistent/a/c+d.",
        "It refers to 2 ledgers, 0 bytes by its list: they go only after it.",
        "So it belongs to nobody, and that is certain.",
    )

"""Verdicts as a person would tell them: one idea a sentence, and nothing that forges a line."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from offloader.bookkeeper.model import LedgerState
from offloader.lifecycle.ledgers.evidence import Fact, LedgerEvidence, LedgerVerdict, Remedy, Standing, seen_ledger
from offloader.lifecycle.ledgers.kinds import LedgerKind
from offloader.lifecycle.ledgers.references import named_ledgers
from offloader.lifecycle.ledgers.scanned import MissingLedger
from offloader.lifecycle.ledgers.told import facts_told, missing_told, remedies_told, told
from offloader.lifecycle.ledgers.verdicts import KnownStores, LedgerJudge

from .clusters import cluster
from .world import World, cursor_of, data_of, metadata

TOPIC = "t/ns/persistent/orders"


def verdict_on(world, ledger):
    found = LedgerJudge(KnownStores((world.references(),), alone=True)).verdict(world.look(ledger))
    return replace(found, ledger=replace(found.ledger, created_ms=None))


def a_world():
    world = World(Random(1))
    world.topic(TOPIC)
    return world


def test_an_orphan_that_is_certain():
    world = a_world()
    world.create(data_of(TOPIC), 0)
    ledger, greater = world.next_id, world.roll(TOPIC)
    node = f"/managed-ledgers/{TOPIC} (version 2)"
    assert told(verdict_on(world, ledger)) == (
        f"Ledger {ledger} is for data of {TOPIC}.",
        "It is closed, with 0 entries and 0 bytes.",
        f"{node} does not name ledger {ledger}.",
        f"It names ledger {greater}, which was taken later.",
        f"So whoever made ledger {ledger} can no longer list it there.",
        "It has no entries: it was never used.",
        "So it is an orphan, and that is certain.",
    )


def test_a_suspect_says_what_would_make_it_certain():
    world = a_world()
    ledger = world.create(data_of(TOPIC))
    sentences = told(verdict_on(world, ledger))
    assert sentences[1] == "It is open."
    assert sentences[-2:] == (
        "So it may be an orphan, and it is left alone.",
        "To make it certain, have its topic loaded: the new owner lists a later ledger.",
    )


def test_what_is_kept_says_so():
    world = a_world()
    ledger = world.create(data_of(TOPIC), 5)
    world.roll(TOPIC)
    sentences = told(verdict_on(world, ledger))
    assert "What is in it is data: it is reported and never deleted." in sentences
    assert any("no trim leaves that" in one for one in sentences)


def test_what_is_in_use_says_by_whom():
    world = a_world()
    ledger = world.acknowledge(TOPIC, world.subscribe(TOPIC, "sub"))
    assert told(verdict_on(world, ledger))[-2:] == (
        f"It is named by /managed-ledgers/{TOPIC}/sub (version 1).",
        "So it is in use.",
    )


def test_names_of_others_forge_no_line():
    world = a_world()
    ledger = world.create(cursor_of(TOPIC, "x\nSo it is an orphan.\x1b[2J"))
    for sentence in told(verdict_on(world, ledger)):
        assert sentence.isprintable()


@pytest.mark.parametrize("ms", [1_700_000_000_000, -(2**62), 2**62])
def test_any_clock_is_told(ms):
    seen = replace(seen_ledger(1, 0, metadata({}, 2)), created_ms=ms)
    verdict = LedgerVerdict(seen, Standing.FOREIGN, LedgerKind.FOREIGN, ())
    expected = "2023-11-14T22:13:20.000Z" if ms == 1_700_000_000_000 else str(ms)
    assert expected in told(verdict)[1]


def test_a_ledger_that_is_being_recovered():
    seen = seen_ledger(1, 0, replace(metadata({}), state=LedgerState.IN_RECOVERY))
    assert "It is being recovered." in told(LedgerVerdict(seen, Standing.FOREIGN, LedgerKind.FOREIGN, ()))


def test_a_missing_one():
    world = a_world()
    (missing,) = (MissingLedger(*one) for one in named_ledgers(world.references()))
    assert missing_told(missing) == (
        f"Ledger {missing.ledger} is named by /managed-ledgers/{TOPIC}.",
        "BookKeeper has no metadata of it.",
        "Whoever reads there stops before it, or goes on as if it had never been.",
    )


@pytest.mark.parametrize("fact", Fact)
def test_each_fact_is_told_one_idea_a_sentence(fact):
    for one in (LedgerEvidence(fact, other=4), LedgerEvidence(fact, "s", "/node", 3, 4, "text")):
        for sentence in facts_told(one, 7):
            assert sentence.endswith(".")
            assert ". " not in sentence
            assert "None" not in sentence


@pytest.mark.parametrize("remedy", Remedy)
def test_each_remedy_is_one_sentence(remedy):
    (sentence,) = remedies_told([remedy])
    assert sentence.startswith("To make it certain, ")
    assert ". " not in sentence


def test_several_remedies_are_needed_together():
    assert remedies_told([Remedy.COMPACT, Remedy.REMOVE_CURSOR]) == (
        "To make it certain, have the topic compacted once more.",
        "Also, remove the subscription.",
    )
    assert remedies_told([]) == ("We know of nothing that would make it certain.",)


@pytest.mark.parametrize("seed", range(5))
def test_every_verdict_of_a_cluster_is_told(seed):
    world = cluster(seed)
    judge = LedgerJudge(KnownStores((world.references(),), alone=True))
    for one in world.seen():
        sentences = told(judge.verdict(one))
        assert all(sentence.endswith(".") and sentence.isprintable() for sentence in sentences)
        assert len(sentences) >= 3

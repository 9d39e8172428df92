"""When nothing at all is deleted: each refusal of section 4 of the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.lifecycle.ledgers.evidence import seen_ledger
from offloader.lifecycle.ledgers.refusals import (
    Refusal,
    RefusalKind,
    ScanFacts,
    WhereBrokersKeep,
    scan_refusals,
)
from offloader.lifecycle.ledgers.told import refusal_told

from .world import data_of, metadata, schema_of

OURS = WhereBrokersKeep("zk:h:2181/chroot", "zk://h:2181/chroot/ledgers")
SOUND = ScanFacts(OURS, (OURS, OURS))


def refusals(facts=SOUND, seen=("west",), ours=("west",), *, alone=True):
    return scan_refusals(facts, seen, ours, alone=alone)


def test_a_sound_scan_is_not_refused():
    assert refusals() == ()


def test_brokers_that_name_another_metadata_store_or_chroot():
    other = replace(OURS, metadata="zk:h:2181")
    assert refusals(replace(SOUND, brokers=(OURS, other, other))) == (Refusal(RefusalKind.OTHER_METADATA, "zk:h:2181"),)


def test_brokers_that_name_another_bookkeeper():
    other = replace(OURS, bookkeeper="zk://other/ledgers")
    assert refusals(replace(SOUND, brokers=(other,))) == (Refusal(RefusalKind.OTHER_BOOKKEEPER, "zk://other/ledgers"),)


@pytest.mark.parametrize("path", ["/managed-ledgers", "/admin/clusters"])
def test_managed_ledgers_or_clusters_missing_or_empty(path):
    assert refusals(replace(SOUND, empty=(path,))) == (Refusal(RefusalKind.NOTHING_THERE, path),)


def test_one_listing_that_failed():
    assert refusals(replace(SOUND, failed=("/schemas/t",))) == (Refusal(RefusalKind.LISTING_FAILED, "/schemas/t"),)


def test_no_broker_that_says_what_it_uses():
    assert [one.kind for one in refusals(replace(SOUND, brokers=()))] == [RefusalKind.LISTING_FAILED]


@pytest.mark.parametrize("alone", [False, True])
def test_a_ledger_that_names_another_cluster_whatever_the_operator_said(alone):
    found = refusals(seen=("west", "east", ""), alone=alone)
    assert Refusal(RefusalKind.ANOTHER_CLUSTER, "east") in found
    assert refusals(seen=("west", "east"), ours=("west", "east")) == ()  # all their stores were read


def test_clusters_are_those_that_health_checks_name():
    customs = (
        data_of("pulsar/east/b:1/persistent/healthcheck"),
        schema_of("pulsar/north/b:1/healthcheck"),
        data_of("pulsar/b:1/persistent/healthcheck"),
        data_of("t/ns/persistent/healthcheck"),
    )
    seen = [seen_ledger(n, 0, metadata(custom)) for n, custom in enumerate(customs)]
    assert {one.purpose.cluster for one in seen} == {"", "east", "north"}


def test_nobody_said_that_the_bookkeeper_is_not_shared():
    assert refusals(alone=False) == (Refusal(RefusalKind.MAY_BE_SHARED),)


def test_references_and_ledgers_in_different_zookeepers_are_only_reported():
    assert refusals(replace(SOUND, one_store=False)) == (Refusal(RefusalKind.NO_GUARD),)


def test_a_bookie_or_zookeeper_in_trouble():
    assert refusals(replace(SOUND, trouble=("bookie b1",))) == (Refusal(RefusalKind.IN_TROUBLE, "bookie b1"),)


@pytest.mark.parametrize("kind", RefusalKind)
def test_each_refusal_says_why_on_one_line(kind):
    told = refusal_told(Refusal(kind, "x{}\ny"))
    assert told.endswith(".")
    assert "\n" not in told

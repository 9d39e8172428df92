"""`offloader orphans scan|explain` over a random cluster in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from offloader.cli.orphans.deletion_parts import ScanProgress
from offloader.errors import (
    AuthorizationFailedError,
    BrokerUnavailableError,
    MetadataUnavailableError,
    StoreUnavailableError,
)
from offloader.metadata import layout
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.rescues import RescuedLedger
from offloader.model import LedgerRange, Position, RollReason, Segment, SegmentLayout, Source
from tests.archive.support import TOPIC, stream
from tests.lifecycle.bucket.support import a_uuid
from tests.lifecycle.ledgers.clusters import (
    cluster,
    delete_of_an_unloaded_topic,
    dies_between_create_and_list_update,
)
from tests.lifecycle.ledgers.world import World
from tests.lifecycle.ledgers.written import Written

METADATA = 'metadataServiceUri: "zk://unused:2181/ledgers"'
ALONE = "lifecycle: {bookkeeperIsNotShared: true}\n"
KEYS = {"side", "id", "kind", "verdict", "bytes", "evidence"}


@pytest.fixture
def scanned(line):
    """A command line beside a world; call it once the world is as it should be."""

    def of(world: World):
        written = Written(world)
        line.config = line.config.replace("pulsar: {", f"pulsar: {{{METADATA}, ") + ALONE
        line.cluster.admin.stores = written.pulsar.admin.stores
        line.dependencies = replace(
            line.dependencies, bookkeeper=lambda _config, _timeout: tuple(reversed(written.bookkeeper.client()))
        )
        return line

    return of


def a_world() -> World:
    world = World(Random(2))
    world.topic("t/ns/persistent/orders")
    return world


def trimmed(world: World) -> int:
    """The ledger that a trim dropped from the list of the first topic, and that nobody deleted."""
    name = world.topics[0]
    world.roll(name)
    old: int = world.info(name).ledgerInfo[0].ledgerId
    world.roll(name)
    info = world.info(name)
    del info.ledgerInfo[0]
    world.put_list(name, info)
    return old


def report(line, code: int) -> dict:
    result = line.run("orphans", "scan", "--output", "json")
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def reasons(found: dict) -> list[str]:
    """Why no ledger would be deleted."""
    return [one["kind"] for one in found["refusals"] if one["side"] == "bookkeeper"]


def test_the_report_has_the_form_that_programs_rely_on(scanned) -> None:
    world = cluster(4)
    found = report(scanned(world), 2)
    assert {"candidates", "referencedButMissing", "counts"} <= found.keys()
    assert all(one.keys() >= KEYS for one in found["candidates"])
    assert {one["verdict"] for one in found["candidates"]} == {"certain", "suspect"}
    assert {one["side"] for one in found["candidates"]} == {"bookkeeper"}
    paused = {one.ledger for one in world.about_to_list}
    assert {one["id"] for one in found["candidates"]} == {x for x in world.orphans if x in world.ledgers} | paused
    counts = found["counts"]
    assert counts["foreign"] == len(world.foreign)
    assert counts["referenced"] + counts["certain"] + counts["suspect"] + counts["foreign"] == counts["ledgers"]
    assert counts["missing"] == 0
    assert found["referencedButMissing"] == []
    assert reasons(found) == ["another-cluster"]


def test_without_a_candidate_there_is_no_finding(scanned) -> None:
    line = scanned(a_world())
    assert report(line, 0)["candidates"] == []
    assert line.ok("orphans", "scan").splitlines()[:2] == [
        "1 ledger in BookKeeper: 1 in use, 0 certain orphans, 0 suspect, 0 foreign",
        "in use: 1 data",
    ]


def test_nothing_is_certain_before_the_operator_has_spoken(scanned) -> None:
    world = a_world()
    trimmed(world)
    line = scanned(world)
    line.config = line.config.removesuffix(ALONE)
    found = report(line, 2)
    assert found["counts"]["certain"] == 0
    assert reasons(found) == ["may-be-shared"]


def test_an_explanation_ends_with_how_it_is_marked_where_it_may_be(scanned) -> None:
    world = a_world()
    trimmed(world)
    line = scanned(world)
    (certain,) = (one["id"] for one in report(line, 2)["candidates"] if one["verdict"] == "certain")
    asked = ("orphans", "explain", str(certain))
    assert line.ok(*asked).splitlines()[-1] == f"To mark it: `offloader orphans quarantine {certain} --yes`."
    assert not any("To mark it" in one for one in line.json(*asked)["evidence"])
    line.config = line.config.removesuffix(ALONE)
    assert "To mark it" not in line.ok(*asked)


def test_a_missing_ledger_is_named_with_who_names_it(scanned) -> None:
    world = a_world()
    name = world.topics[0]
    lost = world.roll(name)
    del world.ledgers[lost]
    line = scanned(world)
    found = report(line, 0)
    assert found["referencedButMissing"] == [{"id": lost, "namedBy": [f"/managed-ledgers/{name}"]}]
    assert f"missing: Ledger {lost} is named by /managed-ledgers/{name}." in line.ok("orphans", "scan")
    said = line.json("orphans", "explain", str(lost))
    assert (said["verdict"], said["bytes"]) == ("missing", None)


def test_the_text_sums_up_by_kind_and_age_and_what_it_costs(scanned) -> None:
    world = a_world()
    name, old = world.topics[0], trimmed(world)
    size = world.ledgers[old].length
    line = scanned(world)
    line.config += f"cost: {{asOf: 2026-11-26, currency: EUR, bookieGibMonth: {2**30}}}\n"
    text = line.run("orphans", "scan").stdout.splitlines()
    heap = f"1 ledger, {size} bytes (0.00 GiB), with all copies {size} bytes (0.00 GiB), {size:,.2f} EUR a month"
    assert text[2:6] == [
        "orphans by kind:",
        f"  data, certain: {heap}",
        "orphans by age:",
        f"  less than a day: {heap}",
    ]
    assert text[6].startswith(f"certain  bookkeeper  {old}  data, {size} bytes: /managed-ledgers/{name} (version ")
    assert "and 1 more" in line.run("orphans", "scan", "--show", "0").stdout


def test_left_over_managed_ledgers_are_told_as_a_whole(scanned) -> None:
    world = a_world()
    name = world.topics[0]
    pending = world.pending_acks(name, world.subscribe(name))
    delete_of_an_unloaded_topic(world, name)
    found = report(scanned(world), 2)
    assert [(one["name"], one["verdict"]) for one in found["leftOverManagedLedgers"]] == [(pending, "certain")]
    assert set(found["leftOverManagedLedgers"][0]["ledgers"]) == {*world.used_by(pending)}
    assert not {one["id"] for one in found["candidates"]} & {*world.used_by(pending)}


def test_explain_tells_the_chain_and_what_would_make_it_certain(scanned) -> None:
    world = a_world()
    name = world.topics[0]
    dies_between_create_and_list_update(world, name)
    suspect = max(world.orphans)
    line = scanned(world)
    text = line.ok("orphans", "explain", str(suspect)).splitlines()
    assert text[0] == f"Ledger {suspect} is for data of {name}."
    assert text[-1] == "To make it certain, have its topic loaded: the new owner lists a later ledger."
    said = line.json("orphans", "explain", str(suspect))
    assert (said["verdict"], said["kind"], said["bytes"]) == ("suspect", "data", None)
    used = line.json("orphans", "explain", str(world.info(name).ledgerInfo[0].ledgerId))
    assert (used["verdict"], used["remedies"]) == ("referenced", [])
    assert line.error("orphans", "explain", "999") == "there is no ledger 999, and nothing refers to one"


@pytest.mark.parametrize("error", [AuthorizationFailedError("not a super user"), BrokerUnavailableError("away")])
def test_brokers_that_do_not_say_where_they_keep_their_metadata(scanned, error) -> None:
    world = a_world()
    trimmed(world)
    line = scanned(world)
    line.cluster.faults.add("admin.stores_of_brokers", lambda: error, times=9)
    found = report(line, 2)
    assert found["refusals"][0]["kind"] == "listing-failed"
    assert str(error) in found["refusals"][0]["message"]


def test_without_a_metadata_service_it_says_what_to_configure(line) -> None:
    assert "pulsar.metadataServiceUri: needed" in line.error("orphans", "scan", "--ledgers-only")


def test_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 1.0, 2.5, 2.5, 3.0, 9.0, 9.0])
    progress = ScanProgress(clock=lambda: next(now))
    for count in (1, 2, 3, 4):
        progress("topics", count)
    assert capsys.readouterr().err.splitlines() == ["scan: topics: 2", "scan: topics: 4"]


def test_an_id_that_no_ledger_can_have(scanned) -> None:
    assert "there is no ledger" in scanned(a_world()).error("orphans", "explain", str(2**70))


def test_both_sides_are_one_report(scanned) -> None:
    world = a_world()
    old = trimmed(world)
    line = scanned(world)
    store = line.archive.store
    store.backing.clock_ms = line.clock
    line.archive.claim(ledger=5)
    line.archive.add(stream(5, 0, 9))
    stray = layout.data_key(TOPIC, a_uuid(1))
    store.put(stray, b"junk")
    store.put("notes", b"not ours")
    line.clock.now += 2 * 3_600_000
    found = report(line, 2)
    assert [one["message"] for one in found["refusals"]] == []
    assert [(one["side"], one["id"], one["verdict"]) for one in found["candidates"]] == [
        ("bookkeeper", old, "certain"),
        ("bucket", stray, "certain"),
    ]
    counts, sides = found["counts"], found["counts"]["sides"]
    assert (counts["candidates"], counts["certain"], counts["foreign"]) == (2, 2, 1)
    assert counts["referenced"] == sides["bookkeeper"]["referenced"] + sides["bucket"]["referenced"]
    assert counts["objects"] == sides["bucket"]["objects"] > 3
    assert counts["ledgers"] == len(world.ledgers)
    assert {one["side"] for one in found["summary"]} == {"bookkeeper", "bucket"}
    text = line.run("orphans", "scan").stdout
    assert f"certain  bucket  {stray}" in text
    assert "objects in the bucket: " in text
    ledgers = json.loads(line.run("orphans", "scan", "--ledgers-only", "--output", "json").stdout)
    assert [one["id"] for one in ledgers["candidates"]] == [old]
    objects = json.loads(line.run("orphans", "scan", "--bucket-only", "--output", "json").stdout)
    assert [one["id"] for one in objects["candidates"]] == [stray]
    assert line.json("orphans", "explain", stray)["verdict"] == "certain"


def test_a_bucket_that_cannot_be_reached_takes_nothing_from_the_ledgers(scanned) -> None:
    world = a_world()
    old = trimmed(world)
    line = scanned(world)

    def refused(_settings):
        raise StoreUnavailableError("connection refused")

    line.dependencies = replace(line.dependencies, store=refused)
    found = report(line, 2)
    assert [one["id"] for one in found["candidates"]] == [old]
    assert [one["message"] for one in found["refusals"]] == ["The bucket cannot be looked at: connection refused"]
    assert line.run("orphans", "scan", "--bucket-only").exit_code == 1


def test_without_zookeeper_one_error_says_how_to_look_at_the_bucket_alone(scanned) -> None:
    line = scanned(a_world())

    def away(*_):
        raise MetadataUnavailableError("zk://unused:2181: no server answers")

    line.dependencies = replace(line.dependencies, bookkeeper=away)
    said = "zk://unused:2181: no server answers"
    assert line.error("orphans", "scan", "--output", "json") == f"{said}; --bucket-only looks at the archive alone"
    assert line.error("orphans", "scan", "--ledgers-only") == said


def rolled_back(world: World) -> int:
    """A ledger with entries in the middle of the first topic's list, which names it no more."""
    name = world.topics[0]
    world.roll(name)
    cut = world.roll(name)
    world.roll(name)
    info = world.info(name)
    del info.ledgerInfo[[one.ledgerId for one in info.ledgerInfo].index(cut)]
    world.put_list(name, info)
    return cut


def said_of(line, ledger: int) -> tuple[list[str], list[str]]:
    """By a scan, and by `explain`."""
    return report(line, 2)["candidates"][0]["evidence"], line.json("orphans", "explain", str(ledger))["evidence"]


def test_scan_and_explain_say_what_was_rescued_of_a_kept_ledger(scanned) -> None:
    world = a_world()
    cut = rolled_back(world)
    line = scanned(world).root()
    (one,) = report(line, 2)["candidates"]
    assert (one["id"], one["kept"]) == (cut, True)
    assert one["evidence"][-1] == f"`offloader orphans rescue {cut}` copies it into the archive."
    last, digest = world.ledgers[cut].last_entry, "CRC32C"
    record = RescuedLedger(
        cut, one["createdMs"], last, one["bytes"], "data", world.topics[0], digest, 1, 1, 1, (), (), (), b"", 0, "joe"
    )
    Rescues(line.archive.store, "memory").write(cut, 0, record, lambda: "t")
    lost = "On 1970-01-01T00:00:00.000Z 0 of its entries were rescued; no bookie gave the others."
    for evidence in said_of(line, cut):
        assert lost in evidence
        assert "What is in it is data: it is reported and never deleted." in evidence
    held = LedgerRange(cut, 0, last + 1, count=last + 1, size=one["bytes"])
    start, end = Position(0, cut, 0), Position(0, cut, last)
    segment = Segment(
        a_uuid(1), start, end, 0, 0, 1, 0, SegmentLayout(), Source.BOOKKEEPER, RollReason.REQUEST, (held,)
    )
    Rescues(line.archive.store, "memory").write(cut, 1, replace(record, segments=(segment,)), lambda: "u")
    whole = "Its entries were rescued on 1970-01-01T00:00:00.000Z: the archive has a copy of all of them."
    for evidence in said_of(line, cut):
        assert whole in evidence
        assert evidence[-1].startswith("What is in it is data, and the archive has it")
    assert any("rescued on" in text for text in line.json("explain", str(cut))["because"])


def test_a_bucket_that_does_not_answer_leaves_open_whether_a_kept_ledger_was_rescued(scanned) -> None:
    world = a_world()
    cut = rolled_back(world)
    line = scanned(world)

    def refused(_settings):
        raise StoreUnavailableError("connection refused")

    line.dependencies = replace(line.dependencies, store=refused)
    result = line.run("orphans", "explain", str(cut))
    assert result.exit_code == 0
    assert "connection refused" in result.stderr
    assert "is reported and never deleted" in result.stdout

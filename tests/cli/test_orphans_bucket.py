"""What `orphans scan` tells of the bucket."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Event

import pytest
from click.testing import Result

from offloader.cli.orphans.bucket_phases import parse_orphan
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.ledgers.references import References
from offloader.metadata import layout
from offloader.metadata.stock_keys import data_key
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, stream
from tests.cli.support import Line
from tests.lifecycle.bucket.support import HOUR, a_uuid

CLUSTER = "pulsarclustername"
OWNER = "managedledgername"
LONGEST_CALL = 60.0

LIST = ManagedLedger((ListedLedger(11, 1, 1, 1),), 1, created_ms=1)
OURS = References("memory", frozenset({"public/default"}), {"public/default/persistent/orders": LIST})


def run(line: Line, *arguments: str, of: str = "scan") -> Result:
    """`offloader orphans …`, where nobody has said where ledgers' metadata are."""
    return line.run("orphans", of, *arguments)


def archived(line: Line) -> None:
    line.archive.store.backing.clock_ms = line.clock
    line.archive.claim(ledger=5)
    line.archive.add(stream(5, 0, 9))
    line.clock.now += 2 * HOUR


def test_a_bucket_without_orphans_is_ok(line: Line) -> None:
    archived(line)
    result = run(line, "--bucket-only")
    assert result.exit_code == 0, result.output
    assert "0 certain orphans, 0 suspect, 0 foreign" in result.stdout


def test_orphans_are_findings_with_their_evidence_and_sums(line: Line) -> None:
    archived(line)
    key = layout.data_key(TOPIC, a_uuid(1))
    line.archive.store.put(key, b"junk")
    line.archive.store.put("notes", b"x")
    line.clock.now += 2 * HOUR
    result = run(line, "--bucket-only")
    assert result.exit_code == 2
    assert f"certain  bucket  {key}  data-object, 4 bytes: No catalog and no journal names it." in result.stdout
    told = json.loads(run(line, "--bucket-only", "--output", "json").stdout)
    (candidate,) = told["candidates"]
    said = [candidate[name] for name in ("side", "id", "verdict", "bytes")]
    assert said == ["bucket", key, "certain", 4]
    assert told["referencedButMissing"] == []
    assert (told["counts"]["foreign"], told["counts"]["candidates"]) == (1, 1)
    assert told["summary"] == [
        {
            "side": "bucket",
            "kind": "data-object",
            "verdict": "certain",
            "age": "under 1 day",
            "objects": 1,
            "bytes": 4,
        }
    ]


def test_what_a_hold_binds_is_shown_as_kept(line: Line) -> None:
    archived(line)
    key = layout.data_key(TOPIC, a_uuid(1))
    line.archive.store.put(key, b"junk")
    line.clock.now += 2 * HOUR
    line.config += 'policies: {hold: "case 4711"}\n'
    told = json.loads(run(line, "--bucket-only", "--output", "json").stdout)
    (candidate,) = told["candidates"]
    assert (candidate["kept"], told["counts"]["kept"]) == (True, 1)
    assert candidate["evidence"][-1] == "It stays as long as it is held by case 4711."
    assert "data-object, 4 bytes, kept: " in run(line, "--bucket-only").stdout


def test_the_stock_offloaders_bucket_is_looked_at_on_demand_only(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    archived(line)
    monkeypatch.setattr("offloader.cli.orphans.scan.lists_of", lambda _: lambda: (OURS,))
    stock = MemoryStore()
    stock.backing.clock_ms = line.clock
    meta = {CLUSTER: "memory", OWNER: "public/default/persistent/orders"}
    key = data_key(a_uuid(9), 9)
    stock.put(key, b"data", meta=meta)
    line.clock.now += 2 * HOUR
    assert run(line).exit_code == 0
    line.dependencies = replace(
        line.dependencies, store=lambda one: stock if one.root == "s3://stock" else line.archive.store
    )
    result = run(line, "--stock", "s3://stock", "--output", "json")
    assert result.exit_code == 2, result.output
    assert [one["id"] for one in json.loads(result.stdout)["candidates"]] == [key]


def test_a_damaged_journal_is_told_as_why_nothing_would_be_deleted(line: Line) -> None:
    archived(line)
    line.archive.store.put(layout.epoch_folder("broken", 1) + layout.slot_name(0), b"damage")
    line.archive.store.put(layout.data_key(TOPIC, a_uuid(1)), b"junk")
    line.clock.now += 2 * HOUR
    result = run(line)
    assert result.exit_code == 2
    assert "nothing would be deleted in the bucket:" in result.stdout
    assert "A journal cannot be read" in result.stdout


def test_one_object_is_explained_and_what_is_not_there_is_an_error(line: Line) -> None:
    archived(line)
    key = layout.data_key(TOPIC, a_uuid(1))
    line.archive.store.put(key, b"junk")
    upload = line.archive.store.begin(key)
    line.clock.now += 2 * HOUR
    told = json.loads(run(line, key, "--output", "json", of="explain").stdout)
    assert (told["kind"], told["verdict"]) == ("data-object", "certain")
    assert "No catalog and no journal names it." in run(line, key, of="explain").stdout
    assert json.loads(run(line, upload, "--output", "json", of="explain").stdout)["kind"] == "upload"
    used = layout.data_key(TOPIC, line.archive.catalog.segments[0].uuid)
    assert json.loads(run(line, used, "--output", "json", of="explain").stdout)["verdict"] == "referenced"
    line.archive.store.put("notes", b"x")
    assert json.loads(run(line, "notes", "--output", "json", of="explain").stdout)["verdict"] == "foreign"
    assert run(line, "none", of="explain").exit_code == 1


def test_objects_are_marked_only_with_yes(line: Line) -> None:
    archived(line)
    key = layout.data_key(TOPIC, a_uuid(1))
    line.archive.store.put(key, b"junk")
    line.clock.now += 2 * HOUR
    assert "1 object would be marked; nothing is without --yes" in run(line, key, of="quarantine").stdout
    assert not list(line.archive.store.list("_deletion/"))
    told = json.loads(run(line, key, "--yes", "--output", "json", of="quarantine").stdout)
    (mark,) = told["marks"]
    said = [mark[name] for name in ("side", "id", "outcome", "why", "kind", "bytes")]
    assert said == ["bucket", key, "marked", "", "data-object", 4]
    assert list(line.archive.store.list("_deletion/"))
    assert run(line, "--all-certain", "--yes", of="quarantine").exit_code == 0
    assert run(line, "notes", "--yes", of="quarantine").exit_code == 2


def test_an_id_of_digits_is_a_ledger_and_any_other_an_object() -> None:
    assert [parse_orphan(text) for text in ("17", "a/b/17", "٣")] == [17, "a/b/17", "٣"]


def test_where_there_is_no_archive_who_asks_for_the_bucket_gets_an_error(line: Line) -> None:
    assert "nothing was offloaded" in run(line, "--bucket-only").stderr
    result = run(line)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == "pulsar.metadataServiceUri is not set: only the bucket is scanned"


def test_ledgers_only_and_the_bucket_exclude_each_other(line: Line) -> None:
    assert line.error("orphans", "scan", "--ledgers-only", "--stock", "s3://x").endswith("say which")


def test_what_is_marked_in_the_bucket_is_listed_purged_and_undone_by_its_key(line: Line) -> None:
    line.config += "lifecycle: {bucketIsNotShared: true, limits: {percent: 100}}\n"
    archived(line)
    keys = [layout.data_key(TOPIC, a_uuid(number)) for number in (1, 2)]
    for key in keys:
        line.archive.store.put(key, b"junk")
    line.clock.now += 2 * HOUR
    line.ok("orphans", "quarantine", *keys, "--yes")
    assert {one["id"] for one in line.json_lines("orphans", "list")} == set(keys)
    assert "OBJECT is " not in line.ok("orphans", "undo", keys[1])
    line.clock.now += 25 * HOUR
    said = line.json("orphans", "purge", "--yes")
    assert [(one["id"], one["answer"]) for one in said["ended"]] == [(keys[0], "deleted")]
    assert [line.archive.store.stat(key) is not None for key in keys] == [False, True]
    (types,) = [one for one in line.json("orphans", "in-flight")["types"] if one["type"] == "OBJECT"]
    assert (types["deleted"], types["inFlight"]) == (1, 0)


def test_all_objects_of_a_segment_go_in_one_round_in_their_order(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are deleted at a time: none of them fails because another one goes first, which takes its time."""
    index_begun, plain, delete = Event(), MemoryStore.delete_if, BucketSide.delete

    def slow(store, key, etag):
        if key == keys[0]:
            index_begun.wait(0.3)
        return plain(store, key, etag)

    def begins(side, record, in_time):
        if record.object_key == keys[1]:
            index_begun.set()
        return delete(side, record, in_time)

    monkeypatch.setattr(MemoryStore, "delete_if", slow)
    monkeypatch.setattr(BucketSide, "delete", begins)
    line.config += "lifecycle: {bucketIsNotShared: true, limits: {percent: 100}}\n"
    archived(line)
    keys = [make(TOPIC, a_uuid(1)) for make in (layout.data_key, layout.index_key)]
    for key in keys:
        line.archive.store.put(key, b"junk")
    line.clock.now += 2 * HOUR
    line.ok("orphans", "quarantine", *keys, "--yes")
    line.clock.now += 25 * HOUR
    said = line.json("orphans", "purge", "--yes")
    assert [(one["id"], one["answer"]) for one in said["ended"]] == [(key, "deleted") for key in keys]
    assert said["failed"] == []


def test_a_process_that_was_paused_deletes_no_object_that_was_taken_back_meanwhile(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undo waits until every request of the try must have ended: whoever wakes later than that sends none."""
    delete, key = BucketSide.delete, layout.data_key(TOPIC, a_uuid(1))
    line.config += "lifecycle: {bucketIsNotShared: true, limits: {percent: 100}}\n"
    archived(line)
    line.archive.store.put(key, b"junk")
    line.clock.now += 2 * HOUR
    line.ok("orphans", "quarantine", key, "--yes")
    line.clock.now += 25 * HOUR
    early: list[str] = []

    def paused(side, record, in_time):
        line.clock.now = record.next_at
        early.append(run(line, key, of="undo").stderr)
        line.clock.now += int(1000 * LONGEST_CALL)
        line.ok("orphans", "undo", key)
        return delete(side, record, in_time)

    monkeypatch.setattr(BucketSide, "delete", paused)
    line.run("orphans", "purge", "--yes")
    assert "its deletion may be on its way" in early[0]
    assert line.archive.store.stat(key) is not None
    assert [one["state"] for one in line.json_lines("orphans", "list", "--state", "undone")] == ["undone"]


def test_what_is_marked_of_the_stock_offloader_waits_until_its_bucket_is_named(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.config += "lifecycle: {bucketIsNotShared: true, limits: {percent: 100}}\n"
    archived(line)
    stock = MemoryStore()
    stock.backing.clock_ms = line.clock
    key = data_key(a_uuid(9), 9)
    stock.put(key, b"data", meta={CLUSTER: "memory", OWNER: "public/default/persistent/orders"})
    line.clock.now += 2 * HOUR
    for module in ("quarantine", "deletion_parts"):
        monkeypatch.setattr(f"offloader.cli.orphans.{module}.lists_of", lambda _: lambda: (OURS,))
    line.dependencies = replace(
        line.dependencies, store=lambda one: stock if one.root == "s3://stock" else line.archive.store
    )
    line.ok("orphans", "quarantine", key, "--stock", "s3://stock", "--yes")
    line.clock.now += 25 * HOUR
    waits = line.json("orphans", "purge", "--yes")
    assert [(one["type"], one["due"]) for one in waits["waiting"]] == [("OFFLOAD_LEDGER", 1)]
    assert stock.stat(key) is not None
    done = line.json("orphans", "purge", "--stock", "s3://stock", "--yes")
    assert [one["answer"] for one in done["ended"]] == ["deleted"]
    assert stock.stat(key) is None


def test_what_a_policy_holds_is_neither_marked_nor_purged_and_each_command_says_by_whom(line: Line) -> None:
    archived(line)
    key = layout.data_key(TOPIC, a_uuid(1))
    line.archive.store.put(key, b"junk")
    line.clock.now += 2 * HOUR
    free = line.config + "lifecycle: {bucketIsNotShared: true, limits: {percent: 100}}\n"
    line.config = free + 'policies: {hold: "case 4711"}\n'
    told = json.loads(run(line, key, "--output", "json", of="explain").stdout)
    assert (told["kept"], told["evidence"][-1]) == (True, "It stays as long as it is held by case 4711.")
    for named in (("--all-certain",), (key,)):
        [mark] = json.loads(run(line, *named, "--yes", "--output", "json", of="quarantine").stdout)["marks"]
        assert (mark["outcome"], mark["why"]) == ("kept", "held by case 4711")
    line.config = free
    [mark] = json.loads(run(line, "--all-certain", "--yes", "--output", "json", of="quarantine").stdout)["marks"]
    assert mark["outcome"] == "marked"
    line.config = free + 'policies: {hold: "case 4711"}\n'
    line.clock.now += 30 * HOUR
    run(line, "--yes", of="purge")
    assert line.archive.store.stat(key) is not None
    listed = run(line, "--output", "json", of="list").stdout
    assert "held by case 4711" in listed
    line.config = free
    run(line, "--all-certain", "--yes", of="quarantine")
    line.clock.now += 30 * HOUR
    run(line, "--yes", of="purge")
    assert line.archive.store.stat(key) is None

"""`offloader orphans rescue|rescued|read|forget`, and what other commands say of what was rescued."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from itertools import count

import pytest

from offloader import Archive
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.errors import FatalError, StoreUnavailableError
from tests.cli.test_orphan_deletion import LEDGERS, LIMITS
from tests.lifecycle.deletion.cluster import DAY, JudgingScanner
from tests.lifecycle.rescue.support import KEPT, KeptCluster


@pytest.fixture
def cluster() -> KeptCluster:
    return KeptCluster()


@pytest.fixture
def line(line, cluster):
    numbers = count()
    line.config = LEDGERS + LIMITS
    line.archive.store.backing.clock_ms = lambda: cluster.now_ms
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: tuple(reversed(cluster.client())),
        scanner=lambda _config, tree, *_: JudgingScanner(tree.nodes, lambda: cluster.now_ms),
        clock_ms=lambda: cluster.now_ms,
        new_token=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
    )
    return line


def found(line, *arguments: str) -> list[dict]:
    """What a command with findings says."""
    result = line.run(*arguments, "--output", "json")
    assert result.exit_code == 2, result.output
    return [json.loads(text) for text in result.stdout.splitlines()]


def rescued(line) -> dict:
    (said,) = line.json_lines("orphans", "rescue", str(KEPT), "--yes")
    return said


def test_without_yes_it_says_what_it_would_copy_and_writes_nothing(line) -> None:
    (said,) = line.json_lines("orphans", "rescue", str(KEPT))
    assert (said["outcome"], said["rescue"]) == ("would be rescued", None)
    assert "40 entries" in said["why"]
    assert list(line.archive.store.list()) == []


def test_it_copies_into_a_bucket_that_has_nothing_yet_and_says_what(line, cluster) -> None:
    said = rescued(line)
    size = sum(map(len, cluster.entries))
    assert (said["outcome"], said["why"]) == ("rescued", "")
    assert {name: said["rescue"][name] for name in ("ledger", "entries", "bytes", "missing", "digestType")} == {
        "ledger": KEPT, "entries": 40, "bytes": size, "missing": [], "digestType": "CRC32C",
    }  # fmt: skip
    assert said["rescue"]["topic"] == "acme/orders/persistent/t"
    assert said["rescue"]["by"]
    assert line.json_lines("orphans", "rescued") == [said["rescue"]]
    assert "acme/orders/persistent/t" in line.ok("orphans", "rescued")
    assert rescued(line)["outcome"] == "rescued already"


def test_progress_goes_to_standard_error(line) -> None:
    result = line.run("orphans", "rescue", str(KEPT), "--yes")
    assert result.stdout.splitlines()[0].startswith("ledger 7: rescued, 40 entries")
    assert "rescuing ledger 7" in result.stderr


def test_what_is_in_use_foreign_or_not_there_is_a_finding_and_the_rest_is_copied(line) -> None:
    said = found(line, "orphans", "rescue", "9", "4711", str(KEPT), "--yes")
    assert [(one["id"], one["outcome"]) for one in said] == [(9, "refused"), (4711, "refused"), (KEPT, "rescued")]
    assert "in use" in said[0]["why"]


def test_what_is_open_is_to_be_closed_first(line, cluster) -> None:
    cluster.ledger(8, "t", 2, is_open=True)
    (said,) = found(line, "orphans", "rescue", "8", "--yes")
    assert "offloader ledgers close 8" in said["why"]


def test_entries_that_are_gone_are_told_and_left_out_only_where_somebody_says_so(line, cluster) -> None:
    cluster.lose(3, 4)
    (said,) = found(line, "orphans", "rescue", str(KEPT), "--yes")
    assert said["outcome"] == "failed"
    (said,) = found(line, "orphans", "rescue", str(KEPT), "--yes", "--with-losses")
    assert (said["outcome"], said["why"]) == ("rescued", "2 of 40 entries are on no bookie")
    assert [(one["first"], one["last"]) for one in said["rescue"]["missing"]] == [(3, 4)]


def test_bookies_that_are_gone_are_named_and_what_only_they_have_is_left_out(line, cluster) -> None:
    gone = cluster.metadata_of(KEPT).fragments[0].ensemble[:2]
    for bookie in gone:
        cluster.goes_for_good(bookie)
    (said,) = found(line, "orphans", "rescue", str(KEPT), "--yes", "--with-losses")
    assert (said["outcome"], "--gone BOOKIE" in said["why"]) == ("failed", True)
    named = [text for bookie in gone for text in ("--gone", bookie)]
    assert "needs --with-losses" in line.error("orphans", "rescue", str(KEPT), "--yes", *named)
    (said,) = found(line, "orphans", "rescue", str(KEPT), "--yes", "--with-losses", *named)
    assert said["outcome"] == "rescued"
    assert all(f"{gone[0]} is gone for good" in one["why"] for one in said["rescue"]["missing"])


def test_bookies_that_are_not_gone_or_not_the_ledgers_are_refused_before_anything_is_copied(line, cluster) -> None:
    named = ("orphans", "rescue", str(KEPT), "--with-losses", "--gone")
    assert "is registered" in line.error(*named, cluster.metadata_of(KEPT).fragments[0].ensemble[0])
    assert "--gone b99:3181: none of the ledgers" in line.error(*named, "b99:3181")


def test_what_was_rescued_is_read_as_messages_and_as_entries(line, cluster) -> None:
    rescued(line)
    cluster.metadata.cluster.delete_ledger(KEPT)
    messages = line.json_lines("orphans", "read", str(KEPT))
    assert [base64.b64decode(one["payload"]).strip() for one in messages] == [b"value %d" % n for n in range(40)]
    assert messages[0]["position"] == "7:0"
    entries = line.json_lines("orphans", "read", str(KEPT), "--entries")
    assert [base64.b64decode(one["data"]) for one in entries] == cluster.entries
    assert len(line.json_lines("orphans", "read", str(KEPT), "--from", "7:30", "--limit", "3")) == 3
    assert line.ok("orphans", "read", str(KEPT), "--format", "raw", "--limit", "1").strip() == "value 0"
    with Archive(OpenArchive(Stores.of(line.archive.store))) as archive:
        assert [each.data for each in archive.rescued(KEPT).entries()] == cluster.entries
        assert archive.topics() == []
        with pytest.raises(FatalError, match="nothing was rescued of ledger 8"):
            archive.rescued(8)


def test_reading_tells_what_is_missing(line, cluster) -> None:
    cluster.lose(3)
    found(line, "orphans", "rescue", str(KEPT), "--yes", "--with-losses")
    missing = [one for one in line.json_lines("orphans", "read", str(KEPT)) if "missing" in one]
    assert [one["missing"] for one in missing] == [{"from": "7:3", "to": "7:3"}]


def test_nothing_was_rescued_of_it(line) -> None:
    line.root()
    assert "nothing was rescued of ledger 7" in line.error("orphans", "read", str(KEPT))
    assert "nothing was rescued of ledger 7" in line.error("orphans", "forget", str(KEPT))
    assert "nothing was rescued" in line.ok("orphans", "rescued")


def test_a_damaged_record_is_a_finding(line) -> None:
    rescued(line)
    (key,) = (key for key, _ in line.archive.store.list("_rescued/") if "/records/" in key)
    line.archive.store.put(key, b"junk")
    (said,) = found(line, "orphans", "rescued")
    assert said["ledger"] == KEPT
    assert key in said["problem"]


def test_it_goes_by_its_number_through_both_phases_and_is_still_read(line, cluster) -> None:
    result = line.run("ledgers", "delete", str(KEPT), "--yes", "--output", "json")
    assert result.exit_code == 2
    assert "orphans rescue" in json.loads(result.stdout)["why"]
    rescued(line)
    every = line.json("orphans", "quarantine", "--all-certain", "--yes", "--ledgers-only")
    assert [one["outcome"] for one in every["marks"] if one["id"] == KEPT] == ["kept"]
    said = line.json("ledgers", "delete", str(KEPT), "--yes")
    assert said["answer"] == "marked"
    assert any("rescued on" in text for text in said["deletion"]["evidence"])
    cluster.network.now += DAY + 1
    assert [one["answer"] for one in line.json("orphans", "purge", "--yes")["ended"]] == ["deleted"]
    assert KEPT not in cluster.ledger_ids()
    assert len(line.json_lines("orphans", "read", str(KEPT))) == 40
    assert line.json("orphans", "scan", "--bucket-only")["candidates"] == []


def test_quarantine_by_its_number_marks_it_too(line) -> None:
    rescued(line)
    (mark,) = line.json("orphans", "quarantine", str(KEPT), "--yes")["marks"]
    assert mark["outcome"] == "marked"


def test_what_is_forgotten_goes_like_other_objects_and_the_ledger_is_kept_again(line, cluster) -> None:
    rescued(line)
    (said,) = [line.json("orphans", "forget", str(KEPT))]
    assert (said["forgotten"], said["onlyCopy"]) == (False, False)
    assert len(line.json_lines("orphans", "rescued")) == 1
    said = line.json("orphans", "forget", str(KEPT), "--yes")
    assert (said["forgotten"], said["onlyCopy"], said["rescue"]["entries"]) == (True, False, 40)
    assert line.ok("orphans", "rescued").strip() == "nothing was rescued"
    assert "nothing was rescued" in line.error("orphans", "read", str(KEPT))
    assert line.run("ledgers", "delete", str(KEPT), "--yes").exit_code == 2
    cluster.network.now += DAY + 1
    marks = line.json("orphans", "quarantine", "--all-certain", "--bucket-only", "--yes")["marks"]
    assert {one["kind"] for one in marks} == {"ended-rescue"}
    cluster.network.now += DAY + 1
    line.json("orphans", "purge", "--yes")
    left = [key for key, _ in line.archive.store.list("_rescued/")]
    assert left
    assert all("/records/" in key for key in left)
    assert rescued(line)["outcome"] == "rescued"


def test_what_waits_for_its_deletion_because_it_was_rescued_is_not_forgotten(line) -> None:
    rescued(line)
    line.json("ledgers", "delete", str(KEPT), "--yes")
    assert f"orphans undo {KEPT}" in line.error("orphans", "forget", str(KEPT), "--yes")
    assert len(line.json_lines("orphans", "rescued")) == 1
    line.json("orphans", "undo", str(KEPT))
    assert line.json("orphans", "forget", str(KEPT), "--yes")["forgotten"] is True


def test_what_has_no_messages_is_read_as_entries(line, cluster) -> None:
    """A cursor's ledger, say: its entries would look like damaged messages."""
    cluster.with_entries(KEPT + 1, "t", [b"\x08\x03\x10\x04"] * 3)
    metadata = cluster.metadata.read(KEPT + 1).metadata
    cursor = {**metadata.custom, "pulsar/cursor": b"sub"}
    cluster.metadata.cluster.put_ledger(KEPT + 1, replace(metadata, custom=cursor))
    cluster.network.now += DAY
    (said,) = line.json_lines("orphans", "rescue", str(KEPT + 1), "--yes")
    assert said["rescue"]["kind"] == "cursor"
    assert "--entries" in line.error("orphans", "read", str(KEPT + 1))
    assert len(line.json_lines("orphans", "read", str(KEPT + 1), "--entries")) == 3


def test_all_copies_are_read_back_on_request(line) -> None:
    said = rescued(line)["rescue"]
    assert line.json_lines("orphans", "rescued", "--read-back") == [said]
    key = next(key for key, _ in line.archive.store.list("_rescued/") if "/records/" not in key)
    line.archive.store.put(key, b"damage")
    assert line.json_lines("orphans", "rescued") == [said]
    (damaged,) = found(line, "orphans", "rescued", "--read-back")
    assert key in damaged["problem"]
    assert damaged == {**said, "problem": damaged["problem"]}
    result = line.run("orphans", "rescued", "--read-back")
    assert result.exit_code == 2
    assert "should have" in " ".join(result.stdout.split())


def test_what_a_policy_holds_is_not_forgotten(line) -> None:
    rescued(line)
    free, line.config = line.config, line.config + "policies: {hold: case 4711}\n"
    assert "held by case 4711" in line.error("orphans", "forget", str(KEPT), "--yes")
    line.config = free
    assert line.json("orphans", "forget", str(KEPT), "--yes")["forgotten"] is True


def test_explain_tells_of_a_copy_also_where_the_ledger_is_gone_or_not_kept(line, cluster) -> None:
    rescued(line)
    cluster.list_ledgers("t", 3, KEPT, 9)
    assert any("40 of 40 entries of it" in text for text in line.json("orphans", "explain", str(KEPT))["evidence"])
    cluster.list_ledgers("t", 3, 9)
    cluster.metadata.cluster.delete_ledger(KEPT)
    said = line.json("orphans", "explain", str(KEPT))
    assert said["verdict"] == "gone"
    assert f"orphans read {KEPT}" in said["evidence"][-1]
    cluster.with_entries(KEPT, "t", cluster.entries[:3])
    cluster.list_ledgers("t", 9)
    said = line.json("orphans", "explain", str(KEPT))
    assert any("of another ledger of this id" in text for text in said["evidence"])
    assert "there is no ledger 77" in line.error("orphans", "explain", "77")


def test_that_bookkeeper_has_another_ledger_by_its_id_is_no_second_copy(line, cluster) -> None:
    rescued(line)
    cluster.metadata.cluster.delete_ledger(KEPT)
    cluster.network.now += 1
    cluster.with_entries(KEPT, "t", cluster.entries[:3])
    assert line.json("orphans", "forget", str(KEPT))["onlyCopy"] is True
    (said,) = found(line, "orphans", "rescue", str(KEPT), "--yes")
    assert said["outcome"] == "failed"
    assert "another ledger" in said["why"]


def test_a_damaged_record_of_a_ledger_that_is_gone_does_not_end_the_rescue_of_others(line, cluster) -> None:
    rescued(line)
    (key,) = (key for key, _ in line.archive.store.list("_rescued/") if "/records/" in key)
    line.archive.store.put(key, b"junk")
    cluster.metadata.cluster.delete_ledger(KEPT)
    cluster.with_entries(KEPT + 1, "t", cluster.entries)
    cluster.network.now += DAY
    damaged, other = found(line, "orphans", "rescue", str(KEPT), str(KEPT + 1), "--yes")
    assert (damaged["outcome"], key in damaged["why"], other["outcome"]) == ("failed", True, "rescued")


def test_forgetting_the_only_copy_is_told(line, cluster) -> None:
    rescued(line)
    cluster.metadata.cluster.delete_ledger(KEPT)
    said = line.json("orphans", "forget", str(KEPT))
    assert said["onlyCopy"] is True
    assert "the only copy" in said["message"]


def test_a_rescue_needs_the_archive(line) -> None:
    def refused(_settings):
        raise StoreUnavailableError("connection refused")

    line.dependencies = replace(line.dependencies, store=refused)
    assert "connection refused" in line.error("orphans", "rescue", str(KEPT), "--yes")


def test_of_a_ledger_that_is_gone_the_copy_is_read_back(line, cluster) -> None:
    rescued(line)
    cluster.metadata.cluster.delete_ledger(KEPT)
    assert rescued(line)["outcome"] == "rescued already"
    key = next(key for key, _ in line.archive.store.list("_rescued/") if "/records/" not in key)
    line.archive.store.delete([key])
    (said,) = found(line, "orphans", "rescue", str(KEPT), "--yes")
    assert said["outcome"] == "failed"
    assert key in said["why"]


def test_a_damaged_record_is_forgotten_and_its_ledger_rescued_anew(line) -> None:
    rescued(line)
    (key,) = (key for key, _ in line.archive.store.list("_rescued/") if "/records/" in key)
    line.archive.store.put(key, b"junk")
    (said,) = found(line, "orphans", "rescue", str(KEPT), "--yes")
    assert (said["outcome"], key in said["why"]) == ("failed", True)
    line.json("orphans", "forget", str(KEPT), "--yes")
    assert rescued(line)["outcome"] == "rescued"

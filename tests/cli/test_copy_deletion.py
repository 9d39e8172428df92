"""`ledgers delete --type OFFLOAD_LEDGER`: PIP-186's request for a copy in the bucket of Pulsar's own offloader."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offloader.errors import AccessDeniedError, BucketNotFoundError
from offloader.lifecycle.ledgers.references import References
from offloader.metadata.stock_keys import data_key, index_key
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.storage.memory import MemoryStore
from tests.cli.support import Line
from tests.lifecycle.bucket.support import HOUR, a_uuid

CLUSTER = "pulsarclustername"
OWNER = "managedledgername"

TOPIC = "public/default/persistent/orders"
GONE, USED = a_uuid(9), a_uuid(8)
LIST = ManagedLedger((ListedLedger(18, 1, 1, 1, OffloadContext(USED, complete=True)),), 1, created_ms=1)
OURS = References("memory", frozenset({"public/default"}), {TOPIC: LIST})


@pytest.fixture
def stock(line: Line, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The copy of ledger 9 is named by nobody, that of 18 by its list, that of 7 is another cluster's, of 6 is new."""
    found = MemoryStore()
    found.backing.clock_ms = line.archive.store.backing.clock_ms = line.clock
    for uuid, ledger, cluster in ((GONE, 9, "memory"), (USED, 18, "memory"), (GONE, 7, "other")):
        for key in (data_key(uuid, ledger), index_key(uuid, ledger)):
            found.put(key, b"data", meta={CLUSTER: cluster, OWNER: TOPIC})
    line.clock.now += 2 * HOUR
    found.put(data_key(GONE, 6), b"data", meta={CLUSTER: "memory", OWNER: TOPIC})
    for module in ("cli.ledger_deletion", "cli.orphans.deletion_parts"):
        monkeypatch.setattr(f"offloader.{module}.lists_of", lambda _: lambda: (OURS,))
    line.config += "lifecycle: {bucketIsNotShared: true, limits: {percent: 100}, stockBucket: s3://stock}\n"
    line.dependencies = replace(
        line.dependencies, store=lambda one: found if one.root == "s3://stock" else line.archive.store
    )
    return found


def asked(line: Line, ledger: int, uuid: str, *more: str, code: int = 0) -> dict:
    given = ("ledgers", "delete", str(ledger), "--type", "OFFLOAD_LEDGER", "--offload-uuid", uuid, *more)
    result = line.run(*given, "--output", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("ledger", "uuid", "more", "answer"),
    [
        (18, USED, (), "still in use"),
        (9, a_uuid(1), (), "already gone"),
        (9, "no-uuid", (), "invalid"),
        (9, "-", (), "invalid"),
        (7, GONE, (), "does not match"),
        (9, GONE, ("--topic", "persistent://public/default/others"), "does not match"),
        (9, GONE, ("--component", "SCHEMA_STORAGE", "--schema-id", "public/default/orders"), "does not match"),
        (9, GONE, ("--cursor", "sub"), "does not match"),
        (9, GONE, ("--offload-metadata", "bucket=another"), "does not match"),
    ],
)
def test_the_four_successes(line: Line, stock: MemoryStore, ledger, uuid, more, answer) -> None:
    before = dict(stock.list())
    said = asked(line, ledger, uuid, *more, "--yes")
    assert (said["answer"], said["deletion"], said["refusals"]) == (answer, None, [])
    assert said["why"]
    assert dict(stock.list()) == before
    assert not list(line.archive.store.list("_deletion/"))


@pytest.mark.parametrize("error", [BucketNotFoundError("s3://stock: no such bucket"), AccessDeniedError("refused")])
def test_what_cannot_be_listed_has_nothing_that_is_already_gone(line: Line, stock: MemoryStore, error) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    for name in ("list", "read"):
        setattr(stock, name, refuse)
    stock.stat = lambda key: None  # as S3 answers for a bucket that is not there
    for more in ((), ("--yes",)):
        said = line.run("ledgers", "delete", "9", "--type", "OFFLOAD_LEDGER", "--offload-uuid", GONE, *more)
        assert (said.exit_code, "already gone" in said.output) == (1, False)
        assert str(error) in said.output


def test_of_an_empty_bucket_it_says_so(line: Line, stock: MemoryStore) -> None:
    stock.delete([key for key, _ in stock.list()])
    said = asked(line, 9, GONE)
    assert said["answer"] == "already gone"
    assert said["why"].endswith("and is empty")


@pytest.mark.parametrize("topic", ["public/default/orders", "orders", "public/default/persistent/orders"])
@pytest.mark.usefixtures("stock")
def test_a_topic_is_named_as_in_other_commands_or_as_its_managed_ledger(line: Line, topic) -> None:
    assert asked(line, 9, GONE, "--topic", topic)["answer"] == "would be marked"


def test_what_no_list_names_is_marked_data_and_index_and_goes_after_the_delay(line: Line, stock: MemoryStore) -> None:
    given = ("--topic", "persistent://public/default/orders", "--offload-metadata", "bucket=stock")
    assert asked(line, 9, GONE, *given)["answer"] == "would be marked"
    assert not list(line.archive.store.list("_deletion/"))
    said = asked(line, 9, GONE, *given, "--yes")
    assert (said["answer"], said["deletion"]["type"], said["deletion"]["uuid"]) == ("marked", "OFFLOAD_LEDGER", GONE)
    assert "--stock s3://stock" in said["why"]
    assert asked(line, 9, GONE, "--yes")["answer"] == "pending already"
    assert line.json("orphans", "purge", "--stock", "s3://stock", "--yes")["ended"] == []
    line.clock.now += 25 * HOUR
    done = line.json("orphans", "purge", "--stock", "s3://stock", "--yes")
    assert [one["answer"] for one in done["ended"]] == ["deleted"] * 2
    assert stock.stat(data_key(GONE, 9)) is stock.stat(index_key(GONE, 9)) is None
    assert stock.stat(data_key(USED, 18)) is not None
    assert asked(line, 9, GONE)["answer"] == "already gone"


def test_what_may_be_named_soon_is_denied(line: Line, stock: MemoryStore) -> None:
    said = asked(line, 6, GONE, "--yes", code=2)
    assert (said["answer"], "It was written" in said["why"]) == ("denied", True)


def test_more_than_the_limits_at_once_are_denied_and_the_text_says_why(line: Line, stock: MemoryStore) -> None:
    line.config = line.config.replace("percent: 100", "percent: 10")
    result = line.run("ledgers", "delete", "9", "--type", "OFFLOAD_LEDGER", "--offload-uuid", GONE, "--yes")
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "2 of 7 objects would go at once, more than 10 %: look why, or raise the limit",
        "ledger 9: denied: something stands against any deletion in that bucket",
    ]
    assert not list(line.archive.store.list("_deletion/"))


def test_somebody_must_say_where_the_copy_is(line: Line) -> None:
    given = ("ledgers", "delete", "9", "--type", "OFFLOAD_LEDGER", "--offload-uuid", GONE)
    assert "say in which bucket the copy is" in line.error(*given)
    assert "--suspect is for a LEDGER" in line.error(*given, "--suspect")

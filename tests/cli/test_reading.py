"""verify, takeover, config: what they print, and their exit codes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from dev.docs.commands import render
from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.metadata import layout
from offloader.metadata.journal import Journal
from offloader.metadata.state import Releasing, TopicState
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.storage.local import LocalStore
from tests.archive.ledgers.support import put_ledger
from tests.archive.ledgers.test_source import INFO, PATH, STATS
from tests.archive.support import TOPIC, gap, message, uuid_of
from tests.format.support import Stored, broker_metadata, checksummed
from tests.pulsar.test_rest import FakeAdmin

TIME = 1_700_000_000_000
LEDGER_UUID = "00000000-0000-4000-8000-000000000001"


def of(metadata: dict, payload: bytes = b"data") -> bytes:
    return checksummed(MessageMetadata(producer_name="p", sequence_id=0, publish_time=TIME, **metadata), payload)


@pytest.fixture
def archived(line):
    line.root()
    line.archive.claim(1, 0)
    line.archive.add(
        [
            Stored(1, 0, message("hello")),
            Stored(1, 1, broker_metadata(time=5, index=9) + of({}, b"two\nlines \xff")),
            Stored(1, 2, of({"num_messages_in_batch": 3})),
            Stored(1, 3, of({"compression": 3})),
            Stored(1, 5, b"opaque"),
            Stored(1, 6, of({"marker_type": 20})),
        ],
        [gap(1, 4, 4)],
    )
    return line


def test_verify_of_a_sound_archive(archived) -> None:
    size = archived.archive.catalog.segments[0].size
    assert archived.ok("verify") == f"1 topics, 1 segments, 6 entries (1 no messages), {size} bytes: no findings\n"
    assert archived.json("verify", "--quick", "orders")["findings"] == []


def test_verify_names_findings_and_exits_with_2(archived) -> None:
    key = layout.data_key(TOPIC, archived.archive.catalog.segments[0].uuid)
    archived.archive.store.delete([key])
    result = archived.run("verify")
    assert result.exit_code == 2
    assert result.stdout.splitlines()[0].startswith(f"missing-object {key}: ")
    result = archived.run("verify", "--output", "json")
    assert result.exit_code == 2
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["kind"], finding["key"], finding["topic"]) == ("missing-object", key, str(TOPIC))


def test_verify_ends_uploads_only_when_asked(archived) -> None:
    store = archived.archive.store
    store.begin(layout.data_key(TOPIC, uuid_of(9)))
    assert archived.run("verify").stdout.splitlines()[0].startswith("open-upload ")
    assert len(list(store.list_uploads())) == 1
    assert archived.run("verify", "--abort-uploads").stdout.endswith("1 findings, 1 uploads ended\n")
    assert list(store.list_uploads()) == []


def test_takeover(archived) -> None:
    with Journal.open(archived.archive.store, "app", archived.archive.token) as journal:
        journal.record([TopicState(TOPIC, releasing=Releasing.REQUEST)])
    archived.config = archived.config.replace("application: app", "application: heir")
    assert archived.ok("takeover", "app") == "heir has taken over 1 topics of app\n"
    assert archived.archive.catalog.claim.application == "heir"


def test_config_check(line) -> None:
    assert line.ok("config", "check") == "The configuration is sound\n"


def test_config_explain_says_who_set_what(line) -> None:
    line.cluster.namespace("public/default").properties["offloader.enabled"] = "false"
    rows = {row["setting"]: row for row in line.json("config", "explain", "orders")}
    assert rows["enabled"] == {
        "setting": "enabled", "value": "true", "level": "namespace",
        "set by": "namespaces[public/default].policies.enabled"
    }  # fmt: skip
    assert (rows["partSizeInBytes"]["value"], rows["partSizeInBytes"]["level"]) == ("8M", "default")
    assert rows["maxOffloadSegmentRolloverTimeInSeconds"]["value"] == "10m"


def test_config_explain_asks_pulsar_unless_offline(line) -> None:
    line.config = line.config.replace("  public/default: {enabled: true}", "  public/other: {enabled: true}")
    line.cluster.namespace("public/default").properties["offloader.enabled"] = "true"
    assert line.json("config", "explain", "orders")[0]["level"] == "property"
    assert line.json("config", "explain", "orders", "--offline")[0]["value"] == "false"


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -m dev.docs.commands docs/cli.md"


@pytest.fixture
def bucket(tmp_path: Path):
    store = LocalStore(tmp_path / "bucket")
    put_ledger(
        store, 7, [message(f"m{n}") for n in range(3)], LEDGER_UUID, topic=TopicName.parse("public/default/stock")
    )
    return store


def test_verify_reads_what_stock_brokers_have_offloaded_too(archived, bucket) -> None:
    url = bucket.url
    assert archived.ok("verify", "--ledgers", url).endswith("bytes, 1 ledgers of stock brokers: no findings\n")
    assert archived.json("verify", "public/default/stock", "--ledgers", url)["ledgers"] == 1
    assert archived.json("verify", "orders", "--ledgers", url)["ledgers"] == 0
    assert archived.run("verify", "public/default/stock").exit_code == 1


@pytest.mark.parametrize("key", [data_key(LEDGER_UUID, 7), index_key(LEDGER_UUID, 7)])
@pytest.mark.parametrize("named", [[], ["public/default/stock"], ["orders", "public/default/stock"]])
def test_verify_names_an_object_of_a_stock_broker_that_is_gone(archived, bucket, key, named) -> None:
    bucket.delete([key])
    result = archived.run("verify", *named, "--ledgers", bucket.url, "--output", "json")
    assert result.exit_code == 2
    assert [(f["key"], f["topic"]) for f in json.loads(result.stdout)["findings"]] == [
        (key, "persistent://public/default/stock")
    ]


def test_verify_of_a_topic_tells_what_may_be_the_topics(archived, bucket) -> None:
    """A data object without metadata and without an index may be any topic's; another topic's cannot, nor what is no
    ledger."""
    stray = data_key(LEDGER_UUID, 9)
    put_ledger(bucket, 8, [message("m")], LEDGER_UUID, topic=TopicName.parse("public/default/another"))
    bucket.delete([index_key(LEDGER_UUID, 8)])
    bucket.put("readme.txt", b"")
    assert archived.ok("verify", "public/default/stock", "--ledgers", bucket.url).endswith(
        "1 ledgers of stock brokers: no findings\n"
    )
    bucket.put(stray, b"x")
    result = archived.run("verify", "public/default/stock", "--ledgers", bucket.url)
    assert (result.exit_code, [text.split()[1] for text in result.stdout.splitlines()[:-1]]) == (2, [f"{stray}-index:"])


def test_verify_names_what_brokers_know_and_the_bucket_has_no_more(archived, tmp_path: Path) -> None:
    with closing(FakeAdmin()) as admin:
        admin.on(f"{PATH}/internalStats", STATS)
        admin.on(f"{PATH}/internal-info", INFO)
        archived.config = archived.config.replace("http://localhost:8080", f"http://{admin.host}")
        url = LocalStore(tmp_path / "emptied").url
        result = archived.run("verify", "orders", "--quick", "--ledgers", url, "--ask-pulsar", "--output", "json")
    assert result.exit_code == 2
    assert {f["kind"] for f in json.loads(result.stdout)["findings"]} == {"missing-object", "missing-index"}


def test_verify_of_ledgers_needs_no_archive_beside_them(line, bucket) -> None:
    said = line.ok("verify", "--ledgers", bucket.url)
    assert "1 ledgers of stock brokers: no findings (storage.root: nothing was offloaded to memory:// yet" in said
    assert line.json("verify", "public/default/stock", "--ledgers", bucket.url)["ledgers"] == 1
    bucket.delete([data_key(LEDGER_UUID, 7)])
    assert line.run("verify", "--ledgers", bucket.url).exit_code == 2
    assert "is not in the archive" in line.error("verify", "public/default/nothing", "--ledgers", bucket.url)


@pytest.mark.parametrize("quick", [False, True])
def test_verify_names_damage_in_a_ledger_of_a_stock_broker(archived, bucket, quick) -> None:
    key = data_key(LEDGER_UUID, 7)
    data, stat = bucket.read(key)
    bucket.put(key, data[:-1], meta=stat.meta)
    result = archived.run("verify", "--ledgers", bucket.url, "--output", "json", *(["--quick"] if quick else []))
    assert result.exit_code == 2
    assert {finding["key"] for finding in json.loads(result.stdout)["findings"]} == {key}

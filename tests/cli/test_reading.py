"""cat, verify, takeover, config: what they print, and their exit codes."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.cli.docs import render
from offloader.metadata import layout
from offloader.metadata.journal import Journal
from offloader.metadata.state import TopicState
from tests.archive.support import TOPIC, gap, message, stream, uuid_of
from tests.format.support import Stored, broker_metadata, checksummed

TIME = 1_700_000_000_000


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


def test_cat_shows_what_needs_no_decoding_and_says_what_does(archived) -> None:
    lines = [text.split("\t") for text in archived.ok("topics", "cat", "orders").splitlines()]
    assert lines[0] == ["1:0", str(len(message("hello"))), "2023-11-14T22:13:20.005Z", "1", "hello"]
    assert lines[1][3:] == ["1", "two\\nlines \\xff"]
    assert lines[2][3:] == ["3", "(a batch: not decoded)"]
    assert lines[3][3:] == ["1", "(ZSTD: not decoded)"]
    assert lines[4] == ["# 1:4..1:4 is missing: a gap: aborted"]
    assert lines[5] == ["1:5", "6", "-", "0", "(not a message: not decoded)"]
    assert lines[6][3:] == ["0", "(a marker: not decoded)"]


def test_cat_of_a_range(archived) -> None:
    assert [x.split("\t")[0] for x in archived.ok("topics", "cat", "orders", "--from", "1:2", "--to", "1:3").splitlines()] == [
        "1:2",
        "1:3",
    ]


def test_cat_as_json_has_the_bytes(archived) -> None:
    lines = archived.json_lines("topics", "cat", "orders")
    assert base64.b64decode(lines[1]["payload"]) == b"two\nlines \xff"
    assert lines[3]["payload"] is None
    assert lines[4] == {"missing": {"from": "1:4", "to": "1:4"}, "why": "a gap: aborted"}


def test_cat_of_entries_has_them_byte_for_byte(archived) -> None:
    first, second, *_ = archived.json_lines("topics", "cat", "orders", "--entries")
    assert base64.b64decode(first["data"]) == message("hello")
    assert (second["index"], second["brokerTime"]) == (9, "1970-01-01T00:00:00.005Z")
    text = archived.ok("topics", "cat", "orders", "--entries", "--to", "1:0")
    assert text == f"1:0\t{len(message('hello'))}\t{hashlib.sha256(message('hello')).hexdigest()}\n"


def test_cat_finds_the_incarnation_of_a_position(archived) -> None:
    archived.archive.incarnation = 1
    archived.archive.claim(created="later")
    archived.archive.add(stream(7, 0, 1))
    assert [x["position"] for x in archived.json_lines("topics", "cat", "orders", "--from", "1:6")] == ["1:6", "7:0", "7:1"]
    assert [x["position"] for x in archived.json_lines("topics", "cat", "orders", "--from", "7:1")] == ["7:1"]


def test_verify_of_a_sound_archive(archived) -> None:
    size = archived.archive.catalog.segments[0].size
    assert archived.ok("verify") == f"1 topics, 1 segments, 6 entries, {size} bytes: no findings\n"
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
        journal.record([TopicState(TOPIC, releasing=True)])
    archived.config = archived.config.replace("application: app", "application: heir")
    assert archived.ok("takeover", "app") == "heir has taken over 1 topics of app\n"
    assert archived.archive.catalog.claim.application == "heir"


def test_config_check(line) -> None:
    assert line.ok("config", "check") == "The configuration is sound\n"


def test_config_explain_says_who_set_what(line) -> None:
    line.cluster.namespace("public/default").properties["offloader.enabled"] = "false"
    rows = {row["setting"]: row for row in line.json("config", "explain", "orders")}
    assert rows["enabled"] == {
        "setting": "enabled", "value": "true", "level": "namespace", "set by": "namespaces[public/default].policies.enabled"
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
    assert page == render(), "run: python -m offloader.cli.docs docs/cli.md"

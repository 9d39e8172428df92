"""`topics cat`: messages and entries, ranges, filters, formats, what is missing, and following."""

from __future__ import annotations

import base64
import gc
import hashlib
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from offloader._proto.pulsar_messages_pb2 import CompressionType
from offloader.archive.following.live import FollowLimits, Live
from offloader.archive.reading.reader import ReadOptions
from offloader.cli.command import CommandSession
from offloader.cli.output import OUTPUTS
from offloader.cli.reading import LedgersOption, archived_partitions
from offloader.errors import BrokerUnavailableError
from offloader.metadata.layout import catalog_folder
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import Position, Segment, TopicName
from offloader.storage.local import LocalStore
from tests.archive.following.test_follow import TOPIC as FOLLOWED
from tests.archive.following.test_follow import Seconds, started
from tests.archive.ledgers.support import put_ledger
from tests.archive.messages.encoder import Producer, Sent, batch, chunked, marker, single
from tests.archive.reading.support import CountingStore
from tests.archive.support import gap, message, stream
from tests.format.support import Stored

START = 1_700_000_000_000


def at(seconds: int, compression: int = CompressionType.NONE) -> Producer:
    return Producer(publish_time=START + 1000 * seconds, compression=compression)


@pytest.fixture
def archived(line):
    """One message, a batch of three, a chunked message with another one in between, a marker, a gap and a loss."""
    line.archive.claim(1, 0)
    first, last = chunked(at(3), Sent(b"<chunked>", key=b"c"), 2, "u")
    entries = [
        replace(single(at(0), Sent(b"two\nlines \xff", key=b"k", properties=(("colour", "red"),))), broker=(5, 9)),
        batch(
            at(1, CompressionType.ZSTD),
            [
                Sent(b"a", key=b"k", properties=(("colour", "red"), ("size", "1"))),
                Sent(None, key=b"\xff", key_is_bytes=True),
                Sent(b"c"),
            ],
        ),
        first,
        single(at(4, CompressionType.LZ4), Sent(b"in between" * 20)),
        last,
        marker(),
    ]
    line.archive.add([Stored(1, n, entry.data) for n, entry in enumerate(entries)], [gap(1, 6, 6)])
    line.archive.lose(Position(0, 1, 7), Position(0, 1, 8))
    line.entries = [entry.data for entry in entries]
    return line


def places(text: str) -> list[str]:
    return [line.split("\t")[0] for line in text.splitlines()]


def test_messages_are_unpacked_from_batches_compression_and_chunks(archived) -> None:
    lines = [text.split("\t") for text in archived.ok("topics", "cat", "orders").splitlines()]
    assert lines == [
        ["1:0", "11", "2023-11-14T22:13:20.000Z", "k", "two\\nlines \\xff"],
        ["1:1:0", "1", "2023-11-14T22:13:21.000Z", "k", "a"],
        ["1:1:1", "0", "2023-11-14T22:13:21.000Z", "\\xff", "(null)"],
        ["1:1:2", "1", "2023-11-14T22:13:21.000Z", "-", "c"],
        ["1:3", "200", "2023-11-14T22:13:24.000Z", "-", "in between" * 20],
        ["1:4", "9", "2023-11-14T22:13:23.000Z", "c", "<chunked>"],
        ["# 1:6..1:6 is missing: a gap: aborted"],
        ["# 1:7..1:8 is missing: lost: trimmed (accepted by accept-loss)"],
    ]


def test_ranges_by_position_and_by_publish_time(archived) -> None:
    assert places(archived.ok("topics", "cat", "orders", "--from", "1:1", "--to", "1:3")) == [
        "1:1:0",
        "1:1:1",
        "1:1:2",
        "1:3",
    ]
    until = places(archived.ok("topics", "cat", "orders", "--to", "2023-11-14T22:13:21Z"))
    assert until == ["1:0", "1:1:0", "1:1:1", "1:1:2", "# 1:6..1:6 is missing: a gap: aborted", *until[-1:]]
    text = archived.ok("topics", "cat", "orders", "--from", str(START + 3000), "--to", "1:4")
    assert places(text) == ["1:3", "1:4"], "a chunk before the range is found"
    assert (
        places(archived.ok("topics", "cat", "orders", "--from", str(START + 3000), "--to", str(START + 3500)))[0]
        == "1:4"
    )


def test_what_a_range_by_time_leaves_out_is_not_read(line) -> None:
    line.archive.claim(1, 0)
    for hour in range(3):
        found = [single(at(3600 * hour + n), Sent(b"x" * 100)).data for n in range(40)]
        gaps = [gap(1, 50 * hour + 40, 50 * hour + 49)]
        line.archive.add([Stored(1, 50 * hour + n, data) for n, data in enumerate(found)], gaps)
    store = CountingStore(line.archive.store)
    until = str(START + 3600_000 + 5000)
    text = line.ok("topics", "cat", "orders", "--from", str(START + 3600_000), "--to", until)
    assert [place for place in places(text) if not place.startswith("#")] == [f"1:{50 + n}" for n in range(6)]
    assert sum(place.startswith("#") for place in places(text)) == 1, (
        "of segments that are left out, gaps are not told of"
    )
    segments = [segment.uuid for segment in line.archive.catalog.segments]
    assert [uuid for uuid in segments if any(uuid in key for key, _ in store.reads)] == segments[1:2]
    assert (
        sum(size for key, size in store.reads if key.endswith(segments[1])) < line.archive.catalog.segments[1].size / 2
    )


def test_filters_by_key_and_property(archived) -> None:
    assert places(archived.ok("topics", "cat", "orders", "--key", "k"))[:2] == ["1:0", "1:1:0"]
    assert len(places(archived.ok("topics", "cat", "orders", "--key", "k", "--key", "c", "--to", "1:5"))) == 3
    assert places(archived.ok("topics", "cat", "orders", "--key", "\udcff"))[0] == "1:1:1"  # a key need not be UTF-8
    red = ["topics", "cat", "orders", "--to", "1:5", "--property", "colour=red"]
    assert places(archived.ok(*red)) == ["1:0", "1:1:0"]
    assert places(archived.ok(*red, "--property", "size=1")) == ["1:1:0"]
    assert places(archived.ok(*red, "--key", "other")) == []


def test_limit_ends_the_output(archived) -> None:
    assert places(archived.ok("topics", "cat", "orders", "--limit", "2")) == ["1:0", "1:1:0"]
    assert places(archived.ok("topics", "cat", "orders", "--limit", "2", "--entries")) == ["1:0", "1:1"]


def test_json_has_every_field(archived) -> None:
    first, second, third, *rest = archived.json_lines("topics", "cat", "orders")
    assert first == {
        "topic": "persistent://public/default/orders", "position": "1:0", "batchIndex": None, "size": 11,
        "publishTime": "2023-11-14T22:13:20.000Z", "eventTime": None, "key": "k",
        "keyBytes": "aw==", "properties": {"colour": "red"}, "producer": "p", "sequenceId": 0, "orderingKey": None,
        "schemaVersion": None, "replicatedFrom": None, "brokerTime": "1970-01-01T00:00:00.005Z", "index": 9,
        "encryptionKeys": None, "payload": base64.b64encode(b"two\nlines \xff").decode(), "problem": None,
    }  # fmt: skip
    assert (second["position"], second["batchIndex"], second["payload"]) == ("1:1", 0, "YQ==")
    assert (third["key"], third["keyBytes"], third["payload"]) == (None, "/w==", None)
    assert rest[-1]["missing"] == {"from": "1:7", "to": "1:8"}
    assert archived.ok("topics", "cat", "orders", "--format", "json") == archived.ok(
        "topics", "cat", "orders", "-o", "json"
    )


def test_raw_is_the_payloads_one_after_another(archived) -> None:
    result = archived.run("topics", "cat", "orders", "--format", "raw")
    assert result.stdout_bytes == b"two\nlines \xffac" + b"in between" * 20 + b"<chunked>"
    assert result.stderr.splitlines()[0] == "# 1:6..1:6 is missing: a gap: aborted"
    entries = archived.run("topics", "cat", "orders", "--format", "raw", "--entries")
    assert entries.stdout_bytes == b"".join(archived.entries)


def test_hex_is_a_dump_of_each_message(archived) -> None:
    text = archived.ok("topics", "cat", "orders", "--format", "hex", "--to", "1:0")
    assert text == (
        "1:0\t11\t2023-11-14T22:13:20.000Z\tk\n00000000  74 77 6f 0a 6c 69 6e 65  73 20 ff                 "
        "|two.lines .|\n"
    )
    assert "1:1:1\t0\t2023-11-14T22:13:21.000Z\t\\xff\t(null)\n1:1:2" in archived.ok(
        "topics", "cat", "orders", "--format", "hex"
    )


def test_entries_are_there_byte_for_byte(archived) -> None:
    first, *rest, lost, _ = archived.json_lines("topics", "cat", "orders", "--entries")
    assert (first["index"], first["brokerTime"], first["messages"]) == (9, "1970-01-01T00:00:00.005Z", 1)
    assert [base64.b64decode(entry["data"]) for entry in (first, *rest)] == archived.entries
    gap_line = {"topic": first["topic"], "missing": {"from": "1:6", "to": "1:6"}, "why": "a gap: aborted"}
    assert lost == gap_line
    text = archived.ok("topics", "cat", "orders", "--entries", "--to", "1:0")
    assert text == f"1:0\t{len(archived.entries[0])}\t{hashlib.sha256(archived.entries[0]).hexdigest()}\n"


def test_an_entry_that_is_no_message_is_an_error_unless_damage_is_skipped(line) -> None:
    line.archive.claim(1, 0)
    line.archive.add([Stored(1, 0, message("x")), Stored(1, 1, b"opaque")])
    result = line.run("topics", "cat", "orders")
    assert result.exit_code == 1
    assert re.match(r"error: public/default/orders/\S+: 1:1 \(offset \d+\): ", result.stderr)
    assert line.ok("topics", "cat", "orders", "--on-damage", "skip").splitlines()[1] == "1:1\t0\t-\t-\t(damaged)"
    raw = line.run("topics", "cat", "orders", "--on-damage", "skip", "--format", "raw")
    assert (raw.stdout, raw.stderr) == ("x", "# 1:1 has no value: damaged\n")
    assert line.json_lines("topics", "cat", "orders", "--entries")[1]["publishTime"] is None


def test_a_time_that_no_calendar_has_is_shown_as_it_is(line) -> None:
    line.archive.claim(1, 0)
    line.archive.add([Stored(1, 0, single(Producer(publish_time=2**62), Sent(b"x")).data)])
    assert line.ok("topics", "cat", "orders").split("\t")[2] == str(2**62)


def test_a_position_is_found_in_its_incarnation(archived) -> None:
    archived.archive.incarnation = 1
    archived.archive.claim(created=2)
    archived.archive.add(stream(7, 0, 1))
    assert [x["position"] for x in archived.json_lines("topics", "cat", "orders", "--from", "7:1")] == ["7:1"]


def partition(number: int) -> str:
    return f"persistent://public/default/orders-partition-{number}"


@pytest.fixture
def partitioned(line):
    """Partitions 1, 2 and 10, each with its first message a second after the one before it."""
    for second, number in enumerate((10, 2, 1)):
        line.archive.topic = TopicName.parse(partition(number))
        line.archive.claim(number, 0)
        entries = [single(at(second + n), Sent(f"{number}:{n}".encode())).data for n in range(2)]
        line.archive.add([Stored(number, n, data) for n, data in enumerate(entries)])
    return line


def test_partitions_are_read_one_after_the_other(partitioned) -> None:
    found = places(partitioned.ok("topics", "cat", "orders"))
    headings = [f"# {partition(number)}" for number in (1, 2, 10)]
    assert found == [headings[0], "1:0", "1:1", headings[1], "2:0", "2:1", headings[2], "10:0", "10:1"]
    assert places(partitioned.ok("topics", "cat", "orders", "--to", str(START + 1000))) == [*found[3:5], *found[6:9]]
    assert places(partitioned.ok("topics", "cat", "orders", "--limit", "3", "--entries")) == found[:5]
    assert partitioned.ok("topics", "cat", "orders", "--format", "raw") == "1:01:12:02:110:010:1"
    told = [(x["topic"], x["position"]) for x in partitioned.json_lines("topics", "cat", "orders")]
    assert told == [(partition(number), f"{number}:{n}") for number in (1, 2, 10) for n in range(2)]


def test_what_is_kept_of_records_does_not_grow_with_them_or_with_partitions(
    line, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        line.archive.topic = TopicName.parse(partition(number))
        line.archive.claim(number, 0)
        for entry in range(20):
            line.archive.add(stream(number, entry, entry))
    monkeypatch.setattr("offloader.runtime.connections.MOST_KEPT", 10)
    (line.folder / "offloader.yaml").write_text(line.config)
    session = CommandSession(line.dependencies, line.folder / "offloader.yaml", OUTPUTS["text"]())
    gc.collect()
    before = segments_in_memory()
    sources = archived_partitions(
        session, TopicName.parse("orders"), LedgersOption(None, None, ask_pulsar=False), ReadOptions()
    )
    assert [len(list(source.records.plan())) for source in sources] == [20, 20, 20]
    gc.collect()
    assert segments_in_memory() - before <= 10


def segments_in_memory() -> int:
    return sum(isinstance(each, Segment) for each in gc.get_objects())


def test_a_partition_whose_catalog_is_gone_is_not_left_out(partitioned) -> None:
    store = partitioned.archive.store
    store.delete([key for key, _ in store.list(catalog_folder(TopicName.parse(partition(2))))])
    for topic in ("orders", "orders-partition-2"):
        for command in (("cat",), ("export", "--to", str(partitioned.folder / "x"))):
            text = partitioned.error("topics", *command, topic)
            assert text.startswith(
                f"{partition(2)} has segments in the archive, but its catalog is gone; `offloader catalog rebuild"
            )


def test_a_name_of_a_topic_and_of_partitions_is_told_of(partitioned) -> None:
    partitioned.archive.topic = TopicName.parse("orders")
    partitioned.archive.claim(20, 0)
    partitioned.archive.add([Stored(20, 0, single(at(9), Sent(b"x")).data)])
    result = partitioned.run("topics", "cat", "orders")
    assert places(result.stdout) == ["20:0"]
    assert "was partitioned once, too: name one of its 3 archived partitions" in result.stderr


def test_one_partition_has_no_heading_of_its_own(partitioned) -> None:
    assert places(partitioned.ok("topics", "cat", "orders-partition-2")) == ["2:0", "2:1"]


def test_a_position_is_in_one_partition_only(partitioned) -> None:
    for bound in ("--from", "--to"):
        assert partitioned.error("topics", "cat", "orders", bound, "2:0") == (
            f"a position is in one of the 3 partitions: name that, for example {partition(1)}"
        )


def test_one_position_of_a_partitioned_topic_needs_the_partition(partitioned) -> None:
    assert partitioned.error("topics", "peek", "orders", "2:0") == (
        "persistent://public/default/orders is partitioned; name one of its 3 archived partitions, for example "
        f"{partition(1)}"
    )


def test_it_needs_no_more_than_the_section_storage(archived) -> None:
    archived.config = 'storage: {root: "file:///unused"}\n'
    assert places(archived.ok("topics", "cat", "orders", "--to", "1:0")) == ["1:0"]
    assert "orders" in archived.ok("topics", "list")
    result = archived.run("topics", "cat", "orders", "--follow")
    assert result.exit_code == 1
    assert "error: application: is missing" in result.stderr
    archived.config = 'storage: {root: "nowhere"}\n'
    assert archived.error("topics", "cat", "orders").startswith("storage.root: not a URL")


@pytest.mark.parametrize("early", ["1970-01-01", "1969-12-31T23:59:59Z", "1972-06-01T00:00:00+02:00"])
def test_a_date_is_a_time_however_early(archived, early) -> None:
    assert archived.ok("topics", "cat", "orders", "--from", early) == archived.ok("topics", "cat", "orders")
    assert [
        text for text in archived.ok("topics", "cat", "orders", "--to", early).splitlines() if not text.startswith("#")
    ] == []


@pytest.mark.parametrize("number", ["0", "12", "1700000000", " 99999999999 "])
def test_a_small_number_is_no_time(archived, number) -> None:
    assert "is neither a position nor a time" in archived.error("topics", "cat", "orders", "--from", number)


def test_it_writes_nothing(archived) -> None:
    def refused(*_: object, **__: object) -> object:
        raise AssertionError("reading wrote")

    store = archived.archive.store
    store.put = store.begin = store.delete = store.commit = refused
    for reading in (["cat"], ["cat", "--entries"], ["peek", "1:0"]):
        archived.ok("topics", reading[0], "orders", *reading[1:])


def test_ledgers_that_a_broker_has_offloaded_are_read_too(line, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    put_ledger(
        LocalStore(bucket),
        7,
        [message(f"m{n}") for n in range(3)],
        "00000000-0000-4000-8000-000000000001",
        topic=line.archive.topic,
    )
    found = line.json_lines("topics", "cat", "orders", "--ledgers", bucket.as_uri())
    assert [(x["position"], base64.b64decode(x["payload"])) for x in found] == [
        (f"7:{n}", f"m{n}".encode()) for n in range(3)
    ]
    assert line.json("topics", "peek", "orders", "7:1", "--ledgers", bucket.as_uri())["object"]["block"]["version"] == 1


LEDGER_UUID = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("key", [data_key(LEDGER_UUID, 7), index_key(LEDGER_UUID, 7)])
def test_a_ledger_of_a_broker_of_which_an_object_is_gone_is_damage(line, tmp_path: Path, key) -> None:
    bucket = LocalStore(tmp_path / "bucket")
    for ledger in (7, 8):
        put_ledger(bucket, ledger, [message(f"m{ledger}")], LEDGER_UUID, topic=line.archive.topic)
    bucket.delete([key])
    cat = ["topics", "cat", "orders", "--ledgers", bucket.url]
    assert key in line.error(*cat)
    assert key in line.error("topics", "peek", "orders", "7:0", "--ledgers", bucket.url)
    # The line names the data object, and its index where that is what is missing.
    told = [text for text in line.ok(*cat, "--on-damage", "skip").splitlines() if text.startswith("# 7:0..")]
    assert ["is missing: damaged: " in told[0], key in told[0]] == [True, True]
    exported = line.run("topics", "export", "orders", "--to", str(tmp_path / "x.parquet"), "--ledgers", bucket.url)
    assert (exported.exit_code, key in exported.stderr) == (1, True)


@pytest.mark.parametrize("command", [["cat"], ["cat", "--entries"], ["export", "--to", "x.parquet"]])
def test_two_copies_of_a_ledger_that_contradict_each_other_are_warned_of(
    line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command
) -> None:
    monkeypatch.chdir(tmp_path)
    bucket, other = LocalStore(tmp_path / "bucket"), LEDGER_UUID[:-1] + "2"
    reading = ["topics", command[0], "orders", *command[1:], "--ledgers", bucket.url]
    put_ledger(bucket, 7, [message("m7")], LEDGER_UUID, topic=line.archive.topic)
    assert line.run(*reading).stderr == ""
    put_ledger(bucket, 7, [message("another")], other, topic=line.archive.topic)
    result = line.run(*reading, *(["--overwrite"] if command[0] == "export" else []))
    assert result.exit_code == 0
    (told,) = result.stderr.splitlines()
    assert told.endswith(
        f"{line.archive.topic}: the bucket has two complete copies of ledger 7 with different entries: {LEDGER_UUID} "
        f"is taken, {other} is left out; see docs/running.md#two-copies"
    )


@pytest.fixture
def followed(line):
    sim = started(1, roll="1s")
    seconds = Seconds()
    live = Live(
        lambda: nullcontext((sim.cluster.source, sim.cluster.admin)), FollowLimits(idle=0.2), seconds, seconds.pause
    )
    line.dependencies = replace(line.dependencies, store=lambda _: sim.store, live=lambda _: live)
    line.sim = sim
    yield line
    sim.close()


def produce(sim, *seconds: int) -> list[str]:
    """Batches of one message each; their positions."""
    entries = [batch(at(second), [Sent(f"m{second}".encode())]).data for second in seconds]
    return ["{}:{}".format(*sim.cluster.produce(FOLLOWED, entry)) for entry in entries]


def test_following_goes_on_into_the_live_topic(followed) -> None:
    archived = produce(followed.sim, 0, 1, 2, 3, 4)
    followed.sim.settle()
    every = archived + produce(followed.sim, 5, 7, 6, 8)
    cat = ["topics", "cat", str(FOLLOWED), "--entries"]
    assert places(followed.ok(*cat)) == archived
    assert places(followed.ok(*cat, "--follow")) == every
    assert places(followed.ok(*cat, "--follow", "--from", every[3])) == every[3:]
    assert places(followed.ok(*cat, "--follow", "--from", every[7])) == every[7:]
    assert places(followed.ok(*cat, "--follow", "--to", every[6])) == every[:7]
    assert places(followed.ok(*cat, "--follow", "--limit", "6")) == every[:6]
    assert places(followed.ok(*cat, "--follow", "--from", str(START + 3000))) == every[3:]
    assert places(followed.ok(*cat, "--follow", "--from", str(START + 7000))) == [every[6], every[8]]


def test_following_unpacks_messages(followed) -> None:
    produce(followed.sim, 0, 1)
    followed.sim.settle()
    produce(followed.sim, 2, 3)
    found = followed.json_lines("topics", "cat", str(FOLLOWED), "--follow", "--from", str(START + 1000))
    assert [base64.b64decode(message["payload"]) for message in found] == [b"m1", b"m2", b"m3"]


def test_following_a_partitioned_topic_follows_its_partitions_at_once(line) -> None:
    sim = started(2, roll="1s")
    topics = [TopicName.parse(partition(number)) for number in (0, 1)]
    for topic in topics:
        sim.cluster.create(topic)
    sim.rounds(4)
    live = Live(lambda: nullcontext((sim.cluster.source, sim.cluster.admin)), FollowLimits(idle=0.3))
    line.dependencies = replace(line.dependencies, store=lambda _: sim.store, live=lambda _: live)
    for number, topic in enumerate(topics):
        sim.cluster.produce(topic, single(at(number), Sent(b"archived")).data)
    sim.settle()
    for number, topic in enumerate(topics):
        sim.cluster.produce(topic, single(at(number), Sent(b"live")).data)
    found = line.json_lines("topics", "cat", "orders", "--follow")
    values = [[base64.b64decode(x["payload"]) for x in found if x["topic"] == str(topic)] for topic in topics]
    assert values == [[b"archived", b"live"]] * 2
    assert len(found) == 4
    sim.close()


def test_following_ends_quietly_when_it_is_interrupted(followed) -> None:
    def interrupted():
        raise KeyboardInterrupt

    (position,) = produce(followed.sim, 0)
    followed.sim.settle()
    followed.dependencies = replace(followed.dependencies, live=lambda _: Live(interrupted))
    result = followed.run("topics", "cat", str(FOLLOWED), "--follow")
    assert (result.exit_code, result.output) == (130, "")
    assert places(followed.ok("topics", "cat", str(FOLLOWED), "--entries")) == [position]


def test_following_when_pulsar_cannot_be_reached_is_one_line(followed) -> None:
    def unreachable():
        raise BrokerUnavailableError("pulsar://localhost:6650 does not answer")

    produce(followed.sim, 0)
    followed.sim.settle()
    followed.dependencies = replace(followed.dependencies, live=lambda _: Live(unreachable))
    assert followed.error("topics", "cat", str(FOLLOWED), "--follow") == "pulsar://localhost:6650 does not answer"


LIMIT = ("--max-message-size", "100")  # 1:3 has 200 bytes in clear


def test_no_message_is_larger_than_is_allowed(archived) -> None:
    result = archived.run("topics", "cat", "orders", *LIMIT)
    assert result.exit_code == 1
    assert "1:3" in result.stderr
    assert "200 bytes uncompressed, more than the limit of 100" in result.stderr
    (line,) = [
        x
        for x in archived.ok("topics", "cat", "orders", *LIMIT, "--on-damage", "skip").splitlines()
        if x.startswith("1:3")
    ]
    assert line.endswith("(too-large)")
    result = archived.run("topics", "peek", "orders", "1:3", *LIMIT)
    assert result.exit_code == 2
    assert "more than the limit of 100" in result.stdout


def test_no_chunked_message_is_larger_than_is_allowed(archived) -> None:
    result = archived.run("topics", "cat", "orders", "--max-chunked-message-size", "100")
    assert result.exit_code == 1
    assert "1:4" in result.stderr


@pytest.mark.parametrize("size", ["0", "2G", "much"])
def test_a_size_that_no_message_can_have_is_refused(archived, size) -> None:
    result = archived.run("topics", "cat", "orders", "--max-message-size", size)
    assert result.exit_code == 1
    assert "--max-message-size" in result.stderr

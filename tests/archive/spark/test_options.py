"""Options: every one documented is understood, whatever else is said is refused in one line that names it."""

from __future__ import annotations

import pickle

import pytest

from offloader.archive.spark.options import Form, SourceOptions
from offloader.archive.spark.parsing import parse_options
from offloader.errors import ConfigError
from offloader.model import MIB, Position, TopicName
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

ORDERS = TopicName.parse("persistent://public/default/orders")
LEAST = {"root": "s3://bucket/prefix", "topics": "orders"}


def options(**given: str) -> SourceOptions:
    return parse_options({**LEAST, **given})


def test_least() -> None:
    assert options() == SourceOptions(StoreSettings("s3://bucket/prefix"), topics=(ORDERS,))


def test_names_in_any_case() -> None:
    found = parse_options(
        {"ROOT": "s3://b", "TopicsPattern": "persistent://a/b/.*", "STARTINGTIME": "5", "maxpartitionbytes": "1m"}
    )

    assert (found.pattern, found.starting_time, found.max_partition_bytes) == ("persistent://a/b/.*", 5, MIB)


def test_everything() -> None:
    found = options(
        endpoint="http://127.0.0.1:9",
        region="eu-central-1",
        format="entries",
        columns="topic, data",
        startingPosition="3:4",
        endingTime="2026-11-21T14:00:00+01:00",
        startingOffsets="latest",
        maxBytesPerTrigger="1G",
        pollInterval="200ms",
        readSize="1M",
        prefetch="0",
        onDamage="skip",
        maxMessageSize="20M",
        maxChunkedMessageSize="1G",
        failOnDataLoss="false",
        waitingForNonExistedTopic="true",
        pushFilters="true",
        metrics="file:///tmp/m",
        **{"storage.retry_deadline": "5"},
    )

    assert found.store == StoreSettings(
        "s3://bucket/prefix", "http://127.0.0.1:9", "eu-central-1", options=(("retry_deadline", "5"),)
    )
    assert found.form is Form.ENTRIES
    assert found.columns == ("topic", "data")
    assert found.starting_position.of(ORDERS) == Position(0, 3, 4)
    assert found.ending_position.of(ORDERS) is None
    assert found.ending_time == 1_795_266_000_000
    assert (found.from_latest, found.max_bytes_per_trigger, found.poll_ms) == (True, 1024 * MIB, 200)
    assert (found.read_size, found.prefetch, found.skip_damage) == (MIB, 0, True)
    assert (found.max_message_size, found.max_chunked_message_size) == (20 * MIB, 1024 * MIB)
    assert (found.fail_on_data_loss, found.wait_for_topics, found.push_filters, found.metrics) == (
        False,
        True,
        True,
        "file:///tmp/m",
    )


def test_position_of_each_topic() -> None:
    text = '{"orders": "1:2", "persistent://a/b/c": "7:-1"}'
    found = parse_options({"root": "s3://b", "topics": "orders,a/b/c", "startingPosition": text}).starting_position

    assert found.of(ORDERS) == Position(0, 1, 2)
    assert found.of(TopicName.parse("a/b/c")) == Position(0, 7, -1)
    assert found.of(TopicName.parse("a/b/d")) is None


@pytest.mark.parametrize(
    ("said", "ms"),
    [("1700000000000", 1_700_000_000_000), ("2023-11-14", 1_699_920_000_000), ("1970-01-01T00:00:00.0019", 1)],
)
def test_times(said: str, ms: int) -> None:
    assert options(startingTime=said).starting_time == ms


def test_load_may_name_the_root() -> None:
    assert parse_options({"path": "s3://b", "topic": "a,b"}).store.root == "s3://b"


def test_ledgers_of_stock_brokers() -> None:
    found = options(
        ledgers="s3://offloaded",
        cluster="east",
        endpoint="http://127.0.0.1:9",
        **{"admin.url": "http://127.0.0.1:8080"},
    )

    assert found.ledgers is not None
    assert found.ledgers.store == StoreSettings("s3://offloaded", "http://127.0.0.1:9")
    assert (found.ledgers.admin_url, found.ledgers.cluster) == ("http://127.0.0.1:8080", "east")


def test_storage_options_are_for_the_stores_whose_scheme_takes_them() -> None:
    given = {"topics": "orders", "storage.retry_deadline": "5"}
    said = (("retry_deadline", "5"),)

    for root, ledgers, expected in (
        ("s3://a", "s3://b", (said, said)),
        ("s3://a", "file:///b", (said, ())),
        ("file:///a", "s3://b", ((), said)),
    ):
        found = parse_options({**given, "root": root, "ledgers": ledgers})
        assert found.ledgers is not None
        assert (found.store.options, found.ledgers.store.options) == expected


@pytest.mark.parametrize("stores", [{"root": "file:///a"}, {"root": "file:///a", "ledgers": "file:///b"}])
def test_an_option_of_storage_that_no_store_takes_is_refused(stores: dict[str, str]) -> None:
    found = parse_options({**stores, "topics": "orders", "storage.nonsense": "1"})
    last = found.store if found.ledgers is None else found.ledgers.store
    with pytest.raises(ConfigError, match=r"^options\.nonsense: file:// takes no options; leave it out$"):
        open_store(last)


def test_private_keys() -> None:
    assert options(privateKeys="a=/k/a.pem, b=/k/b.pem").private_keys == (("a", "/k/a.pem"), ("b", "/k/b.pem"))


def test_metrics_in_a_bucket_are_written_like_the_archive_is_read() -> None:
    found = options(metrics="s3://metrics", endpoint="http://127.0.0.1:9")

    assert found.metrics_store == StoreSettings("s3://metrics", "http://127.0.0.1:9")
    assert options(metrics="S3://metrics", endpoint="http://127.0.0.1:9").metrics_store == StoreSettings(
        "S3://metrics", "http://127.0.0.1:9"
    )
    assert options(metrics="file:///m", endpoint="http://127.0.0.1:9").metrics_store == StoreSettings("file:///m")
    assert options().metrics_store is None


def test_can_be_pickled() -> None:
    found = options(startingPosition="3:4")

    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topics": "orders"}, "root: name the archive's root once"),
        ({"root": "s3://b", "path": "s3://c", "topics": "orders"}, "root: name the archive's root once"),
        ({"root": "s3://b"}, "topics: give exactly one of"),
        ({**LEAST, "namespace": "a/b"}, "topics: give exactly one of"),
        ({**LEAST, "startTime": "5"}, "starttime: no option of pulsar-archive; did you mean startingTime"),
        ({**LEAST, "xyzzy": "5"}, "xyzzy: no option of pulsar-archive; there are admin.url"),
        ({**LEAST, "topics": " , "}, "topics: it names nothing"),
        ({**LEAST, "topics": "non-persistent://a/b/c"}, "topics: 'non-persistent://a/b/c': only persistent topics"),
        ({"root": "s3://b", "topicsPattern": "a("}, "topicsPattern: 'a(' is not a regular expression"),
        ({"root": "s3://b", "namespace": "a"}, "namespace: 'a' is not a namespace"),
        ({**LEAST, "format": "rows"}, "format: 'rows' is none of messages, entries"),
        ({**LEAST, "maxMessageSize": "2G"}, "maxMessageSize: '2G': clients hold sizes in 32 bits"),
        ({**LEAST, "onDamage": "maybe"}, "onDamage: 'maybe' is none of fail, skip"),
        ({**LEAST, "failOnDataLoss": "no"}, "failOnDataLoss: 'no' is none of true, false"),
        ({**LEAST, "startingTime": "yesterday"}, "startingTime: 'yesterday' is not a time"),
        ({**LEAST, "startingPosition": "3"}, "startingPosition: '3' is not a position"),
        ({**LEAST, "startingPosition": "{"}, "startingPosition: it is not JSON"),
        ({**LEAST, "startingPosition": '{"orders": 3}'}, "startingPosition: write each position as text"),
        ({**LEAST, "topics": "a,b", "startingPosition": "3:4"}, "startingPosition: LEDGER:ENTRY is for one topic"),
        (
            {**LEAST, "startingPosition": "3:4", "startingTime": "5"},
            "startingPosition: give either this or startingTime",
        ),
        ({**LEAST, "startingTime": "5", "endingTime": "4"}, "endingTime: it is before startingTime"),
        ({**LEAST, "maxBytesPerTrigger": "0"}, "maxBytesPerTrigger: '0' is too small"),
        ({**LEAST, "maxPartitionBytes": "much"}, "maxPartitionBytes: 'much' is not a size"),
        ({**LEAST, "privateKeys": "/k/a.pem"}, "privateKeys: '/k/a.pem' does not name files"),
        ({**LEAST, "cluster": "east"}, "cluster: it is only for option ledgers"),
        ({**LEAST, "prefetch": "-1"}, "prefetch: '-1' is not a whole number"),
    ],
)
def test_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_options(given)

    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value)

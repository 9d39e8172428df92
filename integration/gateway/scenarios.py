"""What clients do with topics of all kinds. Whatever a scenario learns it learns from the server that it is at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from integration.gateway.scripts import Id, Message, Script, ids
from integration.gateway.topics import BATCH, Made

Topics = Mapping[str, Made]
Scenario = Callable[[Script, Topics], None]
ANY_ORDER = ("partitioned", "sparse")  # its partitions are read side by side
# Go's have a schema, which a broker refuses where the topic has none, and the gateway does not; Python's came later.
NO_TABLES = ("go", "python-3.4.0")
NO_SEEK_IN_SEVERAL = ("go", "python-3.4.0")  # topics
KINDS = ("Exclusive", "Shared", "Failover", "Key_Shared")
HALVES = ((0, 32_767), (32_768, 65_535))


def _read_all(does: Script, made: Made, **more: object) -> list[Message]:
    does.reader("all", made, **more)
    found = does.take("all", made.count, ordered=made.name.rpartition("/")[2] not in ANY_ORDER)
    does("available", of="all")
    does.close("all")
    return found


def _topics_for(does: Script, topics: Topics) -> list[str]:
    """Clients but Java's leave when they hear that a topic ends, and come back when they like."""
    return [name for name in topics if name != "empty_terminated" or does.client.startswith("java")]


# Readers


def everything_is_read(does: Script, topics: Topics) -> None:
    for name in _topics_for(does, topics):
        if name != "compacted":
            _read_all(does, topics[name])


def a_reader_waits_at_the_end(does: Script, topics: Topics) -> None:
    does.reader("r", topics["single"], "latest")
    does("available", of="r")
    does.nothing_comes("r")


def readers_begin_at_ids(does: Script, topics: Topics) -> None:
    for name in ("single", "batched", "mixed", "transactional"):
        all_ = ids(_read_all(does, topics[name]))
        for number in (0, 7, len(all_) // 2, len(all_) - 2):
            for inclusive in (True, False):
                does.reader("r", topics[name], all_[number], inclusive=inclusive)
                does("available", of="r")
                does.take("r", min(3, len(all_) - number - 1))
                does.close("r")
        ledger, _, partition, _ = all_[-1]
        for gone in ([0, 0, partition, -1], [all_[0][0], 5_000, partition, -1]):
            does.reader("r", topics[name], gone)
            does.take_what_comes("r", 2)
            does.close("r")
        does.reader("r", topics[name], [ledger + 100, 0, partition, -1])
        does("available", of="r")
        does.close("r")


def readers_seek(does: Script, topics: Topics) -> None:
    for name in ("single", "batched"):
        all_ = _read_all(does, topics[name])
        does.reader("r", topics[name])
        for to in _moments(does, all_):
            does("seek", of="r", to=to)
            does("available", of="r")
            if to != "latest":
                does.take("r", 3)
        does.nothing_comes("r")
        does.close("r")


def schemas_come_with_messages(does: Script, topics: Topics) -> None:
    if does.client.startswith("python"):
        does.reader("json", topics["customers"], schema="json")
        does.take("json", topics["customers"].count)
    if does.client.startswith("java"):
        for schema, name in (("avro", "orders"), ("auto", "orders"), ("auto", "customers")):
            does.reader(schema, topics[name], schema=schema)
            does.take(schema, topics[name].count)
            does.close(schema)


def tables_hold_the_last_value_of_each_key(does: Script, topics: Topics) -> None:
    if does.client in NO_TABLES:
        return
    for name in ("single", "compacted", "customers"):
        does("table", topic=topics[name].name)


def empty_topics_have_nothing_yet(does: Script, topics: Topics) -> None:
    for name in _topics_for(does, topics):
        made = topics[name]
        if made.count and name != "sparse":
            continue
        does.reader("r", made)
        does.take("r", made.count)
        does("available", of="r")
        does.nothing_comes("r")
        seeks = not made.topics or does.client not in NO_SEEK_IN_SEVERAL
        if seeks:
            does("seek", of="r", to="earliest")
            does.take("r", made.count)
        does.close("r")
        for kind in KINDS[:2]:
            does.consumer("c", made, kind=kind, subscription=f"-{name}-{kind}")
            does.take("c", made.count)
            does("last", of="c")
            if seeks:
                for to in (1, "latest", "earliest"):
                    does("seek", of="c", to=to)
                    does.take("c", made.count if to != "latest" else 0)
                    does.nothing_comes("c")
            does("unsubscribe", of="c")
        if does.client not in NO_TABLES:
            does("table", topic=made.name)


# One consumer


def acknowledged_ones_stay_away(does: Script, topics: Topics) -> None:
    """Holes, in the four types of subscriptions; the rest comes to the next consumer."""
    others = (("Shared", "single"), ("Exclusive", "transactional"), ("Key_Shared", "encrypted"))
    for kind, name in [*((kind, "batched") for kind in KINDS), *others]:
        made, named = topics[name], f"-{kind}-{name}"
        does.consumer("c", made, kind=kind, subscription=named)
        came = does.take("c", made.count)
        does.ack("c", [one for number, one in enumerate(came) if number // BATCH % 3])
        does.close("c")
        does.consumer("c", made, kind=kind, subscription=named)
        does.take("c", sum(number // BATCH % 3 == 0 for number in range(made.count)))
        does.nothing_comes("c")
        does.close("c")


def messages_of_a_batch_are_acknowledged_alone(does: Script, topics: Topics) -> None:
    for kind in ("Shared", "Exclusive", "Key_Shared"):
        made, named = topics["batched"], f"-{kind}"
        does.consumer("c", made, kind=kind, subscription=named, batch_index=True)
        came = does.take("c", made.count)
        does.ack("c", [one for number, one in enumerate(came) if number % 7 and number // 20 % 2])
        does.close("c")
        does.consumer("c", made, kind=kind, subscription=named, batch_index=True)
        does.take("c", sum(number % 7 == 0 or number // 20 % 2 == 0 for number in range(made.count)))
        does.nothing_comes("c")
        does.close("c")


def everything_up_to_one_is_acknowledged(does: Script, topics: Topics) -> None:
    for name, batch_index in (("single", False), ("batched", True), ("batched", False)):
        for kind in ("Exclusive", "Failover"):
            made, named = topics[name], f"-{kind}-{name}-{batch_index}"
            does.consumer("c", made, kind=kind, subscription=named, batch_index=batch_index)
            came = does.take("c", 37)
            does.ack("c", came[25:26], cumulative=True)
            does.close("c")
            does.consumer("c", made, kind=kind, subscription=named, batch_index=batch_index)
            does.take("c", 15)
            does.close("c")


def what_is_refused_comes_again(does: Script, topics: Topics) -> None:
    for name in ("single", "batched"):
        does.consumer("c", topics[name], subscription=f"-{name}", nack_ms=300)
        came = does.take("c", topics[name].count)
        does.ack("c", came[30:])
        again = came[:30:10]
        for _ in range(2):  # redelivered once, and twice
            does("nack", of="c", ids=ids(again))
            size = len(again) if name == "single" else BATCH * len(again)
            again = does.take("c", size, ordered=False)[:: BATCH if name == "batched" else 1]
        does.nothing_comes("c")
        does.close("c")


def everything_is_asked_for_again(does: Script, topics: Topics) -> None:
    if does.client == "go":  # it cannot
        return
    for kind in KINDS:
        does.consumer("c", topics["single"], kind=kind, subscription=f"-{kind}")
        came = does.take("c", 40)
        does.ack("c", came[:20:2])
        does("redeliver", of="c")
        does.take("c", 60, ordered=kind in ("Exclusive", "Failover"))
        does.close("c")


def time_outs_bring_messages_again(does: Script, topics: Topics) -> None:
    """Go's client has none, and Python's shortest one is ten seconds."""
    if not does.client.startswith("java"):
        return
    made = topics["chunked"]
    does.consumer("c", made, kind="Shared", ack_timeout_ms=1500)
    came = does.take("c", made.count)
    does.ack("c", came[3:])
    does.take("c", 3, ordered=False)
    does.close("c")


def consumers_seek(does: Script, topics: Topics) -> None:
    for name, kind, inclusive in (
        ("single", "Exclusive", False),
        ("single", "Shared", True),
        ("batched", "Exclusive", True),
        ("batched", "Shared", False),
        ("transactional", "Failover", False),
    ):
        made = topics[name]
        all_ = _read_all(does, made)
        does.consumer("c", made, kind=kind, subscription=f"-{name}-{kind}", inclusive=inclusive, batch_index=True)
        does.take("c", 5)
        for to in _moments(does, all_):
            does("seek", of="c", to=to)
            if to == "latest":
                does.nothing_comes("c")
            else:
                does.take("c", 3)
        does.close("c")


def a_new_subscription_begins_at_the_end(does: Script, topics: Topics) -> None:
    does.consumer("c", topics["single"], position="Latest")
    does.nothing_comes("c")
    does("last", of="c")
    if does.client != "go":  # it takes the latest message for the beginning
        does("seek", of="c", to="earliest")
        does.take("c", 3)


def the_last_message_is_known(does: Script, topics: Topics) -> None:
    for name in _topics_for(does, topics):
        made = topics[name]
        if name != "partitioned":
            does.consumer("c", made, subscription=f"-{name}")
            does("last", of="c")
            does.close("c")


def a_subscription_that_was_deleted_begins_anew(does: Script, topics: Topics) -> None:
    does.consumer("c", topics["single"], kind="Exclusive")
    does.ack("c", does.take("c", 20)[-1:], cumulative=True)
    does("unsubscribe", of="c")
    does.consumer("d", topics["single"], kind="Exclusive")
    does.take("d", 3)


def delayed_messages_wait(does: Script, topics: Topics) -> None:
    """Those of tomorrow, where consumers share; others get all of them at once."""
    made = topics["delayed"]
    does.consumer("shared", made, kind="Shared", subscription="-s")
    does.take("shared", made.count * 2 // 3, ordered=False)
    does.nothing_comes("shared")
    does.consumer("exclusive", made, kind="Exclusive", subscription="-e")
    does.take("exclusive", made.count)


def a_terminated_topic_ends(does: Script, topics: Topics) -> None:
    made = topics["terminated"]
    does.reader("r", made)
    does.take("r", made.count)
    does("available", of="r")
    does.nothing_comes("r")
    does.consumer("c", made, kind="Exclusive")
    does.ack("c", does.take("c", made.count)[-1:], cumulative=True)
    does.nothing_comes("c")


def chunks_are_joined(does: Script, topics: Topics) -> None:
    made = topics["chunked"]
    does.consumer("c", made, kind="Shared")
    came = does.take("c", made.count)
    does.ack("c", came[1::2])
    does.close("c")
    does.consumer("c", made, kind="Shared")
    does.take("c", (made.count + 1) // 2)
    does.nothing_comes("c")


def partitions_are_read_together(does: Script, topics: Topics) -> None:
    made = topics["partitioned"]
    does("partitions", topic=made.name)
    for kind in ("Exclusive", "Shared"):
        does.consumer("c", made, kind=kind, subscription=f"-{kind}")
        came = does.take("c", made.count, ordered=False)
        does.ack("c", sorted(came, key=lambda each: each["id"])[::3])
        does.close("c")
        does.consumer("c", made, kind=kind, subscription=f"-{kind}")
        does.take("c", made.count - len(came[::3]), ordered=False)
        does.nothing_comes("c")
        if does.client not in NO_SEEK_IN_SEVERAL:
            does("seek", of="c", to="earliest")
            does.take("c", made.count, ordered=False)
        does.close("c")


def topics_are_found_by_a_pattern(does: Script, topics: Topics) -> None:
    namespace = topics["single"].name.rpartition("/")[0]
    does("consumer", **{"as": "p", "pattern": f"{namespace}/(sin|part|ter).*", "type": "Shared",
                        "subscription": f"pattern-{does.client}"})  # fmt: skip
    wanted = [topics[name].count for name in ("single", "partitioned", "terminated")]
    does.take("p", sum(wanted), ordered=False)
    does.nothing_comes("p")


def several_topics_are_read_together(does: Script, topics: Topics) -> None:
    chosen = [topics[name] for name in ("single", "batched", "chunked")]
    does.consumer("c", *chosen, kind="Shared")
    does.take("c", sum(made.count for made in chosen), ordered=False)
    does.nothing_comes("c")


# Several consumers


def who_comes_second_is_refused(does: Script, topics: Topics) -> None:
    made = topics["single"]
    does.consumer("c", made, kind="Exclusive")
    does.consumer("d", made, kind="Exclusive")
    does.consumer("e", made, kind="Shared")
    does.close("c")
    does.consumer("f", made, kind="Shared")
    does.consumer("g", made, kind="Failover")
    does.consumer("h", made, kind="Shared")
    does("unsubscribe", of="h")


def consumers_share_by_their_permits(does: Script, topics: Topics) -> None:
    if does.client == "go":  # which takes as many more as it likes
        return
    made = topics["single"]
    does.consumer("a", made, kind="Shared", queue=10, name="a")
    does.take("a", 3)
    does.consumer("b", made, kind="Shared", queue=20, name="b")
    does.take("b", 8)
    does.close("a")
    does.consumer("c", made, kind="Shared", queue=500, name="c")
    does.take("c", 100, ordered=False)


def another_takes_over(does: Script, topics: Topics) -> None:
    made = topics["single"]
    for names in (("a", "b"), ("b", "a"), ("one", "two")):
        first, second = names
        does.consumer(first, made, kind="Failover", name=first, subscription="-" + "-".join(names))
        came = does.take(first, 10)
        does.ack(first, came[4:5], cumulative=True)
        does.close(first)
        does.consumer(second, made, kind="Failover", name=second, subscription="-" + "-".join(names))
        does.take(second, 10)
        does.close(second)


def keys_have_their_consumers(does: Script, topics: Topics) -> None:
    """Ranges that the consumers chose."""
    for name in ("single", "batched", "orders"):
        made = topics[name]
        for of, ranges in zip("ab", HALVES, strict=True):
            does.consumer(of, made, kind="Key_Shared", name=of, ranges=[ranges], subscription=f"-{name}")
        does.take_among("ab", made.count, by_key=name != "batched")  # keys of batches are those of their first messages
        does.close("a")
        does.close("b")


def keys_are_shared_out(does: Script, topics: Topics) -> None:
    """By a ring of the consumers' names: they are there before anything is delivered."""
    if not does.client.startswith("java"):
        return
    for name in ("single", "batched"):
        for count in (2, 3):
            names = [f"consumer-{number}" for number in range(count)]
            for of in names:
                does.consumer(
                    of, topics[name], kind="Key_Shared", name=of, paused=True, subscription=f"-{name}-{count}"
                )
            for of in names:
                does("resume", of=of)
            does.take_among(names, topics[name].count, by_key=name != "batched")
            for of in names:
                does.close(of)


def _moments(does: Script, all_: Sequence[Message]) -> list[Id | int | str]:
    """Where to seek: ids, times, the ends. Go's client: ids. Its seeks tell the broker which messages of a batch are
    left, and 4.0.7 leaves the others out after the next seek, too, wherever that goes."""
    some = [all_[number] for number in (4, len(all_) // 2 + 3, 15)]
    if does.client == "go":
        return [*ids(some)]
    times = [some[1]["published"], some[0]["published"] - 1, 1]
    return [*ids(some), *times, "earliest", "latest"]


OF_READERS: Sequence[Scenario] = (
    everything_is_read,
    a_reader_waits_at_the_end,
    readers_begin_at_ids,
    readers_seek,
    schemas_come_with_messages,
    tables_hold_the_last_value_of_each_key,
)
SCENARIOS: Sequence[Scenario] = (
    *OF_READERS,
    empty_topics_have_nothing_yet,
    acknowledged_ones_stay_away,
    messages_of_a_batch_are_acknowledged_alone,
    everything_up_to_one_is_acknowledged,
    what_is_refused_comes_again,
    everything_is_asked_for_again,
    time_outs_bring_messages_again,
    consumers_seek,
    a_new_subscription_begins_at_the_end,
    the_last_message_is_known,
    a_subscription_that_was_deleted_begins_anew,
    delayed_messages_wait,
    a_terminated_topic_ends,
    chunks_are_joined,
    partitions_are_read_together,
    topics_are_found_by_a_pattern,
    several_topics_are_read_together,
    who_comes_second_is_refused,
    consumers_share_by_their_permits,
    another_takes_over,
    keys_have_their_consumers,
    keys_are_shared_out,
)

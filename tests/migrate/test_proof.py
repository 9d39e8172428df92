"""What brokers deliver is compared with what is archived: nothing else counts as the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from offloader.migrate.proof import Delivery, DeliveryProof, ExpectedEntry, MessageProof, RawExpected, Shown
from offloader.model import EntryRange, GapKind, TopicName
from tests.fakes.cluster import MemoryCluster

T = TopicName.parse("public/default/t")


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster(seed=1, entries_per_ledger=7)
    made.create(T)
    made.add_subscription(T, "mine")
    for number in range(20):
        made.produce(T, b"%d" % number)
        if number % 6 == 5:
            made.add_hidden(T, GapKind.MARKER)
    return made


def archived(cluster: MemoryCluster) -> list[RawExpected]:
    return [(each.ledger, each.entry, each.data) for each in cluster.entries(T)]


def delivery(cluster: MemoryCluster) -> Delivery:
    return Delivery(cluster.source, T, lambda ledger: ledger in cluster.admin.topic_info(T).ledgers, 1)


def prove(cluster: MemoryCluster, expected: Iterable[RawExpected]) -> DeliveryProof:
    return delivery(cluster).prove(expected)


class TestBytes:
    def test_all_that_arrives_is_as_it_is_archived_and_the_rest_is_explained(self, cluster: MemoryCluster) -> None:
        assert prove(cluster, archived(cluster)) == DeliveryProof(20, 3)

    def test_a_part_of_a_topic_is_proven_alone(self, cluster: MemoryCluster) -> None:
        assert prove(cluster, archived(cluster)[3:6]) == DeliveryProof(3, 0)
        assert prove(cluster, []) == DeliveryProof()

    def test_no_other_byte_entry_or_hole_passes(self, cluster: MemoryCluster) -> None:
        whole = archived(cluster)
        changed = [*whole[:4], (*whole[4][:2], b"other"), *whole[5:]]
        assert "other bytes" in prove(cluster, changed).wrong
        assert "which is not archived" in prove(cluster, [*whole[:4], *whole[5:]]).wrong
        ledger, entry, _ = whole[-1]
        beyond = prove(cluster, [*whole, (ledger, entry + 1, b"never written")])
        assert f"do not deliver {ledger}:{entry + 1}" in beyond.wrong

    def test_what_brokers_keep_back_without_a_reason_is_wrong(self, cluster: MemoryCluster) -> None:
        place = cluster.add_withheld(T)
        cluster.produce(T, b"behind it")
        assert f"{place[0]}:{place[1]}" in prove(cluster, archived(cluster)).wrong

    def test_what_is_not_archived_must_arrive_too(self, cluster: MemoryCluster) -> None:
        whole = archived(cluster)
        unknown = [(ledger, entry, None) for ledger, entry, _ in whole]
        assert prove(cluster, [*unknown[:9], *whole[9:]]) == DeliveryProof(12, 3, unarchived=8)

    def test_entries_side_by_side_are_asked_about_together(self, cluster: MemoryCluster) -> None:
        for _ in range(5):
            cluster.add_hidden(T, GapKind.ABORTED)
        asked: list[EntryRange] = []
        with asking(cluster, asked):
            assert prove(cluster, archived(cluster)) == DeliveryProof(20, 8)
        ledger, entry, _ = archived(cluster)[-1]
        assert sum(each.span for each in asked) == 8
        assert asked[-1].ledger == ledger
        assert asked[-1].after == entry + 1
        assert len(asked) < 7

    def test_what_pulsar_has_trimmed_meanwhile_is_told(self, cluster: MemoryCluster) -> None:
        whole = archived(cluster)
        cluster.delete_subscription(T, "mine")
        left = [each for each in whole if each[0] in cluster.admin.topic_info(T).ledgers]
        assert 0 < len(left) < len(whole)
        proof = prove(cluster, whole)
        assert (proof.wrong, proof.trimmed) == ("", len(whole) - len(left))


@contextmanager
def asking(cluster: MemoryCluster, asked: list[EntryRange]) -> Iterator[None]:
    source = cluster.source
    explain = source.explain

    def noted(topic, missing, *, limit):
        asked.append(missing)
        return explain(topic, missing, limit=limit)

    source.explain = noted
    yield


def shown(ledger: int, entry: int, batch: int = 0, value: bytes = b"v") -> Shown:
    return Shown(ledger, entry, batch, value, "", (), 1, 0)


class Client:
    """A stock client, as it might be. None in `messages`: silence."""

    def __init__(self, messages: Iterable[Shown | None]) -> None:
        self.messages = list(messages)
        self.waited = 0.0

    def read(self, seconds: float) -> Shown | None:
        if self.messages and (message := self.messages.pop(0)) is not None:
            return message
        self.waited += seconds
        return None


def of_client(cluster: MemoryCluster, messages: Iterable[Shown | None], expected=None) -> DeliveryProof:
    raw = {(ledger, entry): data for ledger, entry, data in archived(cluster)}

    def of_range(entries: EntryRange) -> Iterator[RawExpected]:
        return ((entries.ledger, n, raw[entries.ledger, n]) for n in entries.ids if (entries.ledger, n) in raw)

    proof = MessageProof(Client(messages), delivery(cluster), of_range, quiet=1, patience=5)
    return proof.of(expect(cluster) if expected is None else expected)


def expect(cluster: MemoryCluster) -> list[ExpectedEntry]:
    hidden = {(each.ledger, each.entry) for each in cluster.entries(T) if each.hidden is not None}
    places = [each[:2] for each in archived(cluster)]
    return [ExpectedEntry(*place, () if place in hidden else (shown(*place),)) for place in places]


def messages(cluster: MemoryCluster) -> list[Shown]:
    return [message for each in expect(cluster) for message in each.shown or ()]


class TestMessages:
    def test_all_that_a_client_shows_is_compared(self, cluster: MemoryCluster) -> None:
        assert of_client(cluster, messages(cluster)) == DeliveryProof(20, 3)

    def test_what_it_shows_otherwise_or_not_at_all_is_compared_by_its_bytes(self, cluster: MemoryCluster) -> None:
        whole = messages(cluster)
        assert of_client(cluster, [whole[0], *whole[3:]]) == DeliveryProof(20, 3)
        assert of_client(cluster, [whole[0]._replace(value=b"other"), *whole[1:]]) == DeliveryProof(20, 3)

    def test_other_bytes_are_wrong_where_a_client_shows_something_else(self, cluster: MemoryCluster) -> None:
        whole, known = messages(cluster), archived(cluster)
        known[0] = (*known[0][:2], b"other")

        def of_range(entries: EntryRange) -> Iterator[RawExpected]:
            return (each for each in known if each[0] == entries.ledger and each[1] in entries.ids)

        arrive = [whole[0]._replace(value=b"other"), *whole[1:]]
        proof = MessageProof(Client(arrive), delivery(cluster), of_range, quiet=1, patience=5).of(expect(cluster))
        assert "other bytes" in proof.wrong

    def test_a_message_that_brokers_do_not_deliver_is_wrong(self, cluster: MemoryCluster) -> None:
        place = cluster.add_withheld(T)
        cluster.produce(T, b"behind it")
        known = [*expect(cluster)]
        arrive = [shown(*each[:2]) for each in known if each.shown and each[:2] != place]
        assert f"do not deliver {place[0]}:{place[1]}" in of_client(cluster, arrive, known).wrong

    def test_a_client_that_is_silent_for_a_while_is_waited_for(self, cluster: MemoryCluster) -> None:
        whole = messages(cluster)
        assert of_client(cluster, [*whole[:3], None, None, None, *whole[3:]]) == DeliveryProof(20, 3)

    def test_a_client_that_gets_nothing_any_more_proves_nothing(self, cluster: MemoryCluster) -> None:
        assert "gets nothing more" in of_client(cluster, messages(cluster)[:4]).wrong

    def test_the_last_message_may_be_one_that_it_leaves_out(self, cluster: MemoryCluster) -> None:
        assert of_client(cluster, messages(cluster)[:-1]) == DeliveryProof(20, 3)

    def test_what_is_shown_again_after_a_reconnect_counts_once(self, cluster: MemoryCluster) -> None:
        whole = messages(cluster)
        assert of_client(cluster, [*whole[:5], *whole[2:]]) == DeliveryProof(20, 3)

    def test_batches_are_compared_whole(self, cluster: MemoryCluster) -> None:
        known = expect(cluster)
        both = (shown(*known[0][:2]), shown(*known[0][:2], 1))
        known[0] = known[0]._replace(shown=both)
        rest = messages(cluster)[1:]
        assert of_client(cluster, [*both, *rest], known) == DeliveryProof(20, 3)
        assert of_client(cluster, [both[0], *rest], known) == DeliveryProof(20, 3), "compared by its bytes"

    def test_what_is_not_archived_is_read_and_markers_among_it_are_explained(self, cluster: MemoryCluster) -> None:
        unknown = [ExpectedEntry(*each[:2], None, archived=False) for each in expect(cluster)]
        assert of_client(cluster, messages(cluster), unknown) == DeliveryProof(unseen=3, unarchived=20)

    def test_aborted_entries_at_the_end_are_asked_about_together_and_not_waited_for(self, cluster) -> None:
        for _ in range(4):
            cluster.add_hidden(T, GapKind.ABORTED)
        unknown = [ExpectedEntry(*each[:2], None, archived=False) for each in expect(cluster)]
        client = Client(messages(cluster))
        asked: list[EntryRange] = []
        with asking(cluster, asked):
            proof = MessageProof(client, delivery(cluster), lambda _: (), quiet=1, patience=5).of(unknown)
        assert (proof.wrong, client.waited < 5) == ("", True)

    def test_a_message_of_what_is_recorded_as_a_gap_is_wrong(self, cluster: MemoryCluster) -> None:
        whole, known = messages(cluster), expect(cluster)
        raw = {place[:2] for place in known if place[:2] != whole[3][:2]}
        without = [each for each in known if each[:2] in raw]

        def of_range(entries: EntryRange) -> Iterator[RawExpected]:
            return iter(())

        proof = MessageProof(Client(whole), delivery(cluster), of_range, quiet=1, patience=5).of(without)
        assert "which is not archived" in proof.wrong

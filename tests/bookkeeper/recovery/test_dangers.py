"""What a look at a ledger tells, and which bookies are not believed."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo
from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import LedgerState, StoredEntry
from offloader.bookkeeper.recovery.dangers import (
    BookieReport,
    Danger,
    DangerKind,
    acknowledged,
    dangers,
    distrusted,
    young_cookies,
)
from offloader.bookkeeper.recovery.inspection import InspectionOptions, examine, marked_up_to, survey
from offloader.bookkeeper.recovery.machine import Aborted, Done, HowClosed
from offloader.bookkeeper.recovery.outcome import Inspection
from offloader.bookkeeper.recovery.report import fields, lines
from offloader.model import TopicName
from offloader.state.managed_ledger import ManagedLedger
from tests.bookkeeper.recovery.support import ledger
from tests.fakes.bookkeeper import SimulatedBookies, SimulatedCluster, SimulatedStore

LEDGER = 7
TOPIC = TopicName.parse("public/default/t")
QUICK = 0.2


def reports(confirmed: int = -1, /, **held: set[int] | None) -> dict[str, BookieReport]:
    return {name: BookieReport(name, True, 0, entries, confirmed) for name, entries in held.items()}


def kinds(found: list[Danger]) -> set[tuple[DangerKind, tuple[str, ...]]]:
    return {(danger.kind, danger.bookies) for danger in found}


def test_nothing_is_wrong():
    assert dangers(ledger(created_ms=5), reports(1, a={0, 1, 2}, b={0, 1}, c={0, 1, 2})) == []


def test_an_ack_quorum_of_one():
    assert [d.kind for d in dangers(ledger(2, 1, (0, "ab")), reports(a=set(), b=set()))] == [DangerKind.ACK_QUORUM_ONE]


def test_an_ack_quorum_above_the_write_quorum():
    found = dangers(ledger(2, 3, (0, "abc")), reports(a=set(), b=set(), c=set()))
    assert [d.kind for d in found] == [DangerKind.ACK_OVER_WRITE]


def test_an_ensemble_smaller_than_the_write_quorum():
    assert (DangerKind.SMALL_ENSEMBLE, ("a", "b")) in kinds(dangers(ledger(3, 2, (0, "ab")), reports(a=set(), b=set())))


def test_bookies_that_are_not_there_or_read_only_or_without_cookie():
    found = {"a": BookieReport("a", None, 0), "b": BookieReport("b", False, 0), "c": BookieReport("c", True, None)}
    assert kinds(dangers(ledger(), found)) == {
        (DangerKind.NOT_REGISTERED, ("a",)),
        (DangerKind.READ_ONLY, ("b",)),
        (DangerKind.NO_COOKIE, ("c",)),
    }


def test_a_cookie_that_is_younger_than_the_ledger():
    metadata = ledger(created_ms=1000)
    found = dangers(metadata, {name: BookieReport(name, True, 1001 if name == "b" else 1000) for name in "abc"})
    assert kinds(found) == {(DangerKind.YOUNG_COOKIE, ("b",))}
    assert distrusted(found) == {"b"}


def test_the_cookie_of_a_closed_ledgers_bookie_may_be_young():
    """Its entries may have been copied there since."""
    metadata = ledger(created_ms=1000, state=LedgerState.CLOSED, last_entry=-1)
    assert dangers(metadata, {name: BookieReport(name, True, 2000) for name in "abc"}) == []


def test_a_bookie_that_has_nothing_of_what_was_acknowledged():
    found = dangers(ledger(), reports(1, a={0, 1}, b={0, 1}, c=set()))
    assert kinds(found) == {(DangerKind.NOTHING_HELD, ("c",))}
    assert distrusted(found) == {"c"}


def test_a_bookie_that_lacks_a_few_is_as_it_may_be():
    found = dangers(ledger(), reports(2, a={0, 1, 2}, b={0, 1, 2}, c={0, 2}))
    assert kinds(found) == {(DangerKind.COPIES_MISSING, ("c",))}
    assert distrusted(found) == frozenset()


def test_acknowledged_entries_with_too_few_copies_were_lost():
    found = dangers(ledger(2, 2, (0, "abc")), reports(2, a={2}, b={0, 1}, c={1, 2}))
    assert kinds(found) == {(DangerKind.COPIES_LOST, ("a",))}
    assert distrusted(found) == {"a"}


def test_copies_are_known_to_be_lost_although_a_bookie_is_silent():
    found = dangers(ledger(), reports(2, a=None, b={2}, c={2}))
    assert kinds(found) == {(DangerKind.COPIES_LOST, ("b",)), (DangerKind.COPIES_LOST, ("c",))}
    assert distrusted(found) == {"b", "c"}
    maybe = dangers(ledger(), reports(2, a=None, b={0, 1, 2}, c={2}))
    assert kinds(maybe) == {(DangerKind.COPIES_MISSING, ("c",))}
    assert "may have" in maybe[0].message


def test_bookies_that_do_not_say_what_they_have_are_not_accused_nor_is_anybody_because_of_them():
    assert dangers(ledger(2, 2, (0, "ab")), reports(0, a={0}, b=None)) == []


def test_only_bookies_of_an_entrys_own_fragment_must_have_it():
    metadata = ledger(2, 2, (0, "ab"), (5, "ac"))
    assert acknowledged(metadata, reports(a=set(), b=set(), c=set())) == 4
    assert dangers(metadata, reports(a=set(range(5)), b=set(range(5)), c=set())) == []


def test_a_long_ledger_is_looked_at_at_both_ends(monkeypatch):
    monkeypatch.setattr("offloader.bookkeeper.recovery.dangers.SAMPLE", 100)
    every = range(300)
    middle = BookieReport("c", True, 0, [*range(100), *range(200, 300)])
    found = {**reports(299, a=every, b=every), "c": middle}
    assert dangers(ledger(), found) == []
    begin = BookieReport("c", True, 0, range(1, 300))
    assert {d.kind for d in dangers(ledger(), {**found, "c": begin})} == {DangerKind.COPIES_MISSING}


# Over bookies


class Cluster(SimulatedCluster):
    def __init__(self, ack_quorum: int = 2, write_quorum: int = 3) -> None:
        super().__init__(1, write_quorum, prompt=True)
        owner = {"pulsar/managed-ledger": b"public/default/persistent/t"}
        self.shape = self.create(LEDGER, write_quorum, write_quorum, ack_quorum, custom=owner)
        self.length = 0

    def put(self, entry: int, *bookies: str, lac: int = -1) -> None:
        self.length += 10
        stored = encode(StoredEntry(LEDGER, entry, lac, self.length, bytes(10)), digest_for(self.shape))
        for bookie in bookies or sorted(self.bookies):
            self.bookies[bookie].memory.add(LEDGER, entry, stored, master_key(b""))

    def acknowledge(self, subscription: str, ledger: int, entry: int) -> None:
        info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=ledger, markDeleteEntryId=entry)
        self.metadata.cluster.put_managed_ledger(TOPIC, ManagedLedger())
        self.metadata.cluster.put_cursor(TOPIC, subscription, info.SerializeToString())

    def examine(self, **options: Any) -> Inspection:
        bookies, store = self.client()
        return examine(LEDGER, store, bookies, InspectionOptions(timeout=QUICK, **options))


def test_a_survey_says_what_each_bookie_has_and_knows():
    cluster = Cluster()
    cluster.put(0)
    cluster.put(1, "b1:3181", lac=0)
    cluster.bookies["b2:3181"].up = False
    cluster.metadata.cluster.delete_cookie("b3:3181")
    bookies, store = cluster.client()
    found = survey(LEDGER, cluster.shape, store, bookies, QUICK)
    one, two, three = (found[f"b{number}:3181"] for number in (1, 2, 3))
    assert (one.writable, list(one.holds or ()), one.confirmed) == (True, [0, 1], 0)
    assert (two.writable, two.holds, two.problem) == (None, None, "b2:3181: refused the connection")
    assert (three.cookie_ms, list(three.holds or ())) == (None, [0])
    assert acknowledged(cluster.shape, found) == 0


def test_lists_that_never_come_are_not_waited_for_as_long_as_other_answers(monkeypatch):
    monkeypatch.setattr("offloader.bookkeeper.recovery.inspection.LISTING", 0.05)
    cluster = Cluster()
    cluster.put(0)
    bookies, store = like_pulsars(cluster)
    begun = time.monotonic()
    found = survey(LEDGER, cluster.shape, store, bookies, 60.0)
    assert time.monotonic() - begun < 30
    assert {report.problem for report in found.values()} == {"no answer within 0.05 s"}


def test_of_a_closed_ledger_that_is_to_be_closed_bookies_are_not_asked():
    cluster = Cluster()
    cluster.put(0)
    assert cluster.examine(dry=False).outcome.metadata.last_entry == 0
    for bookie in cluster.bookies.values():
        bookie.up = False
    found = cluster.examine(dry=False)
    assert (found.outcome.phase.ending, found.reports, found.dangers) == (HowClosed.ADOPTED, {}, ())
    assert len(cluster.examine(dry=True).reports) == 3


def test_a_bookie_that_does_not_answer_does_not_say():
    class Silent:
        def entries_of(self, bookie, ledger):
            return Future()

        read_lac = entries_of

    cluster = Cluster()
    found = survey(LEDGER, cluster.shape, cluster.client()[1], Silent(), 0.05)
    assert {report.problem for report in found.values()} == {"no answer within 0.05 s"}


def like_pulsars(cluster: Cluster) -> tuple[SimulatedBookies, SimulatedStore]:
    """Bookies that never list what they hold."""
    bookies, store = cluster.client()
    bookies.entries_of = lambda bookie, ledger: Future()
    return bookies, store


@pytest.mark.parametrize("client", [Cluster.client, like_pulsars])
def test_a_bookie_that_has_no_last_entry_has_nothing_whether_or_not_it_lists_what_it_has(client):
    """b1 and b2 acknowledged 0..9; b2 has lost its disk under its old cookie, and b1 is away."""
    cluster = Cluster()
    for entry in range(10):
        cluster.put(entry, "b1:3181", "b2:3181", *(["b3:3181"] if entry < 5 else []), lac=entry - 1)
    cluster.bookies["b2:3181"].lose_disk(refuse=False)
    cluster.bookies["b1:3181"].up = False
    bookies, store = client(cluster)
    found = examine(LEDGER, store, bookies, InspectionOptions(dry=False, timeout=QUICK))
    assert (DangerKind.NOTHING_HELD, ("b2:3181",)) in kinds(list(found.dangers))
    assert found.distrusted == {"b2:3181"}
    assert isinstance(found.outcome.phase, Aborted)
    cluster.bookies["b1:3181"].up = True
    found = examine(LEDGER, store, bookies, InspectionOptions(dry=False, trusted=("b3:3181",), timeout=QUICK))
    assert found.outcome.metadata.last_entry == 9


def test_what_a_subscription_has_behind_it_is_not_cut_off():
    """Ensemble 2, both quorums 2: b1 is away, and b2 has lost its disk. Nobody but the subscription knows of an
    entry."""
    cluster = Cluster(2, 2)
    for entry in range(6):
        cluster.put(entry, *cluster.shape.fragments[0].ensemble)
    gone, wiped = cluster.shape.fragments[0].ensemble
    cluster.bookies[gone].up = False
    cluster.bookies[wiped].lose_disk(refuse=False)
    cluster.acknowledge("other", LEDGER + 1, 9)
    assert cluster.examine(dry=True).outcome.metadata.last_entry == -1
    cluster.acknowledge("sub", LEDGER, 3)
    found = cluster.examine(dry=False)
    assert found.distrusted == {wiped}
    assert isinstance(found.outcome.phase, Aborted)
    trusting = cluster.examine(dry=False, trusted=(wiped,))
    assert isinstance(trusting.outcome.phase, Aborted)
    assert "entry 3" in trusting.outcome.message
    cluster.bookies[gone].up = True
    assert cluster.examine(dry=False).outcome.metadata.last_entry == 5


def test_a_ledger_of_no_topic_has_no_subscriptions():
    cluster = Cluster()
    store = cluster.client()[1]
    assert marked_up_to(LEDGER, cluster.shape, store) == -1
    assert marked_up_to(LEDGER, replace(cluster.shape, custom={}), store) == -1
    cluster.acknowledge("sub", LEDGER, 3)
    assert marked_up_to(LEDGER, cluster.shape, store) == 3


def test_young_cookies_are_those_of_the_last_ensemble():
    cluster = Cluster()
    _, store = cluster.client()
    assert young_cookies(cluster.shape, store) == frozenset()
    cluster.replace_disk("b2:3181")
    assert young_cookies(cluster.shape, store) == {"b2:3181"}


@pytest.mark.parametrize("ahead", [-600, 0, 600])
def test_cookies_and_ledgers_are_compared_by_the_metadata_services_clock(ahead):
    """The broker's clock, by which a ledger says when it was made, is ahead, or behind."""
    cluster = Cluster()
    record = replace(cluster.shape, created_ms=cluster.shape.created_ms + ahead * 1000)
    cluster.metadata.cluster.put_ledger(LEDGER, record)
    store = cluster.client()[1]
    assert young_cookies(store.read(LEDGER).metadata, store) == frozenset()
    cluster.network.now += 300
    cluster.replace_disk("b2:3181")
    assert young_cookies(store.read(LEDGER).metadata, store) == {"b2:3181"}
    assert cluster.examine(dry=True).distrusted == {"b2:3181"}


def test_a_cookie_that_was_replaced_in_place_is_told():
    cluster = Cluster()
    cluster.network.now += 300
    cluster.metadata.cluster.put_cookie("b2:3181", b"other directories")
    found = cluster.examine(dry=True)
    assert kinds(list(found.dangers)) == {(DangerKind.CHANGED_COOKIE, ("b2:3181",))}
    assert found.distrusted == frozenset()


def test_an_inspection_says_all_of_it():
    cluster = Cluster(ack_quorum=1)
    cluster.put(0)
    cluster.put(1, "b1:3181", lac=0)
    found = cluster.examine()
    text = "\n".join([*lines(found), found.outcome.message])
    for expected in (
        "state: OPEN (version 0, created 2023-11-14T22:13:20Z)",
        "shape: ensemble 3, write quorum 3, ack quorum 1, digest CRC32C",
        "  pulsar/managed-ledger = public/default/persistent/t",
        "  from entry 0: ",
        "  b1:3181: registered, cookie of 2023-11-14T22:13:20Z, says that it has 2 entries",
        "  b1:3181: 0\n",
        "  entry 1: b1:3181 yes, b2:3181 no, b3:3181 no",
        "  ack-quorum-one: the ack quorum is 1",
        "ledger 7: would be closed, last entry 1, 20 bytes",
    ):
        assert expected in text
    said = fields(found)
    assert (said["outcome"], said["lastEntry"], said["length"]) == ("would_close", 1, 20)
    assert said["reads"][0] == {
        "first": 1,
        "last": 1,
        "answers": {
            "b1:3181": {"answer": "positive", "why": None},
            "b2:3181": {"answer": "negative", "why": "7:1: status 403 (this bookie does not have this entry)"},
            "b3:3181": {"answer": "negative", "why": "7:1: status 403 (this bookie does not have this entry)"},
        },
    }
    assert said["mustComeBack"] is None
    assert said["bookies"][0] == {
        "bookie": "b1:3181", "registered": True, "writable": True, "cookieMs": 1_700_000_000_000, "entries": 2,
        "problem": None, "distrusted": False,
    }  # fmt: skip


def test_an_inspection_says_who_must_come_back():
    cluster = Cluster()
    cluster.put(0)
    cluster.bookies["b1:3181"].up = cluster.bookies["b2:3181"].up = False
    found = cluster.examine(dry=False)
    assert isinstance(found.outcome.phase, Aborted)
    said = fields(found)
    assert (said["outcome"], said["mustComeBack"]) == ("aborted", {"need": 1, "bookies": ("b1:3181", "b2:3181")})
    assert "does not say what it has" in "\n".join(lines(found))


def test_a_closed_ledger_is_only_looked_at():
    cluster = Cluster()
    cluster.put(0)
    bookies, store = cluster.client()
    examine(LEDGER, store, bookies, InspectionOptions(dry=False))
    found = examine(LEDGER, store, bookies)
    assert isinstance(found.outcome.phase, Done)
    assert found.outcome.phase.ending is HowClosed.ADOPTED
    assert "state: CLOSED, last entry 0, 10 bytes" in next(lines(found))
    assert found.dangers == ()


def test_a_bookie_that_lost_its_disk_is_not_believed_unless_it_is_trusted():
    cluster = Cluster()
    cluster.put(0, "b1:3181", "b3:3181")
    cluster.replace_disk("b3:3181")
    cluster.bookies["b1:3181"].up = False
    bookies, store = cluster.client()
    found = examine(LEDGER, store, bookies, InspectionOptions(dry=False, timeout=QUICK))
    assert found.distrusted == {"b3:3181"}
    assert isinstance(found.outcome.phase, Aborted)
    assert "not believed" in "\n".join(lines(found))
    trusted = examine(LEDGER, store, bookies, InspectionOptions(dry=False, trusted=("b3:3181",), timeout=QUICK))
    assert trusted.outcome.metadata.last_entry == -1  # this is what trusting means


@pytest.mark.parametrize("kind", DangerKind)
def test_every_kind_of_danger_is_explained(kind):
    assert f"| `{kind}` |" in (Path(__file__).parents[3] / "docs/ledgers.md").read_text()

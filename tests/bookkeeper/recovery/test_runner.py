"""Recovery over bookies and metadata in memory: the real runner, with real time where time matters."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from offloader.bookkeeper.entry_codec import decode, digest_for, encode, encode_lac, master_key
from offloader.bookkeeper.model import DigestType, LedgerMetadata, LedgerState, StoredEntry
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import Aborted, Closing, Done, HowClosed, RecoveryRules
from offloader.bookkeeper.recovery.outcome import RecoveryOutcome
from offloader.bookkeeper.recovery.runner import Recoverer, recover
from offloader.bookkeeper.status import status_error
from offloader.errors import (
    BookieUnavailableError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    OutcomeUnknownError,
    RecoveryAbortedError,
)
from tests.examples import few
from tests.fakes.bookkeeper import SimulatedBookies, SimulatedCluster, SimulatedStore
from tests.fakes.memory_bookie import MemoryBookie

LEDGER = 7
QUICK = 0.2  # seconds


class Cluster(SimulatedCluster):
    """Prompt bookies, and a ledger on b1, b2, b3."""

    def __init__(self, bookies: int = 3, **more: object) -> None:
        super().__init__(1, bookies, prompt=True)
        shape = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2} | more
        self.shape: LedgerMetadata = self.create(LEDGER, **shape)

    def put(self, entry: int, *bookies: str, lac: int = -1, payload: bytes | None = None) -> bytes:
        """An entry of so many bytes as its id plus one."""
        data = b"x" * (entry + 1) if payload is None else payload
        stored = encode(StoredEntry(LEDGER, entry, lac, sum(range(entry + 2)), data), digest_for(self.shape))
        for bookie in bookies or sorted(self.bookies):
            self.bookies[bookie].memory.add(LEDGER, entry, stored, master_key(self.shape.password))
        return stored

    @property
    def metadata_now(self) -> LedgerMetadata:
        return self.metadata.read(LEDGER).metadata

    def close(self, timeout: float = QUICK, rules: RecoveryRules | None = None) -> RecoveryOutcome:
        bookies, store = self.client()
        return recover(LEDGER, store, bookies, rules, timeout=timeout)


B1, B2, B3 = "b1:3181", "b2:3181", "b3:3181"


@pytest.mark.parametrize("digest", DigestType)
def test_a_ledger_is_closed_with_what_its_bookies_have(digest):
    cluster = Cluster(digest=digest, password=b"secret")
    cluster.put(0)
    stored = cluster.put(1, B2, lac=0)
    outcome = cluster.close()
    assert outcome.phase.ending is HowClosed.CLOSED
    now = cluster.metadata_now
    assert (now.state, now.last_entry, now.length) == (LedgerState.CLOSED, 1, 3)
    assert now == replace(cluster.shape, state=LedgerState.CLOSED, last_entry=1, length=3)
    for bookie in cluster.bookies.values():
        kept = bookie.memory.ledgers[LEDGER]
        assert kept.fenced
        assert kept.stored[1] == stored
        assert decode(kept.stored[1], digest_for(cluster.shape), LEDGER, 1).payload == b"xx"


def test_a_long_tail_is_recovered():
    cluster = Cluster()
    for entry in range(500):
        cluster.put(entry, B1)
    assert cluster.close().metadata.last_entry == 499
    assert all(len(bookie.memory.ledgers[LEDGER].stored) == 500 for bookie in cluster.bookies.values())


def test_whoever_comes_second_adopts_what_the_first_one_did():
    cluster = Cluster()
    cluster.put(0, B1)
    first, second = cluster.close(), cluster.close()
    assert second.phase.ending is HowClosed.ADOPTED
    assert second.metadata == first.metadata
    assert second.message == "ledger 7: was closed already, last entry 0, 1 bytes"


def test_a_bookie_that_is_down_is_done_without():
    cluster = Cluster()
    cluster.put(0)
    cluster.bookies[B3].up = False
    assert cluster.close().metadata.last_entry == 0


def test_a_bookie_that_does_not_answer_is_done_without():
    cluster = Cluster()
    cluster.put(0)
    recovered = Silent(cluster, B3).run()
    assert recovered.metadata.last_entry == 0
    assert recovered.evidence.writes[0][B3].why == "no answer within 0.2 s"


class Silent(Recoverer):
    """One that never hears of these bookies."""

    def __init__(self, cluster: Cluster, *silent: str, rules: RecoveryRules | None = None) -> None:
        self.silent = set(silent)
        bookies, store = cluster.client()
        super().__init__(LEDGER, store, bookies, rules or RecoveryRules(), QUICK)

    def _send(self, request):
        return Future() if request.bookie in self.silent else super()._send(request)


def test_too_few_bookies_leave_the_ledger_in_recovery_and_are_named():
    cluster = Cluster()
    cluster.put(0)
    cluster.bookies[B1].up = cluster.bookies[B2].up = False
    outcome = cluster.close()
    assert isinstance(outcome.phase, Aborted)
    assert cluster.metadata_now.state is LedgerState.IN_RECOVERY
    assert "at least 1 of b1:3181 and b2:3181 must come back" in outcome.message
    assert "b1:3181: refused the connection" in outcome.message
    with pytest.raises(RecoveryAbortedError, match="ledger 7 is not closed"):
        _ = outcome.metadata
    cluster.bookies[B1].up = True
    assert cluster.close().metadata.last_entry == 0


def test_answers_in_time_are_waited_for_and_others_are_not():
    cluster = Cluster()
    cluster.put(0)
    slow = Silent(cluster, B1, B2)
    assert "no answer within 0.2 s" in slow.run().message


def test_a_damaged_copy_is_neither_used_nor_taken_for_absent():
    cluster = Cluster(write_quorum=2, ack_quorum=2, ensemble=2)
    names = cluster.shape.fragments[0].ensemble
    stored = cluster.put(0, *names)
    for name in names:
        cluster.bookies[name].memory.ledgers[LEDGER].stored[0] = stored[:-1] + b"?"
    outcome = cluster.close()
    assert isinstance(outcome.phase, Aborted)
    assert {said.damaged for said in outcome.evidence.reads[0].values()} == {True}
    cluster.bookies[names[1]].memory.ledgers[LEDGER].stored[0] = stored
    assert cluster.close().metadata.last_entry == 0
    assert cluster.bookies[names[0]].memory.ledgers[LEDGER].stored[0] == stored


def test_a_wrong_password_closes_nothing():
    cluster = Cluster(password=b"one")
    cluster.put(0)
    cluster.metadata.cluster.put_ledger(LEDGER, replace(cluster.shape, password=b"another"))
    outcome = cluster.close()
    assert isinstance(outcome.phase, Aborted)
    assert "502" in outcome.message


def test_an_explicit_lac_counts_in_a_dry_run():
    cluster = Cluster()
    cluster.put(0)
    cluster.put(1)
    cluster.bookies[B2].memory.write_lac(LEDGER, encode_lac(LEDGER, 1, digest_for(cluster.shape)), master_key(b""))
    outcome = cluster.close(rules=RecoveryRules(Reading(dry=True)))
    assert outcome.phase.ending is HowClosed.WOULD_CLOSE
    assert (outcome.metadata.last_entry, outcome.metadata.length) == (1, 3)
    assert outcome.evidence.last[B2].confirmed == 1


def test_a_dry_run_touches_nothing_and_hears_everybody():
    cluster = Cluster()
    cluster.put(0, B1)
    before = cluster.metadata.read(LEDGER)
    outcome = cluster.close(rules=RecoveryRules(Reading(dry=True)))
    assert cluster.metadata.read(LEDGER) == before
    assert not cluster.bookies[B1].memory.ledgers[LEDGER].fenced
    assert all(LEDGER not in cluster.bookies[bookie].memory.ledgers for bookie in (B2, B3))
    assert set(outcome.evidence.reads[0]) == set(outcome.evidence.last) == {B1, B2, B3}


def test_a_ledger_that_is_not_there():
    with pytest.raises(LedgerNotFoundError):
        recover(99, *reversed(Cluster().client()))


def test_metadata_that_is_not_there_ends_it():
    cluster = Cluster()
    cluster.metadata.nodes.gone = True
    with pytest.raises(MetadataUnavailableError):
        cluster.close()


def test_a_write_whose_answer_is_lost_is_read_back():
    cluster = Cluster()
    cluster.put(0)
    cluster.metadata.nodes.lost_answers = 2
    outcome = cluster.close()
    assert outcome.metadata.last_entry == 0
    assert len([s for s in outcome.evidence.steps if s.startswith("did not get")]) == 2


def test_a_write_whose_answer_is_lost_and_that_cannot_be_read_back_is_of_unknown_outcome():
    cluster = Cluster()
    cluster.metadata.nodes.lost_answers = 1
    bookies, store = cluster.client()
    recoverer = Recoverer(LEDGER, store, bookies, timeout=QUICK)
    recoverer.turn()
    recoverer.turn()
    cluster.metadata.nodes.gone = True
    with pytest.raises(OutcomeUnknownError, match="closing it again is safe"):
        recoverer.turn()


def test_a_bookie_that_lost_its_disk_is_found_out_before_the_ledger_is_closed():
    cluster = Cluster(ack_quorum=2)
    cluster.put(0, B1, B2)
    cluster.replace_disk(B1)
    outcome = Silent2(cluster)
    assert isinstance(outcome.phase, Aborted)
    assert any("lost their disks" in text for text in outcome.evidence.steps)
    assert cluster.metadata_now.state is LedgerState.IN_RECOVERY


def Silent2(cluster: Cluster) -> RecoveryOutcome:  # noqa: N802
    """b2, which has the other copy, is away."""
    cluster.bookies[B2].up = False
    return cluster.close()


def test_copies_that_are_on_their_way_are_waited_for():
    """The ack quorum is enough to close, but nobody hangs up on the rest."""
    cluster = Cluster()
    cluster.put(0, B1)
    late = Late(cluster, B3)
    outcome = late.run()
    assert outcome.phase.ending is HowClosed.CLOSED
    assert outcome.evidence.writes[0][B3].answer.value == "positive"


class Late(Recoverer):
    """A bookie that takes what is written back only after the ledger is closed."""

    def __init__(self, cluster: Cluster, bookie: str) -> None:
        self.slow = bookie
        self.cluster = cluster
        bookies, store = cluster.client()
        super().__init__(LEDGER, store, bookies, RecoveryRules(), 5.0)

    def _send(self, request):
        if request.bookie != self.slow or type(request).__name__ != "WriteBack":
            return super()._send(request)
        future: Future[None] = Future()
        threading.Thread(target=self._answer, args=(future,)).start()
        return future

    def _answer(self, future: Future[None]) -> None:
        while not self.cluster.metadata_now.closed:
            threading.Event().wait(0.005)
        future.set_result(None)


def test_what_has_come_in_is_heard_before_the_ledger_is_closed():
    """Entries 1 and 2 are on b3 and were on b1, which has lost its disk under its old cookie: b3's answers come
    last."""
    cluster = Cluster()
    cluster.put(0)
    cluster.put(1, B3, lac=0)
    cluster.put(2, B3, lac=1)
    recoverer = Delayed(cluster, B3)
    while not isinstance(recoverer.state.phase, Closing):
        recoverer.turn()
    recoverer.answer()
    outcome = recoverer.run()
    assert isinstance(outcome.phase, Aborted)
    assert "entry 1 was acknowledged, but b1:3181, b2:3181 answered" in outcome.message
    assert "b3:3181 must come back" in outcome.message
    assert cluster.metadata_now.state is LedgerState.IN_RECOVERY


class Delayed(Recoverer):
    """A bookie whose answers come when `answer` is called."""

    def __init__(self, cluster: Cluster, bookie: str) -> None:
        self.slow = bookie
        self.kept: list[tuple[Future[object], Future[object]]] = []
        bookies, store = cluster.client()
        super().__init__(LEDGER, store, bookies, RecoveryRules(), QUICK)

    def _send(self, request):
        sent = super()._send(request)
        if request.bookie != self.slow:
            return sent
        self.kept.append((Future(), sent))
        return self.kept[-1][0]

    def answer(self) -> None:
        for future, sent in self.kept:
            if not future.done():
                future.set_exception(sent.exception()) if sent.exception() else future.set_result(sent.result())


def test_a_mistake_of_ours_is_not_taken_for_an_answer():
    cluster = Cluster()
    bookies, store = cluster.client()

    class Mistaken(Recoverer):
        def _send(self, request):
            future: Future[bytes] = Future()
            future.set_exception(TypeError("a mistake"))
            return future

    with pytest.raises(TypeError, match="a mistake"):
        Mistaken(LEDGER, store, bookies, timeout=QUICK).run()
    assert issubclass(BookieUnavailableError, Exception)


# Bookies that are gone for good


def in_place_of(cluster: Cluster, gone: str) -> str:
    """Who has its place now."""
    before, after = cluster.shape.fragments[0].ensemble, cluster.metadata_now.fragments[-1].ensemble
    assert len(after) == len(before)
    return after[before.index(gone)]


def test_a_bookie_that_is_gone_for_good_does_not_keep_a_ledger_open():
    cluster = Cluster(4, ensemble=2, write_quorum=2, ack_quorum=2)
    gone, left = cluster.shape.fragments[0].ensemble
    cluster.put(0, gone, left)
    cluster.put(1, gone, left, lac=0)
    cluster.bookies[gone].up = False
    outcome = cluster.close()
    assert outcome.phase.ending is HowClosed.CLOSED
    (change,) = outcome.replaced
    assert (change.first_entry, change.bookie, change.by) == (1, gone, in_place_of(cluster, gone))
    assert outcome.message == f"ledger 7: closed, last entry 1, 3 bytes; from entry 1 on {change.by} in place of {gone}"
    assert 1 in cluster.bookies[change.by].memory.ledgers[LEDGER].stored
    assert cluster.metadata_now == outcome.metadata


def test_who_takes_a_place_is_left_to_chance():
    chosen = set()
    for seed in range(30):
        cluster = Cluster(5, ensemble=2, write_quorum=2, ack_quorum=2)
        gone, left = cluster.shape.fragments[0].ensemble
        cluster.put(0, left)
        cluster.bookies[gone].up = False
        bookies, store = cluster.client()
        recover(LEDGER, store, bookies, timeout=QUICK, choice=random.Random(seed))
        chosen.add(in_place_of(cluster, gone))
    assert chosen == set(cluster.bookies) - set(cluster.shape.fragments[0].ensemble)


@pytest.mark.parametrize("form", [2, 3])
def test_changed_ensembles_are_written_in_either_format(form):
    cluster = Cluster(3, ensemble=2, write_quorum=2, ack_quorum=2, format_version=form)
    gone, left = cluster.shape.fragments[0].ensemble
    for entry in range(3):
        cluster.put(entry, left, lac=entry - 1)
    cluster.bookies[gone].up = False
    assert [change.first_entry for change in cluster.close().replaced] == [2]
    now = cluster.metadata_now
    assert (now.format_version, now.last_entry, [fragment.first_entry for fragment in now.fragments]) == (
        form,
        2,
        [0, 2],
    )


def test_a_bookie_that_joined_the_cluster_after_the_ledger_was_made_may_take_a_place():
    """That its cookie is young speaks against what it denies, and it is asked nothing."""
    cluster = Cluster(3, ensemble=2, write_quorum=2, ack_quorum=2)
    gone, left = cluster.shape.fragments[0].ensemble
    (spare,) = set(cluster.bookies) - {gone, left}
    cluster.network.now += 60
    cluster.metadata.cluster.delete_cookie(spare)
    cluster.metadata.cluster.put_cookie(spare, b"new")
    cluster.put(0, left)
    cluster.bookies[gone].up = False
    outcome = cluster.close()
    assert in_place_of(cluster, gone) == spare
    assert not [said for said in outcome.evidence.steps if "lost their disks" in said]


class Registered(SimulatedStore):
    """As the metadata service has it: not who is up, but who is registered, and how."""

    def available(self):
        return self._cluster.metadata.available()


def absent(cluster: Troubled, bookie: str) -> None:
    cluster.metadata.cluster.unregister(bookie)
    cluster.bookies[bookie].up = False


def hung(cluster: Troubled, bookie: str) -> None:
    """Registered, and never answers."""
    cluster.hung.add(bookie)


def refusing(cluster: Troubled, bookie: str) -> None:
    """Registered, and its disk answers with errors."""
    cluster.bookies[bookie].memory = Failing()


def read_only(cluster: Troubled, bookie: str) -> None:
    cluster.metadata.cluster.unregister(bookie)
    cluster.metadata.cluster.register(bookie, None, read_only=True)
    memory = cluster.bookies[bookie].memory
    assert isinstance(memory, Partial)
    memory.read_only = True


class Failing(MemoryBookie):
    def _known(self, ledger):
        raise status_error(501, f"{ledger}")

    def _owned(self, ledger, master_key):
        self._known(ledger)


class Partial(MemoryBookie):
    """One that refuses entries while it is read only, as one does whose disk is quite full."""

    read_only = False

    def add(self, ledger, entry, stored, master_key, *, recovery=False):
        if self.read_only:
            raise status_error(505, f"{ledger}:{entry}")
        super().add(ledger, entry, stored, master_key, recovery=recovery)


class Troubled(Cluster):
    """A cluster some of whose bookies are in trouble."""

    def __init__(self, bookies: int, troubles: dict[int, Trouble], **shape: int) -> None:
        self.hung: set[str] = set()
        super().__init__(bookies, **shape)
        for bookie in self.bookies.values():
            bookie.memory = Partial()
        members = self.shape.fragments[0].ensemble
        others = sorted(set(self.bookies) - set(members))
        self.put(0, *members)
        self.put(1, *members, lac=0)
        for number, trouble in troubles.items():
            trouble(self, [*members, *others][number])

    def ended(self, *, dry: bool) -> Done | Aborted:
        bookies, _ = self.client()
        rules = RecoveryRules(Reading(dry=dry))
        answering = Muted(bookies, self.hung)
        return recover(LEDGER, Registered(self), answering, rules, timeout=QUICK, choice=random.Random(1)).phase


class Muted:
    """The bookies, but for some that never answer."""

    def __init__(self, bookies: SimulatedBookies, silent: set[str]) -> None:
        self._bookies = bookies
        self._silent = silent

    def __getattr__(self, name: str):
        ask = getattr(self._bookies, name)
        return lambda bookie, *more, **options: Future() if bookie in self._silent else ask(bookie, *more, **options)


Trouble = Callable[[Troubled, str], None]
TROUBLES: tuple[Trouble, ...] = (absent, hung, refusing, read_only)


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("shape", few([(3, 3, 2), (2, 2, 2), (3, 3, 3)], 1), ids=str)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_dry_run_tells_what_closing_comes_to(trouble, shape, others):
    """One bookie of the ensemble is in trouble, and, where two can take its place, so is one of these."""
    quorums = dict(zip(("ensemble", "write_quorum", "ack_quorum"), shape, strict=True))
    troubles = {0: trouble, shape[0]: trouble} if others == 2 else {0: trouble}
    cluster = Troubled(shape[0] + others, troubles, **quorums)
    before = cluster.metadata.read(LEDGER)
    dry = cluster.ended(dry=True)
    assert cluster.metadata.read(LEDGER) == before
    real = cluster.ended(dry=False)
    closes = others > 0 or shape[1] > shape[2]
    assert isinstance(real, Done) == isinstance(dry, Done) == closes
    if isinstance(dry, Done) and isinstance(real, Done):
        assert dry.metadata == real.metadata
    else:
        assert dry.missing == real.missing

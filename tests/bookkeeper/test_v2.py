"""Version 2: what is asked for arrives at a bookie as meant, and answers reach whoever asked, in any order; nonsense is
refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.requests import BatchRead, EntryRead
from offloader.bookkeeper.status import Answer, NoEntryError, answer
from offloader.bookkeeper.v2 import V2, header
from offloader.errors import ProtocolError
from tests.bookkeeper.bookie_answers import answer_v2, asked_v2
from tests.bookkeeper.entries import stored_entry
from tests.fakes.memory_bookie import MemoryBookie

BATCH_ANSWER = struct.Struct(">Iiqqq")

KEY = b"k" * 20


def bookie(entries=range(10), ledger=7):
    made = MemoryBookie()
    for entry in entries:
        made.add(ledger, entry, stored_entry(entry, ledger_id=ledger), KEY)
    return made


def ask(dialect, number, request):
    """A request's answer, as the bookie sends it."""
    asked = asked_v2(dialect.encode(number, request)[4:])
    return memoryview(answer_v2(bookie(), asked, None))


batches = st.builds(
    BatchRead,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(1, 2**31 - 1),
    st.integers(1, 2**63 - 1),
)


@given(batches, st.integers(1, 2**63 - 1))
def test_a_request_arrives_as_meant(request, number):
    asked = asked_v2(V2("b1").encode(number, request)[4:])
    assert (asked.ledger, asked.entry) == (request.ledger, request.first)
    if request.count > 1:
        assert (asked.operation, asked.most, asked.size, asked.number) == ("batch", request.count, request.size, number)
    else:
        assert asked.operation == "read"  # older bookies know that one, too


@given(st.permutations([(1, 0, 3), (2, 5, 100), (3, 0, 1), (4, 9, 1), (5, 2, 2)]))
def test_answers_reach_whoever_asked_in_any_order(order):
    dialect = V2("b1")
    bodies = {number: ask(dialect, number, BatchRead(7, first, count, 10_000)) for number, first, count in order}
    for number, first, count in reversed(order):
        (answered,) = dialect.decode(bodies[number])
        expected = [stored_entry(e, ledger_id=7) for e in range(first, min(first + count, 10))]
        assert (answered.number, answered.result, answered.error) == (number, expected, None)


def test_a_batch_is_as_large_as_asked_for():
    one = len(stored_entry(0, ledger_id=7)) + 4
    dialect = V2("b1")
    (answered,) = dialect.decode(ask(dialect, 1, BatchRead(7, 0, 100, 36 + 3 * one)))
    assert len(answered.result) == 3
    (answered,) = dialect.decode(ask(dialect, 2, BatchRead(7, 0, 100, 1)))
    assert len(answered.result) == 1  # the first one in any case


@pytest.mark.parametrize("count", [1, 10])
def test_a_status_becomes_its_error(count):
    dialect = V2("b1")
    (answered,) = dialect.decode(ask(dialect, 1, BatchRead(7, 99, count, 1000)))
    assert isinstance(answered.error, NoEntryError)
    assert str(answered.error).startswith(f"b1: read of up to {count} entries from 7:99: status 403")


def test_a_code_of_version_3_means_nothing_here():
    dialect = V2("b1")
    dialect.encode(1, BatchRead(7, 3, 2, 1000))
    body = memoryview(BATCH_ANSWER.pack(header(7), 402, 7, 3, 1))
    (answered,) = dialect.decode(body)
    assert answer(answered.error) is Answer.UNKNOWN


def test_one_answer_is_for_all_who_asked_for_the_same_entry():
    dialect = V2("b1")
    body = ask(dialect, 1, BatchRead(7, 3, 1, 1000))
    ask(dialect, 2, BatchRead(7, 3, 1, 1000))
    assert [(a.number, a.result) for a in dialect.decode(body)] == [(n, [stored_entry(3, ledger_id=7)]) for n in (1, 2)]
    assert dialect.decode(body) == []


@pytest.mark.parametrize("count", [1, 10])
def test_what_nobody_waits_for_any_more_is_dropped(count):
    dialect = V2("b1")
    body = ask(dialect, 1, BatchRead(7, 3, count, 1000))
    dialect.forget(1)
    dialect.forget(1)
    assert dialect.decode(body) == []


def test_there_is_nothing_but_batches():
    with pytest.raises(ProtocolError, match="version 2 of the protocol has no read of 7:3"):
        V2("b1").encode(1, EntryRead(7, 3))


def batch_answer(*entries, number=1, ledger=7, first=3):
    body = BATCH_ANSWER.pack(header(7), 0, ledger, first, number)
    return memoryview(body + b"".join(len(e).to_bytes(4) + e for e in entries))


@pytest.mark.parametrize(
    "body",
    [
        batch_answer(),
        batch_answer(b"one", b"two", b"three"),
        batch_answer(b"one", b"two")[:-1],
        batch_answer(b"one", b"two")[:-4],
        memoryview(bytes(batch_answer(b"one")) + b"\0"),
        memoryview(bytes(batch_answer(b"one")) + b"\0\0\0\1"),
        batch_answer(b"one", ledger=8),
        batch_answer(b"one", first=4),
        batch_answer()[:20],
        memoryview(header(2).to_bytes(4) + b"short"),
        memoryview(header(9).to_bytes(4) + bytes(40)),
        memoryview(b""),
    ],
)
def test_nonsense_is_refused(body):
    dialect = V2("b1")
    dialect.encode(1, BatchRead(7, 3, 2, 1000))
    with pytest.raises(ProtocolError):
        dialect.decode(body)


def test_authentication_is_carried_and_nonsense_in_it_refused():
    dialect = V2("b1")
    sent = dialect.encode_auth("plug", b"secret")[4:]
    assert dialect.decode_auth(memoryview(sent)) == ("plug", b"secret")
    with pytest.raises(ProtocolError, match="something else"):
        dialect.decode_auth(batch_answer(b"one"))
    with pytest.raises(ProtocolError, match="cannot be parsed"):
        dialect.decode_auth(memoryview(sent[:6]))


@pytest.mark.parametrize("count", [1, 3])
def test_an_answers_beginning_tells_whose_it_is(count):
    dialect = V2("b1")
    body = ask(dialect, 5, BatchRead(7, 0, count, 1000))
    assert dialect.whose(body) == dialect.whose(body[:64]) == 5
    assert dialect.whose(body[:20]) is None
    dialect.encode(6, BatchRead(7, 1, count, 1000))
    dialect.forget(5)
    assert dialect.whose(body) != 6, "an answer that comes too late is nobody else's"
    assert dialect.whose(body) is not None

"""Version 3: what is asked for arrives at a bookie as meant, and answers reach whoever asked, in any order; nonsense is
refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto import bookkeeper_pb2 as pb
from offloader.bookkeeper.api import LastConfirmed
from offloader.bookkeeper.requests import Add, BatchRead, EntryRead, ListEntries, ReadLac, WriteLac
from offloader.bookkeeper.status import NoLedgerError
from offloader.bookkeeper.v3 import V3, accepts_tls, encode_start_tls
from offloader.errors import AccessDeniedError, AuthenticationFailedError, ProtocolError
from tests.bookkeeper.bookie_answers import answer_v3, asked_v3
from tests.bookkeeper.entries import stored_entry
from tests.fakes.memory_bookie import MemoryBookie

KEY = b"k" * 20

ids = st.integers(0, 2**63 - 1)
keys = st.binary(min_size=20, max_size=20)
bodies = st.binary(max_size=100)
requests = st.one_of(
    st.builds(EntryRead, ids, st.integers(-1, 2**63 - 1), st.none() | keys),
    st.builds(Add, ids, ids, bodies, keys, st.booleans()),
    st.builds(ReadLac, ids),
    st.builds(WriteLac, ids, ids, bodies, keys),
    st.builds(ListEntries, ids),
)


def parse(data):
    return pb.Request.FromString(data[4:])


def name(request):
    match request:
        case EntryRead():
            return "read" if request.fence is None else "fence"
        case Add():
            return "recovery-add" if request.recovery else "add"
    return {ReadLac: "read-lac", WriteLac: "write-lac", ListEntries: "list"}[type(request)]


@given(requests, st.integers(1, 2**63 - 1))
def test_a_request_arrives_as_meant(request, number):
    message = parse(V3("b1").encode(number, request))
    asked = asked_v3(message)
    assert (message.header.version, message.header.txn_id) == (3, number)
    assert (asked.operation, asked.ledger) == (name(request), request.ledger)
    assert asked.entry == getattr(request, "entry", getattr(request, "last_confirmed", -1))
    if isinstance(request, EntryRead):
        assert message.read.master_key == (request.fence or b"")
    if isinstance(request, Add):
        assert (message.add.body, message.add.master_key) == (request.stored, request.master_key)
        assert (message.header.priority > 0) == request.recovery
    if isinstance(request, WriteLac):
        assert (message.write_lac.body, message.write_lac.master_key) == (request.body, request.master_key)


def ask(dialect, number, request, bookie):
    message = parse(dialect.encode(number, request))
    return memoryview(answer_v3(bookie, message, asked_v3(message), None))


def test_answers_reach_whoever_asked_in_any_order():
    bookie, dialect = MemoryBookie(), V3("b1")
    entries = [stored_entry(n, ledger_id=7) for n in range(3)]
    asked = [
        (Add(7, 0, entries[0], KEY), None),
        (Add(7, 1, entries[1], KEY), None),
        (WriteLac(7, 0, b"lac", KEY), None),
        (EntryRead(7, 0), entries[0]),
        (EntryRead(7, -1), entries[1]),
        (ReadLac(7), LastConfirmed(b"lac", entries[1])),
        (ListEntries(7), [0, 1]),
        (EntryRead(7, -1, KEY), entries[1]),
        (Add(7, 2, entries[2], KEY, recovery=True), None),
    ]
    answers = [ask(dialect, number, request, bookie) for number, (request, _) in enumerate(asked, 1)]
    for number in range(len(asked), 0, -1):
        (answered,) = dialect.decode(answers[number - 1])
        result = answered.result if not isinstance(asked[number - 1][0], ListEntries) else list(answered.result)
        assert (answered.number, result, answered.error) == (number, asked[number - 1][1], None)
    assert bookie.ledgers[7].fenced


@given(requests)
def test_a_status_becomes_its_error(request):
    dialect = V3("b1")
    message = parse(dialect.encode(5, request))
    (answered,) = dialect.decode(memoryview(answer_v3(MemoryBookie(), message, asked_v3(message), 402)))
    assert (answered.number, answered.result) == (5, None)
    assert isinstance(answered.error, NoLedgerError)
    assert str(answered.error).startswith(f"b1: {request}: status 402")


@given(requests)
def test_a_bookie_that_refuses_the_request_as_such_need_not_say_more(request):
    dialect = V3("b1")
    message = parse(dialect.encode(5, request))
    (answered,) = dialect.decode(memoryview(pb.Response(header=message.header, status=502).SerializeToString()))
    assert isinstance(answered.error, AccessDeniedError)


def test_what_nobody_waits_for_any_more_is_dropped():
    bookie, dialect = MemoryBookie(), V3("b1")
    body = ask(dialect, 1, EntryRead(7, 0), bookie)
    dialect.forget(1)
    assert dialect.decode(body) == []
    body = ask(dialect, 2, EntryRead(7, 0), bookie)
    assert len(dialect.decode(body)) == 1
    assert dialect.decode(body) == []


def test_there_are_no_batches():
    with pytest.raises(ProtocolError, match="version 3 of the protocol has no read of up to 10 entries from 7:3"):
        V3("b1").encode(1, BatchRead(7, 3, 10, 1000))


def response(**fields):
    return memoryview(
        pb.Response(header=pb.PacketHeader(version=3, operation=1, txn_id=1), **fields).SerializeToString()
    )


@pytest.mark.parametrize(
    "body",
    [
        response(status=0),
        response(status=0, read=pb.ReadResponse(status=0, ledger_id=7, entry_id=3)),
        response(status=0, read=pb.ReadResponse(status=0, ledger_id=8, entry_id=3, body=b"x")),
        response(status=0, read=pb.ReadResponse(status=0, ledger_id=7, entry_id=4, body=b"x")),
        response(status=0, add=pb.AddResponse(status=0, ledger_id=7, entry_id=3)),
        memoryview(b"\xff\xff\xff"),
        memoryview(b""),
    ],
)
def test_nonsense_is_refused(body):
    dialect = V3("b1")
    dialect.encode(1, EntryRead(7, 3))
    with pytest.raises(ProtocolError):
        dialect.decode(body)


def test_secrets_are_not_shown():
    shown = [
        repr(r) + str(r)
        for r in (EntryRead(7, 3, b"sesame"), Add(7, 3, b"x", b"sesame"), WriteLac(7, 3, b"x", b"sesame"))
    ]
    assert not any("sesame" in text for text in shown)


def test_start_tls_is_agreed_to_or_not():
    request = parse(encode_start_tls())
    assert request.HasField("start_tls")
    assert accepts_tls(memoryview(pb.Response(header=request.header, status=0).SerializeToString()))
    assert not accepts_tls(memoryview(pb.Response(header=request.header, status=404).SerializeToString()))


def test_authentication_is_carried_and_its_refusal_told():
    dialect = V3("b1")
    request = parse(dialect.encode_auth("plug", b"secret"))
    assert (request.auth.plugin_name, request.auth.payload) == ("plug", b"secret")
    answer = pb.Response(header=request.header, status=0, auth=request.auth)
    assert dialect.decode_auth(memoryview(answer.SerializeToString())) == ("plug", b"secret")
    with pytest.raises(AuthenticationFailedError, match="status 502"):
        dialect.decode_auth(memoryview(pb.Response(header=request.header, status=502).SerializeToString()))


def test_an_answers_beginning_tells_whose_it_is():
    dialect = V3("b1")
    body = ask(dialect, 2**40, EntryRead(7, 0), MemoryBookie())
    assert dialect.whose(body) == dialect.whose(body[:64]) == 2**40
    dialect.forget(2**40)
    assert dialect.whose(body) == 2**40, "an answer that comes too late is nobody else's"
    for unclear in (b"", b"\x0a", body[:4], b"\xff" * 64, b"\x0a\x03\xff\xff\xff"):
        assert dialect.whose(memoryview(unclear)) is None

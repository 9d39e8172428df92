"""Many entries at once are what each of them is alone."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.gateway.entries import delivered
from offloader.gateway.entries.delivered import deliverable, time_of, with_sticky
from offloader.model import Transaction
from tests.archive.messages.encoder import run_of
from tests.archive.messages.streams import streams
from tests.format.support import broker_metadata, checksummed, plain

LARGE = 2**64 - 1
NOW = 1_700_000_000_000


def said(name: str = "p", key: str | None = None, transaction: Transaction | None = None, **more: object) -> bytes:
    metadata = MessageMetadata(producer_name=name, sequence_id=1, publish_time=NOW, **more)
    if key is not None:
        metadata.partition_key = key
    if transaction is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = transaction
    return checksummed(metadata)


_ids = st.tuples(st.sampled_from([0, LARGE]), st.sampled_from([1, LARGE]))
_others = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda data, cut: data[:cut], st.just(broker_metadata(time=5, index=7) + said()), st.integers(0, 60)),
    st.builds(said, st.text(max_size=5), st.none() | st.text(max_size=90), st.none() | _ids),
    st.builds(lambda most: said(num_messages_in_batch=most), st.sampled_from([-1, 0, 1, 2**31 - 1])),
    st.just(said(key="AP8=", partition_key_b64_encoded=True)),
    st.just(said(marker_type=0)),
    st.just(said(deliver_at_time=-3)),
    st.just(plain(MessageMetadata(producer_name="p", sequence_id=1))),
    st.just(plain(MessageMetadata(producer_name="p", publish_time=1))),
    st.just(plain(MessageMetadata(sequence_id=1, publish_time=1))),
    st.just(plain(MessageMetadata.FromString(said()[10:-7] + b"\xa3\x06\xa4\x06"))),
)


@given(streams(), st.lists(_others, max_size=30), st.sets(_ids), st.booleans(), st.integers(0, 2**32))
def test_many_are_read_as_each_alone(
    encoded: list, others: list[bytes], aborted: set[Transaction], sticky: bool, seed: int
) -> None:
    entries = [*(each.data for each in encoded), *others]
    Random(seed).shuffle(entries)
    run = run_of(entries, 5, gap=bytes(12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivered, "FEW", 0)
        many = deliverable(run, aborted, sticky=sticky).entries()
        patch.setattr(delivered, "FEW", 10**9)
        alone = deliverable(run, aborted, sticky=sticky).entries()
    assert many == alone
    assert all(each.data == entries[each.place[1] - 5] for each in alone)
    assert sticky or all(each.sticky == 0 for each in alone)
    if sticky:
        assert [with_sticky(each._replace(sticky=0)) for each in alone] == alone


@pytest.mark.parametrize("few", [0, 10**9])
def test_what_consumers_get(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered, "FEW", few)
    broker = broker_metadata(time=5, index=7)
    batch = broker + said(num_messages_in_batch=12, transaction=(1, LARGE))
    late = said(deliver_at_time=NOW + 9)
    chunk = said(uuid="u", num_chunks_from_msg=3, chunk_id=1)
    left_out = [said(marker_type=21), said(transaction=(LARGE, 2)), b"", b"\x0e\x02\0\0\1\0", said()[:20]]
    found = deliverable(run_of([batch, *left_out, late, chunk]), {(LARGE, 2)}, sticky=False).entries()
    assert [each[2:6] for each in found] == [(len(broker), 12, 0, 0), (0, 1, 0, NOW + 9), (0, 1, 0, 0)]
    assert [(each.place[1], bytes(each.data)) for each in found] == [(0, batch), (6, late), (7, chunk)]
    assert [time_of(each) for each in found] == [5, NOW, NOW]


def test_broker_metadata_that_cannot_be_read_are_delivered_and_say_no_time() -> None:
    data = b"\x0e\x02\0\0\0\3\xff\xff\xff" + said()
    [entry] = deliverable(run_of([data]), (), sticky=False).entries()
    assert (entry.skip, bytes(entry.data), time_of(entry)) == (9, data, None)


def test_large_entries_are_not_copied() -> None:
    run = run_of([said() + bytes(5000)])
    [entry] = deliverable(run, (), sticky=False).entries()
    assert isinstance(entry.data, memoryview)
    assert entry.data.obj is run.data.obj

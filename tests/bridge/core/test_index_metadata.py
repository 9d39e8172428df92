"""What the index of a bridged ledger says of it: what BookKeeper's record says, while there is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bookkeeper.model import DigestType, Fragment, LedgerMetadata, LedgerState
from offloader.bridge.core.index_metadata import OWNER, index_metadata
from offloader.errors import IntegrityError

NAME = "public/default/persistent/t"
KNOWN = LedgerMetadata(
    3,
    2,
    2,
    LedgerState.CLOSED,
    (Fragment(0, ("a:3181", "b:3181", "c:3181")), Fragment(7, ("a:3181", "d:3181", "c:3181"))),
    DigestType.HMAC,
    b"secret",
    9,
    1_000,
    5,
    {"application": b"pulsar", OWNER: b"other/ns/persistent/t", "ours": b"\xff"},
)


def said(known: LedgerMetadata | None, last: int = 9, length: int = 1_000) -> LedgerMetadataFormat:
    return LedgerMetadataFormat.FromString(index_metadata(last, length, NAME, 77, known))


def custom(message: LedgerMetadataFormat) -> dict[str, bytes]:
    return {each.key: each.value for each in message.customMetadata}


def test_bookkeepers_record_is_kept_without_its_password():
    message = said(KNOWN)
    assert (message.ensembleSize, message.quorumSize, message.ackQuorumSize) == (3, 2, 2)
    assert (message.digestType, message.ctime) == (LedgerMetadataFormat.HMAC, 5)
    assert [(each.firstEntryId, tuple(each.ensembleMember)) for each in message.segment] == [
        (each.first_entry, each.ensemble) for each in KNOWN.fragments
    ]
    assert custom(message) == {"component": b"managed-ledger", **KNOWN.custom}
    assert not message.HasField("password")
    assert not message.HasField("cToken")


def test_without_one_it_is_small_and_names_the_owner():
    message = said(None)
    assert (message.ensembleSize, message.quorumSize, message.ackQuorumSize, message.ctime) == (1, 1, 1, 77)
    assert custom(message) == {"application": b"pulsar", "component": b"managed-ledger", OWNER: NAME.encode()}


@pytest.mark.parametrize("known", [KNOWN, None, replace(KNOWN, state=LedgerState.OPEN, last_entry=-1, length=0)])
def test_it_is_closed_with_what_the_archive_has(known):
    message = said(known)
    assert (message.state, message.lastEntryId, message.length) == (LedgerMetadataFormat.CLOSED, 9, 1_000)
    assert index_metadata(9, 1_000, NAME, 77, known) == index_metadata(9, 1_000, NAME, 77, known)


@pytest.mark.parametrize(("last", "length"), [(8, 1_000), (9, 999), (10, 1_000)])
def test_another_end_or_length_than_bookkeepers_is_damage(last, length):
    with pytest.raises(IntegrityError, match="ends with entry 9 and has 1000 bytes"):
        said(KNOWN, last, length)

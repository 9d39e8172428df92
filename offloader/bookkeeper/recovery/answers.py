"""From a bookie's answer to what it says: digests checked, errors told apart. Pure."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from offloader.bookkeeper.api import LastConfirmed
from offloader.bookkeeper.digests import digest_for
from offloader.bookkeeper.entry_codec import decode, decode_lac
from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata
from offloader.bookkeeper.recovery.messages import Answered, BookieRequest, Held, ReadEntry, ReadLast, WriteBack
from offloader.bookkeeper.status import Answer, answer
from offloader.errors import IntegrityError, OffloadError


def unanswered(request: BookieRequest, timeout: float) -> Answered:
    """Nothing came in time."""
    return Answered(request, Answer.UNKNOWN, why=f"no answer within {timeout:g} s")


def answered(ledger: int, request: BookieRequest, future: Future[Any], metadata: LedgerMetadata) -> Answered:
    """What a future that is done says."""
    error = future.exception()
    if error is not None:
        return _failed(request, error)
    result = future.result()
    match request:
        case WriteBack():
            return Answered(request, Answer.POSITIVE)
        case ReadEntry(entry=entry):
            return _entry(ledger, request, entry, result, metadata)
        case ReadLast():
            return _last(ledger, request, result, metadata)


def _failed(request: BookieRequest, error: BaseException) -> Answered:
    if not isinstance(error, OffloadError):
        raise error
    kind = answer(error)
    if isinstance(request, WriteBack):  # a dry one only asks for the end: a bookie without one would take an entry
        kind = Answer.POSITIVE if request.dry and kind is Answer.NEGATIVE else Answer.UNKNOWN
    return Answered(request, kind, why="" if kind is Answer.POSITIVE else str(error))


def _entry(ledger: int, request: ReadEntry, entry: int, stored: bytes, metadata: LedgerMetadata) -> Answered:
    """Bytes that are damaged say nothing: the bookie had the entry once."""
    try:
        return Answered(request, Answer.POSITIVE, held(ledger, entry, stored, metadata))
    except IntegrityError as error:
        return Answered(request, Answer.UNKNOWN, why=f"damaged: {error}", damaged=True)


def _last(ledger: int, request: ReadLast, result: LastConfirmed | bytes | None, metadata: LedgerMetadata) -> Answered:
    """However damaged its last entry is, the bookie has fenced the ledger."""
    last = result if isinstance(result, LastConfirmed) else LastConfirmed(None, result)
    if last.explicit is None and last.last_entry is None:
        return Answered(request, Answer.NEGATIVE, why="has no entry of this ledger")
    said = Answered(request, Answer.POSITIVE)
    try:
        if last.last_entry is not None:
            said = replace(said, held=held(ledger, None, last.last_entry, metadata)._replace(stored=b""))
        if last.explicit is not None:
            said = replace(said, confirmed=max(decode_lac(last.explicit, digest_for(metadata), ledger), NO_ENTRY))
    except IntegrityError as error:
        said = replace(said, why=f"damaged: {error}", damaged=True)
    return said


def held(ledger: int, entry: int | None, stored: bytes, metadata: LedgerMetadata) -> Held:
    """The stored entry; `entry` None: any. Raises IntegrityError."""
    found = decode(stored, digest_for(metadata), ledger, entry)
    return Held(found.entry, found.last_confirmed, found.length, bytes(stored))

"""What a bookie's answers mean: one error for each status code, and what follows from it. Pure.

Only `no such ledger` and `no such entry` say that something is not there. Any other error, a time-out included, says
nothing of what the bookie holds, and must never be taken for "not there".
"""

from __future__ import annotations

from enum import Enum

from offloader.errors import (
    AccessDeniedError,
    BookieUnavailableError,
    EntryNotFoundError,
    FatalError,
    LedgerFencedError,
    LedgerNotFoundError,
    OffloadError,
)

OK = 0


class BookieError(OffloadError):
    """A bookie answered with a status other than ok."""

    status: int = -1


class NoLedgerError(BookieError, LedgerNotFoundError):
    """This bookie has nothing of this ledger."""

    status = 402


class NoEntryError(BookieError, EntryNotFoundError):
    """This bookie does not have this entry."""

    status = 403


class BadRequestError(BookieError, FatalError):
    """The bookie does not understand or does not allow the request."""

    status = 404


class BookieIOError(BookieError, BookieUnavailableError):
    """The bookie could not read or write its disk."""

    status = 501


class UnauthorizedError(BookieError, AccessDeniedError):
    """The bookie does not know us, or the ledger's password is another one."""

    status = 502


class BadVersionError(BookieError, FatalError):
    """The bookie does not speak this version of the protocol."""

    status = 503


class FencedError(BookieError, LedgerFencedError):
    """The bookie takes no more entries of this ledger's writer."""

    status = 504


class ReadOnlyError(BookieError, BookieUnavailableError):
    """The bookie takes no entries at all for now."""

    status = 505


class TooManyRequestsError(BookieError, BookieUnavailableError):
    """The bookie is busy and refuses to queue more."""

    status = 506


class UnknownLedgerStateError(BookieError, BookieUnavailableError):
    """The bookie does not know whether it lost entries of this ledger."""

    status = 507


class UnknownStatusError(BookieError, BookieUnavailableError):
    """A status that is not in the protocol's list."""


_BY_STATUS: dict[int, type[BookieError]] = {kind.status: kind for kind in BookieError.__subclasses__()}


def status_error(status: int, what: str) -> BookieError:
    """`what`: bookie, request, ledger and entry."""
    kind = _BY_STATUS.get(status, UnknownStatusError)
    summary = (kind.__doc__ or "").rstrip(".")
    error = kind(f"{what}: status {status} ({summary[:1].lower()}{summary[1:]})")
    error.status = status
    return error


class Answer(Enum):
    """What one bookie's answer says of whether it has something."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    UNKNOWN = "unknown"


def answer(error: BaseException | None) -> Answer:
    """What an error says; None stands for a result."""
    if error is None:
        return Answer.POSITIVE
    return Answer.NEGATIVE if isinstance(error, NoLedgerError | NoEntryError) else Answer.UNKNOWN

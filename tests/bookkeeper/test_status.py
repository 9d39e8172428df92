"""Each status code has its own error, and only 'no such ledger' and 'no such entry' say that something is not there."""

import pytest

from offloader import errors
from offloader.bookkeeper.status import Answer, BookieError, answer, status_error

CODES = {
    402: errors.LedgerNotFoundError,
    403: errors.EntryNotFoundError,
    404: errors.FatalError,
    501: errors.BookieUnavailableError,
    502: errors.AccessDeniedError,
    503: errors.FatalError,
    504: errors.LedgerFencedError,
    505: errors.BookieUnavailableError,
    506: errors.BookieUnavailableError,
    507: errors.BookieUnavailableError,
}


@pytest.mark.parametrize(("code", "branch"), CODES.items())
def test_each_code_has_a_class_of_its_own_below_the_right_branch(code, branch):
    error = status_error(code, "b1: read of 1:2")
    assert isinstance(error, branch)
    assert isinstance(error, BookieError)
    assert error.status == code == type(error).status
    assert str(error).startswith(f"b1: read of 1:2: status {code} (")


def test_no_two_codes_share_a_class():
    assert len({type(status_error(code, "")) for code in CODES}) == len(CODES)


def test_a_code_that_nobody_knows_says_nothing():
    error = status_error(599, "b1: read of 1:2")
    assert isinstance(error, errors.BookieUnavailableError)
    assert error.status == 599
    assert answer(error) is Answer.UNKNOWN


@pytest.mark.parametrize("code", CODES)
def test_only_402_and_403_are_negative(code):
    assert answer(status_error(code, "")) is (Answer.NEGATIVE if code in (402, 403) else Answer.UNKNOWN)


@pytest.mark.parametrize(
    "error",
    [
        errors.BookieUnavailableError("no answer"),
        errors.OutcomeUnknownError("lost"),
        errors.ProtocolError("nonsense"),
        errors.LedgerNotFoundError("said by somebody else than a bookie"),
        errors.EntryNotFoundError("said by somebody else than a bookie"),
        TimeoutError(),
        Exception(),
    ],
)
def test_everything_that_no_bookie_said_is_unknown(error):
    assert answer(error) is Answer.UNKNOWN


def test_a_result_is_positive():
    assert answer(None) is Answer.POSITIVE

"""An acknowledged entry is not there only when all its bookies say so; otherwise nothing is known: any may have the
last copy."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.reading.fetch import verdict
from offloader.bookkeeper.status import status_error
from offloader.errors import (
    BookieUnavailableError,
    EntryNotFoundError,
    IntegrityError,
    LedgerNotFoundError,
    OffloadError,
)
from tests.bookkeeper.entries import ledger

ENSEMBLE = ("a", "b", "c")
CODES = (402, 403, 404, 501, 502, 503, 504, 505, 506, 507)


def said(*codes):
    answers = [
        status_error(code, bookie) if code else BookieUnavailableError(bookie)
        for bookie, code in zip("abc", codes, strict=False)
    ]
    return dict(zip("abc", answers, strict=False))


@given(st.lists(st.sampled_from([*CODES, 0]), min_size=3, max_size=3), st.integers(1, 3))
def test_not_found_needs_all_to_say_so(codes, ack_quorum):
    metadata = ledger((0, ENSEMBLE), quorums=(3, ack_quorum))
    error = verdict(metadata, 7, 0, said(*codes))
    negatives = sum(code in (402, 403) for code in codes)
    assert isinstance(error, EntryNotFoundError | LedgerNotFoundError) == (negatives == 3)
    assert str(error).startswith("entry 7:0: ")


@pytest.mark.parametrize("codes", [*product((402, 403), repeat=3)])
def test_the_ledger_is_gone_only_when_all_say_so(codes):
    error = verdict(ledger((0, ENSEMBLE), quorums=(3, 2)), 7, 0, said(*codes))
    assert isinstance(error, LedgerNotFoundError if 403 not in codes else EntryNotFoundError)


def test_only_the_entrys_own_bookies_count():
    metadata = ledger((0, ("a", "b", "c", "d")), quorums=(2, 2))
    denied: dict[str, OffloadError] = {name: status_error(403, name) for name in "cd"}
    assert isinstance(verdict(metadata, 7, 2, denied), EntryNotFoundError)
    assert isinstance(verdict(metadata, 7, 0, denied), BookieUnavailableError)


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ((0, 501, 506), BookieUnavailableError),
        ((502, 502, 502), 502),
        ((403, 404, 502), 404),
        ((502, 0, 404), BookieUnavailableError),
        ((403, 501, 502), BookieUnavailableError),
        ((403, 403, 0), BookieUnavailableError),
        ((402, 0, 402), BookieUnavailableError),
    ],
)
def test_it_is_worth_another_try_while_a_bookie_may_come_back(codes, kind):
    error = verdict(ledger((0, ENSEMBLE), quorums=(3, 2)), 7, 0, said(*codes))
    assert getattr(error, "status", type(error)) == kind


def test_with_quorums_of_two_one_denial_says_nothing_of_the_other_copy():
    metadata = ledger((0, ("a", "b")), quorums=(2, 2))
    error = verdict(
        metadata, 7, 3, {"a": BookieUnavailableError("a: refused the connection"), "b": status_error(403, "b")}
    )
    assert type(error) is BookieUnavailableError
    assert "a: refused the connection" in str(error)


def test_damage_is_told_once_every_other_copy_is_known_to_be_lost():
    metadata = ledger((0, ENSEMBLE), quorums=(3, 1))
    errors: dict[str, OffloadError] = {name: status_error(403, name) for name in "bc"}
    errors["a"] = IntegrityError("a: damaged")
    error = verdict(metadata, 7, 0, errors)
    assert isinstance(error, IntegrityError)
    assert str(error).startswith("entry 7:0: no bookie gave it (a: damaged; b: status 403")
    gone: dict[str, OffloadError] = {"c": BookieUnavailableError("c: gone")}
    assert type(verdict(metadata, 7, 0, errors | gone)) is BookieUnavailableError

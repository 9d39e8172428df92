"""One loop around every request to a store: what is tried again, for how long, and what is known afterwards.

The clients' own retries are off. They hide whether an earlier attempt may have been applied: that is the difference
between "it did not happen" and "nobody knows". And they count attempts, but know no deadline. What a client's
exceptions mean is told by `ClientErrors`: `s3_calls.py`, `gcs_calls.py`, `azure_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from offloader.errors import (
    BucketNotFoundError,
    FatalError,
    ObjectNotFoundError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    RetryableError,
    UploadGoneError,
)

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
REQUESTS_OF_A_CALL = 2  # a write, and a look what became of it

# Answers that say what the state is now, whatever became of earlier attempts.
_FINAL = (UploadGoneError, ObjectNotFoundError, PartRejectedError, BucketNotFoundError)


@dataclass(frozen=True, slots=True)
class ClientErrors:
    """How one client says that a request failed.

    `service`: whose answers they are, with an article's s (`S3's`). `raised`: what the client raises for refusals, and
    for answers that did not come; `foreign`: what it raises over an answer that is none of the service's.
    `is_passing`: the same request may succeed later. `may_have_happened`: it may have been applied. `typed`: our error
    for one of `raised`; its first argument is what was tried. `line`: what an exception says, in one line that may be
    shown.
    """

    service: str
    raised: tuple[type[Exception], ...]
    foreign: tuple[type[Exception], ...]
    is_passing: Callable[[BaseException], bool]
    may_have_happened: Callable[[BaseException], bool]
    typed: Callable[[str, BaseException], OffloadError]
    line: Callable[[BaseException], str] = str


class Calls:
    """Makes requests with retries for at most `deadline` seconds (an attempt that was begun is not interrupted)."""

    def __init__(self, url: str, deadline: float, errors: ClientErrors) -> None:
        self.url = url
        self.deadline = deadline
        self._errors = errors

    def read(self, what: str, work: Callable[[], T]) -> T:
        """A request that changes nothing."""
        return self._call(what, work, repeat_lost=True, write=False)

    def write(self, what: str, work: Callable[[], T]) -> T:
        """A request that may be repeated. OutcomeUnknownError: it may have been applied, and no answer came."""
        return self._call(what, work, repeat_lost=True, write=True)

    def write_once(self, what: str, work: Callable[[], T]) -> T:
        """A request that is not repeated once an attempt may have been applied."""
        return self._call(what, work, repeat_lost=False, write=True)

    def _call(self, what: str, work: Callable[[], T], *, repeat_lost: bool, write: bool) -> T:
        lost = False

        def again(e: BaseException) -> bool:
            nonlocal lost
            lost = lost or self._errors.may_have_happened(e)
            return self._errors.is_passing(e) and (repeat_lost or not lost)

        retrying = Retrying(
            retry=retry_if_exception(again),
            wait=wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
            stop=stop_after_delay(self.deadline),
            reraise=True,
        )
        try:
            return retrying(work)
        except self._errors.raised as e:
            error = self._errors.typed(f"{self.url}: {what}", e)
            if write and lost and not isinstance(error, _FINAL):
                line = self._errors.line(e)
                raise OutcomeUnknownError(f"{self.url}: {what}: may have happened, the answer was lost: {line}") from e
            raise error from e
        except self._errors.foreign as e:
            line = f"{type(e).__name__}: {self._errors.line(e)}"
            text = f"{self.url}: {what}: the answer is none of {self._errors.service} ({line}); check storage.endpoint"
            raise (OutcomeUnknownError if write else FatalError)(text) from e


def looked_back(write: str, look: Callable[[], T]) -> T:
    """What became of a write that may have happened. Raises OutcomeUnknownError if that cannot be seen."""
    try:
        return look()
    except (RetryableError, FatalError) as e:
        raise OutcomeUnknownError(f"{write}: {e}") from e

"""One loop around every request to S3: what is tried again, for how long, and what is known afterwards.

botocore's own retries are off. They hide whether an earlier attempt may have been applied: that is the difference
between "it did not happen" and "nobody knows". And they count attempts, but know no deadline. This loop retries what
botocore's standard mode retries, and what botocore leaves alone: bodies of GET that end early, 409 Conflict, and parts
that their checksum shows to be damaged on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    ObjectNotFoundError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    StoreFullError,
    StoreUnavailableError,
    UploadGoneError,
)

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0

DAMAGED_ON_THE_WAY = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "IncompleteBody"})
_INTERNAL = "InternalError"
REDIRECTED = "Redirected"  # the code of our own error, no store says so
_NOT_APPLIED = DAMAGED_ON_THE_WAY | {
    *("SlowDown", "ServiceUnavailable", "RequestTimeout", "RequestLimitExceeded", "BandwidthLimitExceeded"),
    *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "TooManyRequests"),
}
_NO_CREDENTIALS = (boto.NoCredentialsError, boto.PartialCredentialsError, boto.NoAuthTokenError, boto.ProfileNotFound)
_NOT_SENT = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)
# What boto3 raises when it reads an answer that is none of S3's. (RecursionError: redirects without end, where the
# environment gave it the endpoint.)
_NOT_S3 = (KeyError, ValueError, RecursionError, ResponseParserError)
_BROKEN = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError)

_BY_CODE: dict[str, tuple[type[OffloadError], str]] = {
    "NoSuchBucket": (BucketNotFoundError, "the bucket does not exist; create it or correct the root"),
    "NoSuchKey": (ObjectNotFoundError, "there is no such object"),
    "404": (ObjectNotFoundError, "there is no such object"),  # HEAD has no body for a code
    "XAdminUserNotFound": (AccessDeniedError, "the store does not know our access key; check the credentials"),
    "NoSuchUpload": (UploadGoneError, "the upload is gone"),
    "InvalidPart": (PartRejectedError, "a part is missing or is another one"),
    "InvalidPartOrder": (PartRejectedError, "the parts are not in order"),
    "EntityTooSmall": (PartRejectedError, "a part that is not the last is too small"),
    "AccessDenied": (AccessDeniedError, "the store refuses this call; check the credentials and the bucket's policy"),
    "RequestTimeTooSkewed": (
        FatalError,
        "this machine's clock and the store's differ by too much; set the clock (NTP)",
    ),
    "QuotaExceeded": (StoreFullError, "the quota is used up"),
    "XMinioAdminBucketQuotaExceeded": (StoreFullError, "the bucket's quota is used up"),
    "XMinioStorageFull": (StoreFullError, "the store has no room left"),
    REDIRECTED: (FatalError, "the endpoint only points elsewhere; correct storage.endpoint"),
    "EntityTooLarge": (FatalError, "the store refuses objects or parts of this size"),
}
# No 404: versitygw says 404 also to an unknown access key, and that must not look like an absent object.
_BY_STATUS: dict[int, tuple[type[OffloadError], str]] = {
    401: (AccessDeniedError, "the store does not accept our credentials"),
    403: (AccessDeniedError, "the store refuses this call; check the credentials and the bucket's policy"),
    507: (StoreFullError, "the store has no room left"),
}
# Answers that say what the state is now, whatever became of earlier attempts.
_FINAL = (UploadGoneError, ObjectNotFoundError, PartRejectedError, BucketNotFoundError)


class S3Calls:
    """Makes requests with retries for at most `deadline` seconds (an attempt that was begun is not interrupted)."""

    def __init__(self, url: str, deadline: float) -> None:
        self.url = url
        self.deadline = deadline

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
            lost = lost or _may_have_happened(e)
            return _is_passing(e) and (repeat_lost or not lost)

        retrying = Retrying(
            retry=retry_if_exception(again),
            wait=wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
            stop=stop_after_delay(self.deadline),
            reraise=True,
        )
        try:
            return retrying(work)
        except (boto.BotoCoreError, boto.ClientError) as e:
            error = _typed(f"{self.url}: {what}", e)
            if write and lost and not isinstance(error, _FINAL):
                raise OutcomeUnknownError(f"{self.url}: {what}: may have happened, the answer was lost: {e}") from e
            raise error from e
        except _NOT_S3 as e:
            text = f"{self.url}: {what}: the answer is none of S3's ({type(e).__name__}: {e}); check storage.endpoint"
            raise (OutcomeUnknownError if write else FatalError)(text) from e


def code_of(e: BaseException) -> str:
    """S3's error code, empty where the store said nothing."""
    return str(e.response.get("Error", {}).get("Code", "")) if isinstance(e, boto.ClientError) else ""


def status_of(e: BaseException) -> int:
    """The HTTP status, 0 where there was no answer."""
    return (
        int(e.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) if isinstance(e, boto.ClientError) else 0
    )


def _is_passing(e: BaseException) -> bool:
    if isinstance(e, _BROKEN):
        return True
    code, status = code_of(e), status_of(e)
    return (
        code == _INTERNAL
        or code in _NOT_APPLIED
        or status in (409, 429)
        or (status >= 500 and status not in (501, 507))
    )


def _may_have_happened(e: BaseException) -> bool:
    if isinstance(e, _NOT_SENT):
        return False
    if isinstance(e, _BROKEN):
        return True
    code, status = code_of(e), status_of(e)
    return code == _INTERNAL or (status in (500, 502, 504) and code not in _NOT_APPLIED)


def _typed(what: str, e: boto.BotoCoreError | boto.ClientError) -> OffloadError:
    if isinstance(e, _NO_CREDENTIALS):
        return AccessDeniedError(f"{what}: {e}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role")
    if isinstance(e, boto.CredentialRetrievalError) or _is_passing(e):
        return StoreUnavailableError(f"{what}: {e}")
    code, status = code_of(e), status_of(e)
    kind, advice = _BY_CODE.get(code) or _BY_STATUS.get(status) or (FatalError, "the store refuses this call")
    return kind(f"{what}: {advice} ({e})")

"""What boto3's exceptions mean: which may pass, which may have happened, and which of our errors they are.

Tried again is what botocore's standard mode retries, and what botocore leaves alone: bodies of GET that end early, 409
Conflict, and parts that their checksum shows to be damaged on the way.
"""

from __future__ import annotations

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    CredentialsExpiredError,
    FatalError,
    ObjectArchivedError,
    ObjectNotFoundError,
    OffloadError,
    PartRejectedError,
    StoreFullError,
    StoreUnavailableError,
    UploadGoneError,
)
from offloader.storage.calls import ClientErrors

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

_EXPIRED = (
    CredentialsExpiredError,
    "our credentials have expired; renew them in the shared credentials file, which is read again, or restart with new "
    "ones",
)

_BY_CODE: dict[str, tuple[type[OffloadError], str]] = {
    "NoSuchBucket": (BucketNotFoundError, "the bucket does not exist; create it or correct the root"),
    "NoSuchKey": (ObjectNotFoundError, "there is no such object"),
    "404": (ObjectNotFoundError, "there is no such object"),  # HEAD has no body for a code
    "XAdminUserNotFound": (AccessDeniedError, "the store does not know our access key; check the credentials"),
    "NoSuchUpload": (UploadGoneError, "the upload is gone"),
    "InvalidPart": (PartRejectedError, "a part is missing or is another one"),
    "InvalidPartOrder": (PartRejectedError, "the parts are not in order"),
    "EntityTooSmall": (PartRejectedError, "a part that is not the last is too small"),
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidAccessKeyId": (AccessDeniedError, "the store does not know our access key; check the credentials"),
    "InvalidToken": (AccessDeniedError, "the store does not know our session token; check the credentials"),
    "InvalidObjectState": (
        ObjectArchivedError,
        "the object is in an archive tier; restore it there, or move it to a class that can be read at once",
    ),
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


def _typed(what: str, e: BaseException) -> OffloadError:
    if isinstance(e, _NO_CREDENTIALS):
        return AccessDeniedError(f"{what}: {e}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role")
    if isinstance(e, boto.CredentialRetrievalError) or _is_passing(e):
        return StoreUnavailableError(f"{what}: {e}")
    code, status = code_of(e), status_of(e)
    kind, advice = _BY_CODE.get(code) or _BY_STATUS.get(status) or (FatalError, "the store refuses this call")
    return kind(f"{what}: {advice} ({e})")


S3 = ClientErrors("S3's", (boto.BotoCoreError, boto.ClientError), _NOT_S3, _is_passing, _may_have_happened, _typed)

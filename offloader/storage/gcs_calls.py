"""What the exceptions of Google's clients mean: which may pass, which may have happened, and which of our errors they
are.

Three libraries raise them: google-cloud-storage what the service answers, requests what became of the way there, and
google-auth what became of a token.
"""

from __future__ import annotations

from typing import Any

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from urllib3 import exceptions as urllib3

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    OffloadError,
    StoreUnavailableError,
)
from offloader.storage.calls import ClientErrors

LONGEST_TEXT = 400
HELP = "set GOOGLE_APPLICATION_CREDENTIALS, or run where a service account is attached"
_BROKEN = (requests.RequestException, urllib3.HTTPError, DataCorruption, InvalidResponse)
# A request that can never be made, or an answer that can never be read.
_USELESS = (requests.TooManyRedirects, requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)
_NO_JSON = requests.exceptions.JSONDecodeError
_NOT_SENT = (urllib3.NewConnectionError, urllib3.ConnectTimeoutError, urllib3.NameResolutionError, urllib3.ProxyError)
_PASSING = frozenset({408, 409, 410, 429})  # 410: of an upload in chunks, which begins anew
_FINAL_5XX = frozenset({501, 507})
_TOO_FAST = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})  # of 403, too

_BY_REASON: dict[str, tuple[type[OffloadError], str]] = {
    "retentionPolicyNotMet": (FatalError, "the bucket's retention policy forbids it: use a bucket without one"),
    "orgPolicyConstraintFailed": (
        FatalError,
        "a policy of the organization forbids it: change the bucket or the policy",
    ),
    "objectUnderActiveHold": (FatalError, "the object is held, or the bucket holds new ones: switch the holds off"),
}
_BY_STATUS: dict[int, tuple[type[OffloadError], str]] = {
    401: (AccessDeniedError, f"the store does not accept our credentials; {HELP}"),
    403: (AccessDeniedError, "the store refuses this call; check the credentials and the bucket's roles"),
    404: (BucketNotFoundError, "the bucket does not exist; create it or correct the root"),
    413: (FatalError, "the store refuses objects or parts of this size"),
}


def status_of(e: BaseException) -> int:
    """The HTTP status, 0 where there was no answer."""
    return int(e.code or 0) if isinstance(e, GoogleAPICallError) else 0


def reasons_of(e: BaseException) -> frozenset[str] | None:
    """The reasons that Google's error has; None: what answered does not speak as Google does."""
    answer: Any = getattr(e, "response", None)
    try:
        error = answer.json()["error"]
        if int(error["code"]) != status_of(e):
            return None
        return frozenset(str(each.get("reason", "")) for each in error.get("errors", ()))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def is_absent(e: BaseException) -> bool:
    """Whether Google says that what was asked for is not there: an ingress says 404, too, and knows nothing of it."""
    return status_of(e) == 404 and reasons_of(e) is not None


def is_conflict(e: BaseException) -> bool:
    """Whether a condition of ours refused a write. Policies of an organization say 412, too, and are none."""
    return status_of(e) == 412 and "conditionNotMet" in (reasons_of(e) or ())


def _is_passing(e: BaseException) -> bool:
    if isinstance(e, GoogleAuthError):  # the library calls nothing retryable that became of the way to a token
        return bool(e.retryable) or isinstance(e, TransportError) or isinstance(e.__cause__, TransportError)
    if isinstance(e, (*_USELESS, _NO_JSON)):
        return False
    if isinstance(e, _BROKEN):
        return True
    status = status_of(e)
    if status == 403:
        return bool(_TOO_FAST & (reasons_of(e) or frozenset()))
    return status in _PASSING or (status >= 500 and status not in _FINAL_5XX)


def _may_have_happened(e: BaseException) -> bool:
    if isinstance(e, (GoogleAuthError, requests.ConnectTimeout, *_USELESS)):
        return False
    if isinstance(e, _BROKEN):
        return not isinstance(_cause_of(e), _NOT_SENT)
    return status_of(e) >= 500 and status_of(e) not in _FINAL_5XX


def _cause_of(e: BaseException) -> object:
    """What urllib3 says of a connection that could not be made; requests and its pool wrap it."""
    pool = e.args[0] if e.args else None
    return getattr(pool, "reason", None) or pool


def _typed(what: str, e: BaseException) -> OffloadError:
    text = " ".join(str(e).split())[:LONGEST_TEXT]
    if isinstance(e, DefaultCredentialsError):
        return AccessDeniedError(f"{what}: {text}; {HELP}")
    if _is_passing(e):
        return StoreUnavailableError(f"{what}: {text}")
    if isinstance(e, GoogleAuthError):
        return AccessDeniedError(f"{what}: no token for the store: {text}; {HELP}")
    if isinstance(e, requests.TooManyRedirects):
        where = e.response.headers.get("location", "nowhere") if e.response is not None else "nowhere"
        return FatalError(f"{what}: the endpoint only points elsewhere; correct storage.endpoint (to {where})")
    reasons, status = reasons_of(e), status_of(e)
    if isinstance(e, _NO_JSON) or (status == 404 and reasons is None):
        return FatalError(f"{what}: the answer is none of Google's ({text}); check storage.endpoint")
    named = next((_BY_REASON[reason] for reason in reasons or () if reason in _BY_REASON), None)
    kind, advice = named or _BY_STATUS.get(status) or (FatalError, "the store refuses this call")
    return kind(f"{what}: {advice} ({text})")


GOOGLE = ClientErrors(
    "Google's",
    (GoogleAPICallError, GoogleAuthError, *_BROKEN),
    (KeyError, ValueError, TypeError, AttributeError),
    _is_passing,
    _may_have_happened,
    _typed,
)

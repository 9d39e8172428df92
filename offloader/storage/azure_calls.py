"""What the exceptions of Azure's client mean: which may pass, which may have happened, and which of our errors they
are."""

from __future__ import annotations

import re
from typing import Any

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
    ServiceResponseError,
)
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    ObjectNotFoundError,
    OffloadError,
    PartRejectedError,
    StoreFullError,
    StoreUnavailableError,
)
from offloader.storage.calls import ClientErrors

LONGEST_MESSAGE = 400
_DAMAGED_ON_THE_WAY = frozenset({"Md5Mismatch", "Crc64Mismatch"})
_NOT_APPLIED = _DAMAGED_ON_THE_WAY | {"ServerBusy", "TooManyRequests"}
_CONFLICTS = frozenset({"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"})
_SIGNATURE = re.compile(r"(sig=)[^&\s'\"]+")
_FOREIGN = (KeyError, ValueError)  # over what is none of Azure's

_BY_CODE: dict[str, tuple[type[OffloadError], str]] = {
    "ContainerNotFound": (BucketNotFoundError, "the container does not exist; create it or correct the root"),
    "BlobNotFound": (ObjectNotFoundError, "there is no such object"),
    "ResourceNotFound": (BucketNotFoundError, "there is no such account or container; correct the root"),
    "InvalidBlockList": (PartRejectedError, "a part is missing (Azure keeps one for a week) or is another one"),
    "InvalidBlobOrBlock": (PartRejectedError, "the name has blocks of another program"),
    "AuthenticationFailed": (
        AccessDeniedError,
        "the store does not accept our credentials; check them, and this machine's clock (NTP)",
    ),
    "LeaseIdMissing": (FatalError, "somebody holds a lease on the object; end it"),
    "SnapshotsPresent": (FatalError, "the object has snapshots, which would go with it; delete them first"),
    "BlobImmutableDueToPolicy": (FatalError, "a policy protects the object from changes"),
    "BlobArchived": (FatalError, "the object is in the archive tier; move it to hot, cool or cold first"),
    "BlobBeingRehydrated": (FatalError, "the object is on its way out of the archive tier; wait until it is there"),
    "InvalidMetadata": (FatalError, "Azure takes letters, digits and _ in names of metadata"),
}
_BY_STATUS: dict[int, tuple[type[OffloadError], str]] = {
    401: (AccessDeniedError, "the store does not accept our credentials"),
    403: (AccessDeniedError, "the store refuses this call; check the credentials, their roles and the firewall"),
    507: (StoreFullError, "the store has no room left"),
}


def code_of(e: BaseException) -> str:
    """Azure's error code, empty where the store said nothing."""
    answer: Any = e.response if isinstance(e, HttpResponseError) else None
    return "" if answer is None else str(answer.headers.get("x-ms-error-code", ""))


def status_of(e: BaseException) -> int:
    """The HTTP status, 0 where there was no answer."""
    return int(e.status_code or 0) if isinstance(e, HttpResponseError) else 0


def is_conflict(e: BaseException) -> bool:
    """Whether a condition of ours refused a write: another object is there than the one that was meant."""
    return code_of(e) in _CONFLICTS


def hidden(text: str) -> str:
    """A text without the secret of a shared access signature."""
    return _SIGNATURE.sub(r"\1***", text)


def line_of(e: BaseException) -> str:
    """What an exception says, in one line."""
    said = str(getattr(e, "message", "") or e) or type(e).__name__
    if status_of(e):
        said = said.partition("\n")[0] + f" ({status_of(e)} {code_of(e)})".replace(" )", ")")
    if _is_foreign(e):
        said = f"the answer is none of Azure's: {said}; check storage.endpoint"
    return hidden(" ".join(said.split()))[:LONGEST_MESSAGE]


def _was_not_sent(e: BaseException) -> bool:
    """Whether no connection was made. `ServiceRequestError` alone proves nothing: it is also a TLS connection's end
    while an answer is awaited."""
    if isinstance(e, ServiceRequestTimeoutError):
        return True
    cause = e.inner_exception if isinstance(e, ServiceRequestError) else None
    inner = cause.args[0] if cause is not None and cause.args else None
    reasons = (cause, inner, getattr(inner, "reason", None))
    return any(isinstance(reason, (NewConnectionError, ConnectTimeoutError)) for reason in reasons)


def _is_broken(e: BaseException) -> bool:
    return isinstance(e, (ServiceRequestError, ServiceResponseError, IncompleteReadError))


def _is_foreign(e: BaseException) -> bool:
    """Whether an answer, if it is one, is not Azure's, which has a code for whatever it does not do."""
    if _is_broken(e):
        return False
    status = status_of(e)
    return isinstance(e, DecodeError) or 200 <= status < 400 or (status == 404 and not code_of(e))


def _is_passing(e: BaseException) -> bool:
    if _is_broken(e):
        return True
    code, status = code_of(e), status_of(e)
    return code in _NOT_APPLIED or status in (408, 429) or (status >= 500 and status not in (501, 505, 507))


def _may_have_happened(e: BaseException) -> bool:
    if _was_not_sent(e):
        return False
    if _is_broken(e):
        return True
    status = status_of(e)
    return 200 <= status < 300 or (status in (500, 502, 504) and code_of(e) not in _NOT_APPLIED)


def _typed(what: str, e: BaseException) -> OffloadError:
    line, code, status = line_of(e), code_of(e), status_of(e)
    if _is_passing(e):
        return StoreUnavailableError(f"{what}: {line}")
    if isinstance(e, ClientAuthenticationError) and not status:
        return AccessDeniedError(
            f"{what}: {line}; set storage.options or AZURE_STORAGE_CONNECTION_STRING, log in, or use a managed identity"
        )
    if _is_foreign(e):
        return FatalError(f"{what}: {line}")
    kind, advice = _BY_CODE.get(code) or _BY_STATUS.get(status) or (FatalError, "the store refuses this call")
    return kind(f"{what}: {advice} ({line})")


AZURE = ClientErrors("Azure's", (AzureError,), _FOREIGN, _is_passing, _may_have_happened, _typed, line_of)

"""What the exceptions of fsspec's file systems mean: each has some of its own, of which many tell only a status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    RetryableError,
    StoreUnavailableError,
)

LONGEST_MESSAGE = 400
_REFUSALS: dict[int, tuple[type[OffloadError], str]] = {
    400: (FatalError, "the store refuses the request; check storage.options"),
    401: (AccessDeniedError, "the store refuses our credentials"),
    403: (AccessDeniedError, "the store refuses our credentials for this call"),
    404: (BucketNotFoundError, "there is no such bucket or container; create it, or correct storage.root"),
}


@contextmanager
def translated(what: str, *, write: bool = False) -> Iterator[None]:
    """Raise our errors for theirs. One that we do not understand is StoreUnavailableError, and OutcomeUnknownError in a
    write, also where only the look at what was written fails."""
    try:
        yield
    except RetryableError as e:
        if write:
            raise OutcomeUnknownError(f"{what}: {e}") from e
        raise
    except OffloadError:
        raise
    except Exception as e:
        usual = OutcomeUnknownError if write else StoreUnavailableError
        kind, hint = _REFUSALS.get(_status(e), (usual, ""))
        raise kind(": ".join(filter(None, [what, hint, _line(e)]))) from e


def _status(e: Exception) -> int:
    """The HTTP status, 0 where there is none."""
    if isinstance(e, FileNotFoundError):
        return 404
    if isinstance(e, PermissionError):
        return 403
    code = str(getattr(e, "status_code", None) or getattr(e, "code", None) or 0)
    return int(code) if code.isdecimal() else 0


def _line(e: Exception) -> str:
    return " ".join(f"{type(e).__name__}: {e}".split())[:LONGEST_MESSAGE]

"""Errors outside our tree in the work for one topic: a defect of ours, or a peer that does what nobody foresaw. They
are that topic's trouble, never the application's end. This is the one place where they are caught."""

from __future__ import annotations

import logging
from types import TracebackType

from offloader.errors import OffloadError, UnforeseenError

log = logging.getLogger(__name__)


def foreseen(error: Exception) -> OffloadError:
    """The error, or one of our tree that stands for it."""
    if isinstance(error, OffloadError):
        return error
    log.error(
        "an error that nobody foresaw: %s: %s", type(error).__name__, error, exc_info=error, extra={"see": "unforeseen"}
    )
    return UnforeseenError(f"{type(error).__name__}: {error}")


class _OnlyForeseen:
    """Raises only errors of our tree."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and (found := foreseen(error)) is not error:
            raise found from error


only_foreseen = _OnlyForeseen()  # entered for each topic of each round: it costs next to nothing

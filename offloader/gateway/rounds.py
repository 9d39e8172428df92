"""What a gateway does again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from offloader.errors import OffloadError

log = logging.getLogger(__name__)


async def each(interval_ms: int, work: Callable[[], Awaitable[Sequence[OffloadError]]]) -> None:
    """Until it is cancelled. Whatever goes wrong, the next round comes."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            tell(await work())
        except Exception:
            log.exception("gateway: a round failed", extra={"see": "gateway-defect"})


def tell(errors: Sequence[OffloadError]) -> None:
    """What went wrong is tried again with the next round."""
    for error in errors:
        log.warning("gateway: %s", error, extra={"see": "gateway-waits"})

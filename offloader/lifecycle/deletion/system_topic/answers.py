"""What is answered to a message of the system topic, once its evidence was looked at. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage


class MessageVerdict(StrEnum):
    """All but `FAILED` are successes: the message is acknowledged."""

    MARKED = "marked"  # a candidate like any other; or it was one already
    STILL_IN_USE = "still in use"
    DOES_NOT_MATCH = "does not match"
    ALREADY_GONE = "already gone"
    INVALID = "invalid"
    FAILED = "failed"  # nobody could say: it is looked at again later


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """`why`: for people."""

    verdict: MessageVerdict
    why: str = ""


ExamineAll = Callable[[Sequence[PendingDeleteMessage]], Sequence[MessageAnswer]]
"""One answer for each, in their order: for evidence that is cheaper for many than for each. Raises OffloadError: nobody
could say anything of any of them."""

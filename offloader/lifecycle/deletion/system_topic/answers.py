"""What is answered to a message of the system topic, once its evidence was looked at. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from offloader.lifecycle.deletion.demand import DeleteLedgerPayload
from offloader.lifecycle.deletion.records import DeletionAnswer, LedgerComponent
from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage


class MessageVerdict(StrEnum):
    """All but `FAILED` are successes: the message is acknowledged."""

    MARKED = "marked"  # a candidate like any other; or it was one already
    REQUESTED = "requested"  # it may hold data, and waits until an operator confirms it
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


VERDICTS = {
    DeletionAnswer.STILL_IN_USE: MessageVerdict.STILL_IN_USE,
    DeletionAnswer.DOES_NOT_MATCH: MessageVerdict.DOES_NOT_MATCH,
    DeletionAnswer.ALREADY_GONE: MessageVerdict.ALREADY_GONE,
    DeletionAnswer.INVALID: MessageVerdict.INVALID,
}
"""What the four successes of a request are called here."""
BY = "system topic"
"""Who asks, as the records have it."""


def payload_of(message: PendingDeleteMessage) -> DeleteLedgerPayload:
    """Its topic is compared with the record, which bears all the ways to name one. A schema's ledger may be asked for
    by its topic alone."""
    schema = message.ledger_component is LedgerComponent.SCHEMA_STORAGE
    return DeleteLedgerPayload(
        message.ledger_id,
        message.ledger_type,
        "",
        None if schema and not message.schema_id else message.ledger_component,
        message.schema_id,
        message.cursor_name,
        message.offload_context,
    )


ExamineAll = Callable[[Sequence[PendingDeleteMessage]], Sequence[MessageAnswer]]
"""One answer for each, in their order: for evidence that is cheaper for many than for each. Raises OffloadError: nobody
could say anything of any of them."""

"""One removal of a subscription as the commands tell it: how it stands, and who does what next."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.cli.command import CommandSession
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.explaining.words import moment_text, size_text
from offloader.lifecycle.topics.cursors.configured import removal_timing
from offloader.lifecycle.topics.cursors.machine import due_at, is_due
from offloader.lifecycle.topics.cursors.records import CursorRemoval, RemovalState
from offloader.lifecycle.topics.cursors.service import RemovalPlan
from offloader.model import TopicName

PURGE = "`offloader topics cursors purge --yes`"


@dataclass(frozen=True, slots=True)
class RemovalTeller:
    """`by_application`: whether the application runs second phases, too."""

    session: CommandSession
    timing: DeletionTiming
    by_application: bool

    @classmethod
    def of(cls, session: CommandSession) -> RemovalTeller:
        """By the configuration."""
        section = session.config.lifecycle
        runs = section.topic_two_phase_deletion_enabled or section.remove_cursors_after_ms is not None
        return cls(session, removal_timing(section), runs)

    def tell(self, record: CursorRemoval, says: tuple[str, ...] = (), comes: str = "") -> None:
        """`says`: what an undo would not bring back as it was. `comes`: what the next step is, where not the usual."""
        due = moment_text(due_at(record, self.timing)) if record.is_in_flight else None
        ended = moment_text(record.ended_at) if record.has_ended else None
        comes = comes or self._next(record, due)
        when = f"since {ended}" if ended else f"on {moment_text(record.marked_at)} by {record.marked_by}"
        stands = record.state if ended or record.state is RemovalState.MARKED else f"{record.state}, marked"
        message = f"{record.topic}: {record.subscription} is {stands} {when}; it held back {size_text(record.held)}"
        fields = {
            "message": "; ".join(filter(None, (message, record.reason, comes))),
            "topic": str(record.topic), "subscription": record.subscription, "state": str(record.state),
            "bytes": record.held, "marked": moment_text(record.marked_at), "by": record.marked_by, "due": due,
            "ended": ended, "next": comes, "reason": record.reason, "undo": says,
        }  # fmt: skip
        self.session.output.lines([str(fields["message"]), *(f"  an undo: {one}" for one in says)], fields)

    def tell_plan(self, topic: TopicName, name: str, plan: RemovalPlan) -> None:
        """What a removal would come to."""
        says = plan.undo.says if plan.undo is not None else ()
        message = (
            f"{topic}: {name} would not be removed: {plan.objection}"
            if plan.objection
            else f"{topic}: {name} would be marked; it holds back {size_text(plan.held)}. --yes does it"
        )
        fields = {
            "message": message, "topic": str(topic), "subscription": name, "state": "none", "bytes": plan.held,
            "marked": None, "by": None, "due": None, "ended": None, "next": "", "reason": plan.objection, "undo": says,
        }  # fmt: skip
        self.session.output.lines([message, *(f"  an undo: {one}" for one in says)], fields)

    def _next(self, record: CursorRemoval, due: str | None) -> str:
        """Who does what next; empty: nothing is left to do."""
        if record.state is RemovalState.GIVEN_UP:
            return "`offloader topics cursors undo --yes` takes it back; after that it can be removed anew"
        if record.state is RemovalState.UNDOING:
            return "its undo was interrupted: call it again"
        if due is None:
            return ""
        who = "the application looks again and removes it" if self.by_application else f"{PURGE} removes it"
        return (
            f"it is due: {who}"
            if is_due(record, self.session.dependencies.clock_ms(), self.timing)
            else (f"{who}, not before {due}")
        )

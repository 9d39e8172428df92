"""Records of deletions: what was written is read back; what is damaged, or newer, is told apart."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FormatVersionError
from offloader.lifecycle.deletion.records import (
    DELETION,
    SWITCH,
    DeletionEvidence,
    DeletionOffloadContext,
    DeletionProof,
    DeletionState,
    DeletionSwitch,
    GuardKind,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.metadata.envelope import wrap

from .support import EVIDENCE, NODE, candidate, i64, records

NEWER = b"\xfa\x3e\x05hello\xf8\x3f\x07"  # fields 1007 (text) and 1023 (number)


@given(records)
def test_a_record_survives(record: PendingDeleteLedgerInfo):
    assert DELETION.decode("key", DELETION.encode("t", record)) == record


@given(records)
def test_fields_of_a_newer_version_are_kept_when_a_record_is_rewritten(record: PendingDeleteLedgerInfo):
    newer = replace(record, unknown_fields=NEWER)
    assert DELETION.decode("key", DELETION.encode("t", newer)).unknown_fields == NEWER


@given(st.builds(DeletionSwitch, st.booleans(), i64))
def test_a_switch_survives(switch: DeletionSwitch):
    assert SWITCH.decode("key", SWITCH.encode("t", switch)) == switch


@given(records, st.data())
def test_damage_is_told(record: PendingDeleteLedgerInfo, data: st.DataObject):
    sound = DELETION.encode("t", record)
    at = data.draw(st.integers(0, len(sound) - 1))
    damaged = sound[:at] + bytes([sound[at] ^ 1 << data.draw(st.integers(0, 7))]) + sound[at + 1 :]
    with pytest.raises(DamagedRecordError):
        DELETION.decode("key", damaged)


def test_another_kind_of_record_is_damage():
    switch, record = SWITCH.encode("t", DeletionSwitch(True, 1)), DELETION.encode("t", candidate())
    with pytest.raises(DamagedRecordError, match="does not belong here"):
        DELETION.decode("key", switch)
    with pytest.raises(DamagedRecordError, match="does not belong here"):
        SWITCH.decode("key", record)


@pytest.mark.parametrize("field", ["ledger_type", "ledger_component", "state", "answer"])
def test_a_word_of_a_newer_version_is_no_damage(field: str):
    message = pb.PendingDeleteLedgerInfo(ledger_type="LEDGER", ledger_component="SCHEMA_STORAGE", state="marked")
    message.evidence.proof = "passed by"
    setattr(message, field, "something new")
    with pytest.raises(FormatVersionError):
        DELETION.decode("key", wrap("t", pb.Body(deletion=message)))


def test_a_ledger_in_both_places_has_two_records():
    offloaded = candidate(
        ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=DeletionOffloadContext("9b1c", "aws-s3")
    )
    assert candidate().name == "LEDGER-00000000000000000007"
    assert offloaded.name == "OFFLOAD_LEDGER-00000000000000000007-9b1c"
    assert candidate().is_valid
    assert offloaded.is_valid


def test_the_password_is_in_no_text():
    assert "metadata" not in repr(NODE)
    assert "metadata" not in repr(candidate())


@pytest.mark.parametrize(
    "record",
    [
        candidate(-1),
        candidate(ledger_type=LedgerType.OFFLOAD_LEDGER),
        candidate(offload_context=DeletionOffloadContext("9b1c")),
        candidate(ledger_type=LedgerType.OFFLOAD_LEDGER, offload_context=DeletionOffloadContext("../x")),
        candidate(evidence=replace(EVIDENCE, referee="")),
        candidate(evidence=replace(EVIDENCE, referee_version=None)),
        candidate(evidence=replace(EVIDENCE, proof=DeletionProof.REFEREE_ABSENT)),
    ],
)
def test_a_record_that_lacks_what_a_deletion_needs_is_invalid(record: PendingDeleteLedgerInfo):
    assert not record.is_valid


@given(records)
def test_every_state_is_in_flight_or_an_end_or_waits_for_an_operator(record: PendingDeleteLedgerInfo):
    waits = record.state in (DeletionState.GIVEN_UP, DeletionState.UNDOING)
    assert record.is_in_flight + record.has_ended + waits == 1


def test_each_proof_has_its_guard():
    assert all(DeletionEvidence(proof, "/x", 1).guard in GuardKind for proof in DeletionProof)
    assert EVIDENCE.guard is GuardKind.CHECK
    assert DeletionEvidence(DeletionProof.REFEREE_ABSENT, "/x").guard is GuardKind.PROVE_ABSENCE
    assert DeletionEvidence(DeletionProof.ON_DEMAND, "/x", 1).guard is GuardKind.REWRITE
    assert DeletionEvidence(DeletionProof.CONFIRMED, "/x", 1).guard is GuardKind.CHECK
    assert DeletionEvidence(DeletionProof.CONFIRMED, "/x").guard is GuardKind.PROVE_ABSENCE

"""Records of deletions for tests: one, and any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from offloader.lifecycle.deletion.machine import (
    FailedLook,
    GoneLedger,
    ReferencedLedger,
    UnprovenLedger,
    UnreferencedLedger,
)
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionEvidence,
    DeletionOffloadContext,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from tests.times import DAY_MS

NOW = 1_767_225_600_000
NODE = LedgerNode(b"the ledger's metadata", 3, NOW - 9 * DAY_MS)
EVIDENCE = DeletionEvidence(
    DeletionProof.PASSED_BY, "/managed-ledgers/acme/orders/persistent/placed", 17, ("its list has 12",)
)

i64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=12)
plain_nodes = st.builds(LedgerNode, st.binary(max_size=20), i64, i64)
nodes = plain_nodes | st.builds(
    LedgerNode, st.binary(max_size=20), i64, i64, below=st.lists(st.tuples(text, plain_nodes), max_size=2).map(tuple)
)
evidences = st.builds(
    DeletionEvidence, st.sampled_from(DeletionProof), text, st.none() | i64, st.lists(text, max_size=3).map(tuple)
)
contexts = st.builds(DeletionOffloadContext, text, text, st.lists(st.tuples(text, text), max_size=2).map(tuple))
records = st.builds(
    PendingDeleteLedgerInfo,
    i64,
    st.sampled_from(LedgerType),
    st.sampled_from(LedgerComponent),
    text,
    nodes,
    evidences,
    st.sampled_from(DeletionState),
    i64,
    text,
    i64,
    i64,
    st.booleans(),
    st.none() | st.sampled_from(DeletionAnswer),
    text,
    i64,
    text,
    text,
    st.none() | contexts,
    text,
    text,
    st.booleans(),
    i64,
    i64,
)
looks = st.one_of(
    st.builds(GoneLedger),
    st.builds(ReferencedLedger, text),
    st.builds(UnprovenLedger, text),
    st.builds(FailedLook, text),
    st.builds(
        UnreferencedLedger,
        st.just(NODE) | st.just(replace(NODE, version=4)) | nodes,
        st.just(EVIDENCE) | evidences,
        st.integers(0, 9 * DAY_MS),
        st.integers(NOW, NOW + 9 * DAY_MS) | i64,
        st.booleans(),
        st.booleans(),
    ),
)


def candidate(ledger: int = 7, **fields: Any) -> PendingDeleteLedgerInfo:
    """A data ledger that was marked now."""
    info = PendingDeleteLedgerInfo(
        ledger,
        LedgerType.LEDGER,
        LedgerComponent.MANAGED_LEDGER,
        "acme/orders/persistent/placed",
        NODE,
        EVIDENCE,
        DeletionState.MARKED,
        NOW,
        "scan",
    )
    return replace(info, **fields)

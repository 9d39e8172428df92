"""Records of deletions, to and from bytes: pure, no I/O."""

from __future__ import annotations

from offloader._proto import metadata_pb2 as pb
from offloader.bookkeeper.nodes import AclEntry
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionEvidence,
    DeletionOffloadContext,
    DeletionProof,
    DeletionState,
    DeletionSwitch,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.value_codec import damage_of, unknown_fields, word


def encode_deletion(token: str, info: PendingDeleteLedgerInfo) -> bytes:
    """A record's bytes."""
    message = pb.PendingDeleteLedgerInfo(
        ledger_id=info.ledger_id,
        ledger_type=info.ledger_type,
        ledger_component=info.ledger_component,
        topic_name=info.topic_name,
        cursor_name=info.cursor_name,
        schema_id=info.schema_id,
        offload_context=None if info.offload_context is None else _context_message(info.offload_context),
        node=_node_message(info.node),
        evidence=_evidence_message(info.evidence),
        state=info.state,
        marked_at=info.marked_at,
        marked_by=info.marked_by,
        tries=info.tries,
        next_at=info.next_at,
        closing=info.closing,
        answer=info.answer or "",
        reason=info.reason,
        ended_at=info.ended_at,
        object_key=info.object_key,
        upload=info.upload,
        in_doubt=info.in_doubt,
        switch=info.switch,
    )
    message.MergeFromString(info.unknown_fields)
    return wrap(token, pb.Body(deletion=message))


def decode_deletion(key: str, data: bytes) -> PendingDeleteLedgerInfo:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    m = unwrap_kind(key, data, "deletion").body.deletion
    with damage_of(key):
        return PendingDeleteLedgerInfo(
            ledger_id=m.ledger_id,
            ledger_type=word(LedgerType, m.ledger_type),
            ledger_component=word(LedgerComponent, m.ledger_component),
            topic_name=m.topic_name,
            node=_read_node(m.node),
            evidence=_read_evidence(m.evidence),
            state=word(DeletionState, m.state),
            marked_at=m.marked_at,
            marked_by=m.marked_by,
            tries=m.tries,
            next_at=m.next_at,
            closing=m.closing,
            answer=word(DeletionAnswer, m.answer) if m.answer else None,
            reason=m.reason,
            ended_at=m.ended_at,
            cursor_name=m.cursor_name,
            schema_id=m.schema_id,
            offload_context=_read_context(m.offload_context) if m.HasField("offload_context") else None,
            object_key=m.object_key,
            upload=m.upload,
            in_doubt=m.in_doubt,
            switch=m.switch,
            unknown_fields=unknown_fields(m),
        )


def encode_switch(token: str, switch: DeletionSwitch) -> bytes:
    """A switch's bytes."""
    return wrap(token, pb.Body(deletion_switch=pb.DeletionSwitch(on=switch.on, at=switch.at)))


def decode_switch(key: str, data: bytes) -> DeletionSwitch:
    """The switch that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    m = unwrap_kind(key, data, "deletion_switch").body.deletion_switch
    return DeletionSwitch(m.on, m.at)


def _node_message(node: LedgerNode) -> pb.LedgerNode:
    acl = (pb.NodePermission(permissions=one[0], scheme=one[1], identity=one[2]) for one in node.acl)
    below = (pb.NodeBelow(name=name, node=_node_message(one)) for name, one in node.below)
    return pb.LedgerNode(data=node.data, version=node.version, ctime=node.ctime, acl=acl, below=below)


def _read_node(m: pb.LedgerNode) -> LedgerNode:
    acl = tuple(AclEntry(one.permissions, one.scheme, one.identity) for one in m.acl)
    below = tuple((one.name, _read_node(one.node)) for one in m.below)
    return LedgerNode(m.data, m.version, m.ctime, acl, below)


def _evidence_message(evidence: DeletionEvidence) -> pb.DeletionEvidence:
    return pb.DeletionEvidence(
        proof=evidence.proof,
        referee=evidence.referee,
        referee_version=evidence.referee_version,
        says=evidence.says,
        facts=evidence.facts,
    )


def _read_evidence(m: pb.DeletionEvidence) -> DeletionEvidence:
    version = m.referee_version if m.HasField("referee_version") else None
    return DeletionEvidence(word(DeletionProof, m.proof), m.referee, version, tuple(m.says), tuple(m.facts))


def _context_message(context: DeletionOffloadContext) -> pb.DeletionOffloadContext:
    metadata = (pb.Property(key=key, value=value) for key, value in context.driver_metadata)
    return pb.DeletionOffloadContext(uuid=context.uuid, driver_name=context.driver_name, driver_metadata=metadata)


def _read_context(m: pb.DeletionOffloadContext) -> DeletionOffloadContext:
    return DeletionOffloadContext(m.uuid, m.driver_name, tuple((p.key, p.value) for p in m.driver_metadata))

"""Records of deletions, to and from bytes: pure, no I/O."""

from __future__ import annotations

from offloader._proto import metadata_pb2 as pb
from offloader.bookkeeper.nodes import AclEntry
from offloader.lifecycle.deletion.records import (
    DeletionEvidence,
    DeletionOffloadContext,
    DeletionSwitch,
    LedgerNode,
    PendingDeleteLedgerInfo,
)
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.message_codec import add_messages, message_of, read_value
from offloader.metadata.value_codec import damage_of, unknown_fields


def encode_deletion(token: str, info: PendingDeleteLedgerInfo) -> bytes:
    """A record's bytes."""
    message = message_of(info)
    message.MergeFromString(info.unknown_fields)
    return wrap(token, pb.Body(deletion=message))


def decode_deletion(key: str, data: bytes) -> PendingDeleteLedgerInfo:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    message = unwrap_kind(key, data, "deletion").body.deletion
    with damage_of(key):
        return read_value(PendingDeleteLedgerInfo, message, unknown_fields=unknown_fields(message))


def encode_switch(token: str, switch: DeletionSwitch) -> bytes:
    """A switch's bytes."""
    return wrap(token, pb.Body(deletion_switch=message_of(switch)))


def decode_switch(key: str, data: bytes) -> DeletionSwitch:
    """The switch that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    return read_value(DeletionSwitch, unwrap_kind(key, data, "deletion_switch").body.deletion_switch)


add_messages(
    {
        DeletionEvidence: pb.DeletionEvidence,
        DeletionOffloadContext: pb.DeletionOffloadContext,
        DeletionSwitch: pb.DeletionSwitch,
        LedgerNode: pb.LedgerNode,
        PendingDeleteLedgerInfo: pb.PendingDeleteLedgerInfo,
    },
    {
        AclEntry: (
            lambda entry: pb.NodePermission(**entry._asdict()),
            lambda m: AclEntry(m.permissions, m.scheme, m.identity),
        ),
        tuple[str, LedgerNode]: (
            lambda below: pb.NodeBelow(name=below[0], node=message_of(below[1])),
            lambda m: (m.name, read_value(LedgerNode, m.node)),
        ),
    },
)

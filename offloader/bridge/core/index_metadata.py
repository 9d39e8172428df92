"""What a bridged ledger's index says of the ledger itself: BookKeeper's own record, or a small one of ours. Pure."""

from __future__ import annotations

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bookkeeper.model import DigestType, LedgerMetadata
from offloader.errors import IntegrityError

OWNER = "pulsar/managed-ledger"  # whose ledger it is: Pulsar's name of the topic, `tenant/ns/persistent/topic`
_OURS = {"application": b"pulsar", "component": b"managed-ledger"}


def index_metadata(last: int, length: int, managed_ledger: str, created_ms: int, known: LedgerMetadata | None) -> bytes:
    """The encoded LedgerMetadataFormat of a closed ledger with entries 0 to `last`, together `length` bytes.

    `known`: BookKeeper's metadata of it, None where they are gone; they are kept but for what nobody needs to read
    what is offloaded (password, token). `created_ms` counts where they say none. Raises IntegrityError where
    BookKeeper says that the ledger has another end or length: what we hold then is not all of it.
    """
    if known is not None and known.closed and (known.last_entry, known.length) != (last, length):
        raise IntegrityError(
            f"BookKeeper's ledger ends with entry {known.last_entry} and has {known.length} bytes, the archive's with "
            f"entry {last} and {length}"
        )
    message = _shape(known)
    message.length, message.lastEntryId, message.state = length, last, LedgerMetadataFormat.CLOSED
    created = None if known is None else known.created_ms
    message.ctime = created_ms if created is None else created
    custom = {} if known is None else dict(known.custom)
    for key, value in sorted(({**_OURS, OWNER: managed_ledger.encode()} | custom).items()):
        message.customMetadata.add(key=key, value=value)
    return message.SerializeToString(deterministic=True)


def _shape(known: LedgerMetadata | None) -> LedgerMetadataFormat:
    if known is None:
        return LedgerMetadataFormat(
            quorumSize=1, ensembleSize=1, ackQuorumSize=1, digestType=LedgerMetadataFormat.DigestType.CRC32C
        )
    message = LedgerMetadataFormat(
        quorumSize=known.write_quorum,
        ensembleSize=known.ensemble_size,
        ackQuorumSize=known.ack_quorum,
        digestType=DigestType(known.digest).name,
    )
    for fragment in known.fragments:
        message.segment.add(ensembleMember=fragment.ensemble, firstEntryId=fragment.first_entry)
    return message

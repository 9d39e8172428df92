"""The one error tree.

Four branches say what a caller may do: try again (`RetryableError`), give up (`FatalError`), find out what happened
(`OutcomeUnknownError`: nothing is given up or cleaned up because of it, the same is tried again), or stop and tell a
human (`IntegrityError`). What is in none of them is an answer: whoever asked knows what it means. A message is one line
that says what is wrong and, where the reader can do something, what to do.
"""

from enum import Enum, auto


class OffloadError(Exception):
    """Base of every error that this product raises on purpose."""


class RetryableError(OffloadError):
    """It did not happen, and may well happen later: wait with back-off and try again."""


class FatalError(OffloadError):
    """It did not happen and will not, until somebody changes something."""


class OutcomeUnknownError(OffloadError):
    """It may have happened. Read back and compare before deciding; never clean up because of it."""


class IntegrityError(OffloadError):
    """Bytes or records are not what they must be."""


class UnforeseenError(FatalError):
    """An error outside this tree: a defect of ours, or a peer that does what nobody foresaw."""


class ConfigError(FatalError):
    """A configuration value is wrong; the message begins with the value's path."""


# Object stores


class StoreUnavailableError(RetryableError):
    """The store did not answer, or asked to be left alone for a while."""


class CredentialsExpiredError(StoreUnavailableError):
    """The store says that our credentials have expired; files that they come from are read again."""


class JournalUnavailableError(StoreUnavailableError):
    """A record of the journal is not written, or its outcome is unknown; it is tried again. No topic's own trouble."""


class StoreFullError(RetryableError):
    """The store has no room left."""


class AccessDeniedError(FatalError):
    """The store or the cluster refused our credentials for this call."""


class BucketNotFoundError(FatalError):
    """The bucket or root folder does not exist."""


class ObjectArchivedError(FatalError):
    """The object is in an archive tier of the store: it is there, and cannot be read until it is restored."""


class ObjectNotFoundError(OffloadError):
    """No object has this key."""


class UploadGoneError(OffloadError):
    """The upload was aborted, completed by somebody else, or removed by a life-cycle rule: begin another one."""


class PartRejectedError(OffloadError):
    """The store's parts are not the ones that the journal names: abandon the upload and begin another one."""


class UnprovenStoreError(FatalError):
    """The store has no create-if-absent that is known to be atomic, so it must not hold metadata."""


# Metadata


class OvertakenError(FatalError):
    """Another process owns this application's journal now. Exit code 3: do not restart."""


class ClaimedByOtherError(FatalError):
    """The topic's catalog is claimed by another application."""


class HeldByShardError(ClaimedByOtherError):
    """Another shard of the same application has the topic, and passes it on when it sees that this one is there."""


class ShadowTopicError(FatalError):
    """The topic is a shadow (PIP-180): all of its data is its source's."""


class AnotherClusterError(FatalError):
    """The root belongs to another cluster."""


class FormatVersionError(FatalError):
    """A record was written by another version of this product."""


class RemovedFeatureError(FatalError):
    """A record is of a feature that was removed: nothing is concluded from it, and only an older version reads it."""


class DamagedRecordError(IntegrityError):
    """A persisted record cannot be read back."""


class DamagedObjectError(IntegrityError):
    """A data or index object is not what its format or the catalog says."""


class MessageTooLargeError(DamagedObjectError):
    """A message would be larger than whoever reads has allowed; with a higher limit it may be sound."""


# Pulsar


class BrokerUnavailableError(RetryableError):
    """No broker answered in time, or the one that did closed the connection."""


class NotShownError(BrokerUnavailableError):
    """A broker cannot show an entry of a ledger that, by its list, BookKeeper alone has."""


class TopicMovedError(RetryableError):
    """The topic was unloaded, or moves to another broker: look it up again."""


class SubscriptionBusyError(RetryableError):
    """Another consumer holds the durable subscription."""


class AuthenticationFailedError(FatalError):
    """The broker refused who we are."""


class AuthorizationFailedError(FatalError):
    """The broker knows us and refuses this call."""


class NotAllowedError(FatalError):
    """A policy or a limit of the namespace, the topic or the brokers forbids this call. No permission is missing."""


class AbsentError(OffloadError):
    """Pulsar says that something is not there. One such answer proves nothing: see `offload/core/evidence.py`."""


class TopicNotFoundError(AbsentError):
    """The topic does not exist (any more)."""


class NamespaceNotFoundError(AbsentError):
    """The namespace, or its tenant, does not exist (any more)."""


class InexactBytesError(FatalError):
    """The broker would not deliver entries byte for byte."""


class ProtocolError(IntegrityError):
    """A peer sent a frame that breaks the protocol."""


class DataLostError(IntegrityError):
    """Entries that were not offloaded yet cannot be read any more."""


class UnexplainedGapError(IntegrityError):
    """Entries were not delivered and nothing says why."""


# Spark


class ExecutorUnfitError(RetryableError):
    """A machine of Spark's cannot run slices: it lacks this package, or has another version. Others may."""


# Bridge


class UncommittedLedgerError(RetryableError):
    """A ledger is to be bridged of which not everything is committed yet."""


# BookKeeper


class BookieUnavailableError(RetryableError):
    """A bookie did not answer, or could not say: nothing is known of what it holds."""


class MetadataUnavailableError(RetryableError):
    """The metadata service did not answer in time."""


class VersionConflictError(RetryableError):
    """Somebody else changed the record since it was read: read it again and decide anew."""


class NodeRefusal(Enum):
    """Why an operation on a node of the metadata service was not done."""

    BAD_VERSION = auto()
    NO_NODE = auto()  # the node itself or, where one is created, its parent
    NODE_EXISTS = auto()
    NOT_EMPTY = auto()  # only a node without children can be deleted


class OperationRefusedError(VersionConflictError):
    """Nothing of a transaction was done. `operation`: the index of the one that was refused; `refusal`: why."""

    def __init__(
        self, message: str, operation: int = 0, refusal: NodeRefusal = NodeRefusal.BAD_VERSION
    ) -> None:  # defaults: for pickle, which sets the attributes by itself
        super().__init__(message)
        self.operation = operation
        self.refusal = refusal


class LedgerNotFoundError(OffloadError):
    """The ledger does not exist (any more)."""


class EntryNotFoundError(OffloadError):
    """No such entry."""


class LedgerFencedError(FatalError):
    """The ledger takes no more entries of its writer: somebody closes it."""


class RecoveryAbortedError(RetryableError):
    """Too little is known to close a ledger safely: it stays open. The message names the bookies that are needed."""

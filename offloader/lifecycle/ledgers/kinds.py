"""What a ledger is for, from its custom metadata, and what it names there. Pure.

Values are bytes: what is no text where a name must be makes a ledger foreign. So does everything that Pulsar 4.0.7 to
4.2.4 does not write: a ledger is judged only where it says in full whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from urllib.parse import unquote_plus

from offloader.bookkeeper.model import DigestType
from offloader.state.names import OWNER, PENDING_ACK_SUFFIX, TRANSACTION_LOG_PREFIX, decoded, encoded

APPLICATION = "application"
COMPONENT = "component"
CURSOR = "pulsar/cursor"
SCHEMA_ID = "pulsar/schemaId"
COMPACTED_TOPIC = "pulsar/compactedTopic"
COMPACTED_TO = "pulsar/compactedTo"
BUCKET_KEY = "pulsar/delayedIndexBucketKey"
DELAYED_TOPIC = "pulsar/delayedIndexTopic"
DELAYED_CURSOR = "pulsar/delayedIndexCursor"

PULSAR = b"pulsar"
COMPACTION = "__compaction"  # the cursor whose property names the compacted view
_PERSISTENT = "persistent"
_SCHEME = "persistent://"
_HEALTH_CHECK = "healthcheck"


class LedgerKind(StrEnum):
    """What a ledger is for, as an operator is told."""

    DATA = "data"
    CURSOR = "cursor"
    SCHEMA = "schema"
    COMPACTED_VIEW = "compacted view"
    DELAYED_INDEX = "delayed index"
    TRANSACTION_LOG = "transaction log"
    PENDING_ACKS = "pending acks"
    HEALTH_CHECK = "health check"
    FUNCTIONS_PACKAGES = "functions' packages"
    FOREIGN = "foreign"


class RefereeKind(StrEnum):
    """What must name a ledger so that it is used."""

    LEDGER_LIST = "ledger list"
    CURSOR_NODE = "cursor"
    SCHEMA_LOCATOR = "schema locator"
    COMPACTION_CURSOR = "compaction cursor"
    DELAYED_BUCKETS = "delayed buckets"
    FUNCTIONS_LOG = "functions' log"


class WhyForeign(StrEnum):
    """Why a ledger is none of those that can be judged."""

    DAMAGED = "its metadata cannot be read"
    NO_METADATA = "it has no custom metadata"
    ANOTHER_APPLICATION = "it does not say application=pulsar"
    UNKNOWN_COMPONENT = "it has a component that we do not know"
    NO_NAME = "it does not say whose it is"
    NO_TEXT = "what it names is no text"
    NO_POSSIBLE_NAME = "nothing in Pulsar has the name that it gives"


@dataclass(frozen=True, slots=True)
class LedgerPurpose:
    """What a ledger is for, and what it names. `referee` None: nobody could refer to it that we know of.

    `managed_ledger`, `cursor` (the subscription), `schema`, `bucket`: "" where it names none. `compacted_to`: the last
    message that the view has, a binary id. `cluster`: the one whose health check it is, where it says so.
    """

    kind: LedgerKind
    referee: RefereeKind | None = None
    managed_ledger: str = ""
    cursor: str = ""
    schema: str = ""
    compacted_to: bytes = b""
    bucket: str = ""
    cluster: str = ""
    why_foreign: WhyForeign | None = None

    @property
    def namespace(self) -> str:
        """`tenant/namespace`, or `tenant/cluster/namespace` of a name of the old form; "" where it names none."""
        if self.schema:
            return self.schema.rpartition("/")[0]
        return namespace_of(self.managed_ledger)


def foreign(why: WhyForeign, kind: LedgerKind = LedgerKind.FOREIGN) -> LedgerPurpose:
    """One that is never touched."""
    return LedgerPurpose(kind, why_foreign=why)


def purpose_of(custom: Mapping[str, bytes], digest: DigestType) -> LedgerPurpose:
    """What the ledger with these custom metadata is for. Whatever the bytes are, this is an answer."""
    if not custom:
        # DistributedLog writes nothing, but neither do a bookie's sanity tests.
        packages = digest is DigestType.CRC32
        return foreign(WhyForeign.NO_METADATA, LedgerKind.FUNCTIONS_PACKAGES if packages else LedgerKind.FOREIGN)
    if custom.get(APPLICATION) != PULSAR:
        return foreign(WhyForeign.ANOTHER_APPLICATION)
    read = _COMPONENTS.get(custom.get(COMPONENT, b""))
    if read is None:
        return foreign(WhyForeign.UNKNOWN_COMPONENT)
    try:
        return read(custom)
    except UnicodeDecodeError:
        return foreign(WhyForeign.NO_TEXT)
    except KeyError:
        return foreign(WhyForeign.NO_NAME)
    except ValueError:
        return foreign(WhyForeign.NO_POSSIBLE_NAME)


def namespace_of(managed_ledger: str) -> str:
    """The namespace that a managed ledger's name begins with."""
    return "/".join(managed_ledger.split("/")[:-2])


def managed_ledger_of_topic(topic: str) -> str:
    """The managed ledger of `persistent://…`; names of the old form, with a cluster, too. Raises ValueError.

    Brokers split a name in the same way: what has a fourth slash is of the old form.
    """
    pieces = topic.removeprefix(_SCHEME).split("/", 3)
    if not topic.startswith(_SCHEME) or len(pieces) < 3 or not all(pieces):
        raise ValueError(f"{topic!r} is no persistent topic's name")
    return _checked("/".join((*pieces[:-1], _PERSISTENT, encoded(pieces[-1]))))


def managed_ledgers_named(topic: str) -> set[str]:
    """The managed ledgers that a topic's name can mean: it may be encoded already, and without its domain."""
    pieces = topic.removeprefix(_SCHEME).split("/")
    if len(pieces) > 3 and pieces[-2] == _PERSISTENT:
        return {"/".join(pieces)}
    short = "/".join(pieces)
    try:
        return {managed_ledger_of_topic(_SCHEME + name) for name in (short, unquote_plus(short))}
    except ValueError:
        return set()


def _checked(name: str) -> str:
    """A managed ledger's name that may be a path below /managed-ledgers. Raises ValueError."""
    pieces = name.split("/")
    if len(pieces) not in (4, 5) or pieces[-2] != _PERSISTENT or not _is_path(pieces):
        raise ValueError(f"{name!r} is no managed ledger's name")
    return name


def _is_path(pieces: list[str]) -> bool:
    return all(piece and piece not in (".", "..") and "\0" not in piece for piece in pieces)


def _text(custom: Mapping[str, bytes], key: str) -> str:
    """Raises KeyError where it is absent or empty, and UnicodeDecodeError."""
    text = custom.get(key, b"").decode()
    if not text:
        raise KeyError(key)
    return intern(text)  # a scan has millions, of far fewer topics


def _of_managed_ledger(custom: Mapping[str, bytes]) -> LedgerPurpose:
    name = _checked(_text(custom, OWNER))
    cursor = _text(custom, CURSOR) if CURSOR in custom else ""
    return LedgerPurpose(
        kind=kind_by_name(name, LedgerKind.CURSOR if cursor else LedgerKind.DATA),
        referee=RefereeKind.CURSOR_NODE if cursor else RefereeKind.LEDGER_LIST,
        managed_ledger=name,
        cursor=cursor,
        cluster=_health_check_cluster(*name.split("/")[:-2], name.rpartition("/")[2]),
    )


def _of_schema(custom: Mapping[str, bytes]) -> LedgerPurpose:
    schema = _text(custom, SCHEMA_ID)
    pieces = schema.split("/")
    if len(pieces) not in (3, 4) or not _is_path(pieces):
        raise ValueError(f"{schema!r} is no schema's id")
    health = pieces[0] == "pulsar" and pieces[-1] == _HEALTH_CHECK
    return LedgerPurpose(
        kind=LedgerKind.HEALTH_CHECK if health else LedgerKind.SCHEMA,
        referee=RefereeKind.SCHEMA_LOCATOR,
        schema=schema,
        cluster=_health_check_cluster(*pieces),
    )


def _of_compacted(custom: Mapping[str, bytes]) -> LedgerPurpose:
    return LedgerPurpose(
        kind=LedgerKind.COMPACTED_VIEW,
        referee=RefereeKind.COMPACTION_CURSOR,
        managed_ledger=managed_ledger_of_topic(_text(custom, COMPACTED_TOPIC)),
        cursor=COMPACTION,
        compacted_to=custom.get(COMPACTED_TO, b""),
    )


def _of_delayed(custom: Mapping[str, bytes]) -> LedgerPurpose:
    return LedgerPurpose(
        kind=LedgerKind.DELAYED_INDEX,
        referee=RefereeKind.DELAYED_BUCKETS,
        managed_ledger=managed_ledger_of_topic(_text(custom, DELAYED_TOPIC)),
        cursor=_text(custom, DELAYED_CURSOR),
        bucket=_text(custom, BUCKET_KEY),
    )


_COMPONENTS = {
    b"managed-ledger": _of_managed_ledger,
    b"schema": _of_schema,
    b"compacted-ledger": _of_compacted,
    b"delayed-index-bucket": _of_delayed,
}


def kind_by_name(name: str, otherwise: LedgerKind) -> LedgerKind:
    """What a managed ledger's name makes of its ledgers, where it makes something of them."""
    pieces = name.split("/")
    if name.startswith(TRANSACTION_LOG_PREFIX):
        return LedgerKind.TRANSACTION_LOG
    if decoded(pieces[-1]).endswith(PENDING_ACK_SUFFIX):
        return LedgerKind.PENDING_ACKS
    if pieces[0] == "pulsar" and pieces[-1] == _HEALTH_CHECK:
        return LedgerKind.HEALTH_CHECK
    return otherwise


def _health_check_cluster(*pieces: str) -> str:
    """`pulsar/<cluster>/<host:port>/healthcheck` says whose; `pulsar/<host:port>/healthcheck` does not."""
    is_one = len(pieces) == 4 and pieces[0] == "pulsar" and pieces[3] == _HEALTH_CHECK
    return pieces[1] if is_one else ""

"""The commands that a server sends, but for messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from offloader._proto.pulsar_wire_pb2 import (
    AckResponse,
    ActiveConsumerChange,
    AuthChallenge,
    AuthData,
    BaseCommand,
    CloseConsumer,
    Connected,
    ConsumerStatsResponse,
    Error,
    FeatureFlags,
    GetLastMessageIdResponse,
    GetSchemaResponse,
    GetTopicsOfNamespaceResponse,
    KeyValue,
    LookupResponse,
    MessageIdData,
    PartitionedMetadataResponse,
    ReachedEndOfTopic,
    Schema,
    Success,
    TransactionRefusal,
    WatchTopicListSuccess,
    WatchTopicUpdate,
)
from offloader.gateway.values import ErrorCode, RefusedError, ServedEnd
from offloader.model import Place
from offloader.pulsar.commands import command, message_id

SERVER_VERSION = "pulsar-streaming-offloader-gateway"
NEWEST_VERSION = 21  # of the protocol: what brokers of 4.0 speak
PROXIED = "the gateway takes no clients by way of a Pulsar Proxy, as all would have the role of the proxy"
OF_NO_REQUEST = 2**64 - 1


class Address(NamedTuple):
    """Where a topic is served. `tls` empty: not by TLS. `through_proxy`: clients keep to the address that they have."""

    url: str
    tls: str = ""
    through_proxy: bool = False


def connected(version: int, max_message: int) -> BaseCommand:
    """Answers CONNECT. `version`: the client's."""
    flags = FeatureFlags(supports_topic_watchers=True, supports_get_partitioned_metadata_without_auto_creation=True)
    return command(
        connected=Connected(
            server_version=SERVER_VERSION,
            protocol_version=min(version, NEWEST_VERSION),
            max_message_size=max_message,
            feature_flags=flags,
        )
    )


def refused(request_id: int, error: RefusedError) -> BaseCommand:
    """Answers a request that has no form of its own for errors."""
    return command(error=Error(request_id=request_id, error=error.code, message=str(error)))


def challenge(method: str) -> BaseCommand:
    """Asks for a new token."""
    asked = AuthData(auth_method_name=method, auth_data=b"")
    return command(
        auth_challenge=AuthChallenge(server_version=SERVER_VERSION, challenge=asked, protocol_version=NEWEST_VERSION)
    )


def success(request_id: int) -> BaseCommand:
    """It is done."""
    return command(success=Success(request_id=request_id))


def partitions(request_id: int, count: int) -> BaseCommand:
    """0: it is not partitioned."""
    return command(
        partitioned_metadata_response=PartitionedMetadataResponse(request_id=request_id, partitions=count, response=0)
    )


def partitions_refused(request_id: int, error: RefusedError) -> BaseCommand:
    """Answers PARTITIONED_METADATA."""
    answer = PartitionedMetadataResponse(request_id=request_id, response=1, error=error.code, message=str(error))
    return command(partitioned_metadata_response=answer)


def served_at(request_id: int, address: Address) -> BaseCommand:
    """Answers LOOKUP: the client connects there."""
    answer = LookupResponse(
        request_id=request_id,
        response=LookupResponse.CONNECT,
        authoritative=True,
        broker_service_url=address.url or None,
        broker_service_url_tls=address.tls or None,
        proxy_through_service_url=address.through_proxy,
    )
    return command(lookup_response=answer)


def lookup_refused(request_id: int, error: RefusedError) -> BaseCommand:
    """Answers LOOKUP."""
    answer = LookupResponse(
        request_id=request_id, response=LookupResponse.FAILED, error=error.code, message=str(error), authoritative=True
    )
    return command(lookup_response=answer)


def acknowledged(consumer: int, request_id: int, error: RefusedError | None = None) -> BaseCommand:
    """Answers an ACK that asked for it."""
    answer = AckResponse(consumer_id=consumer, request_id=request_id)
    if error is not None:
        answer.error, answer.message = error.code, str(error)
    return command(ack_response=answer)


def last_message(request_id: int, end: ServedEnd, partition: int, mark_delete: Place) -> BaseCommand:
    """Answers GET_LAST_MESSAGE_ID. Of a batch the last message's index."""
    place = end.last if end.last is not None else (-1, -1)
    last = message_id(*place)
    last.partition, last.batch_index = partition, end.batch_index
    answer = GetLastMessageIdResponse(
        request_id=request_id, last_message_id=last, consumer_mark_delete_position=message_id(*mark_delete)
    )
    return command(get_last_message_id_response=answer)


def topics(request_id: int, names: Sequence[str], hashed: str, *, filtered: bool, changed: bool) -> BaseCommand:
    """Answers GET_TOPICS_OF_NAMESPACE. Not `changed`: the client's list is still right."""
    answer = GetTopicsOfNamespaceResponse(
        request_id=request_id,
        topics=names if changed else (),
        filtered=filtered,
        topics_hash=hashed or None,
        changed=changed,
    )
    return command(get_topics_of_namespace_response=answer)


def watching(request_id: int, watcher: int, names: Sequence[str], hashed: str) -> BaseCommand:
    """Answers WATCH_TOPIC_LIST."""
    return command(
        watch_topic_list_success=WatchTopicListSuccess(
            request_id=request_id, watcher_id=watcher, topics=names, topics_hash=hashed
        )
    )


def topics_changed(watcher: int, new: Sequence[str], deleted: Sequence[str], hashed: str) -> BaseCommand:
    """Tells a watcher."""
    return command(
        watch_topic_update=WatchTopicUpdate(
            watcher_id=watcher, new_topics=new, deleted_topics=deleted, topics_hash=hashed
        )
    )


def schema(
    request_id: int, name: str, version: int, kind: int, data: bytes, properties: Sequence[tuple[str, str]]
) -> BaseCommand:
    """Answers GET_SCHEMA."""
    found = Schema(
        name=name, data=data, type=kind, properties=[KeyValue(key=key, value=value) for key, value in properties]
    )
    answer = GetSchemaResponse(request_id=request_id, schema=found, schema_version=version.to_bytes(8, "big"))
    return command(get_schema_response=answer)


def schema_refused(request_id: int, error: RefusedError) -> BaseCommand:
    """Answers GET_SCHEMA."""
    answer = GetSchemaResponse(request_id=request_id, error_code=error.code, error_message=str(error))
    return command(get_schema_response=answer)


def consumer_stats(request_id: int, found: ConsumerStatsResponse, address: str, since: datetime) -> BaseCommand:
    """Answers CONSUMER_STATS. `address` is the client's, `since` when it subscribed."""
    found.request_id, found.address = request_id, address
    found.connected_since = since.isoformat(timespec="milliseconds")
    return command(consumer_stats_response=found)


def consumer_stats_refused(request_id: int, error: RefusedError) -> BaseCommand:
    """Answers CONSUMER_STATS."""
    answer = ConsumerStatsResponse(request_id=request_id, error_code=error.code, error_message=str(error))
    return command(consumer_stats_response=answer)


def transactions_refused(request_id: int) -> BaseCommand:
    """Answers TC_CLIENT_CONNECT."""
    why = "this is an archive: there are no transactions"
    return command(
        tc_client_connect_response=TransactionRefusal(request_id=request_id, error=ErrorCode.NOT_ALLOWED, message=why)
    )


def active(consumer: int, *, is_active: bool) -> BaseCommand:
    """Tells a Failover consumer."""
    return command(active_consumer_change=ActiveConsumerChange(consumer_id=consumer, is_active=is_active))


def closed(consumer: int) -> BaseCommand:
    """Tells a consumer to look up and subscribe again."""
    return command(close_consumer=CloseConsumer(consumer_id=consumer, request_id=OF_NO_REQUEST))


def end_reached(consumer: int) -> BaseCommand:
    """Tells a consumer that nothing will ever come."""
    return command(reached_end_of_topic=ReachedEndOfTopic(consumer_id=consumer))


def place_of(message: MessageIdData) -> Place:
    """A position from the wire, where -1 is the largest number."""
    return _signed(message.ledger_id), _signed(message.entry_id)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value

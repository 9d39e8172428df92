"""A gateway's claim of a topic: the value, to and from bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader._proto import metadata_pb2 as pb
from offloader.gateway.protocol.answers import Address
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.message_codec import add_messages, message_of, read_value
from offloader.metadata.record_codec import RecordCodec
from offloader.metadata.value_codec import damage_of
from offloader.model import TopicName

NOWHERE = Address("")


@dataclass(frozen=True, slots=True)
class TopicClaim:
    """Of all claims of a topic the one with the highest number counts. `gateway`: the process that has made it; empty:
    the topic is nobody's. `address`: where clients reach that process. `at`: in ms, for people."""

    topic: TopicName
    number: int
    gateway: str = ""
    address: Address = NOWHERE
    at: int = 0


def _encode(token: str, claim: TopicClaim) -> bytes:
    message = message_of(claim, url=claim.address.url, url_tls=claim.address.tls)
    return wrap(token, pb.Body(gateway_claim=message))


def _decode(key: str, data: bytes) -> TopicClaim:
    m = unwrap_kind(key, data, "gateway_claim").body.gateway_claim
    with damage_of(key):
        return read_value(TopicClaim, m, address=Address(m.url, m.url_tls))


add_messages({TopicClaim: pb.GatewayClaim}, {})
CLAIM = RecordCodec(_encode, _decode)

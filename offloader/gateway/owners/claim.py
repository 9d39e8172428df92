"""A gateway's claim of a topic: the value, to and from bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader._proto import metadata_pb2 as pb
from offloader.gateway.protocol.answers import Address
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.value_codec import damage_of, read_topic, topic_message
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


def encode_claim(token: str, claim: TopicClaim) -> bytes:
    """The bytes of a claim. `token`: of this very write."""
    message = pb.GatewayClaim(
        topic=topic_message(claim.topic),
        number=claim.number,
        gateway=claim.gateway,
        url=claim.address.url,
        url_tls=claim.address.tls,
        at=claim.at,
    )
    return wrap(token, pb.Body(gateway_claim=message))


def decode_claim(key: str, data: bytes) -> TopicClaim:
    """The claim that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    m = unwrap_kind(key, data, "gateway_claim").body.gateway_claim
    with damage_of(key):
        return TopicClaim(read_topic(m.topic), m.number, m.gateway, Address(m.url, m.url_tls), m.at)

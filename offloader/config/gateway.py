"""The section `gateway`: archived topics for Pulsar's own clients."""

from __future__ import annotations

import re
from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from offloader.config.section import Section
from offloader.config.units import Size, Wait
from offloader.model import MIB

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s/]+):(?P<port>[0-9]{1,5})")


class OnLoss(StrEnum):
    """What a loss, a deletion or damage does to those who read on to it."""

    FAIL = "fail"
    SKIP = "skip"


class Gateway(Section):
    """A server that speaks Pulsar's protocol and reads the archive (`offloader gateway`)."""

    listen: str = Field(
        "127.0.0.1:6650", description="Address and port for clients, `pulsar://`. Port 0: any free one."
    )
    advertised: str = Field(
        "",
        description="What clients are told to connect to, `pulsar://host:port`: how they reach this very gateway. By "
        "default the address that it listens on.",
    )
    durable_acks: bool = Field(
        False,
        description="Answer an acknowledgement that asks for an answer only once it is in the bucket. Brokers answer "
        "before anything is stored.",
    )
    on_loss: OnLoss = Field(
        OnLoss.FAIL,
        description="What a recorded loss, a deletion or damage does: `fail` refuses those who subscribe before it, "
        "with the reason; `skip` passes over it, and counts it as acknowledged.",
    )
    flush_interval_ms: Wait = Field(
        5_000,
        gt=0,
        description="How often new acknowledgements are written: a request for each subscription that has some.",
    )
    refresh_interval_ms: Wait = Field(
        5_000, gt=0, description="How often topics that are read are looked at for segments that were sealed since."
    )
    metrics_listen: str = Field(
        "127.0.0.1:9466",
        description="Address and port for `/metrics`, `/healthz`, `/readyz` and `/status`, which `offloader gateway "
        "status` asks. Empty: none. It has no access control.",
    )
    connections: int = Field(1_000, ge=1, description="Most connections at a time.")
    max_individual_ack_cache_bytes_per_cursor: Size = Field(
        3 * MIB,
        gt=0,
        alias="maxIndividualAckCacheBytesPerCursor",
        description="Memory for what a subscription has acknowledged one by one (PIP-81). Beyond it whole ledgers are "
        "in the bucket alone.",
    )
    enable_lru_cache_max_unacked_ranges: bool = Field(
        True,
        alias="enableLruCacheMaxUnackedRanges",
        description="Keep that bound (PIP-81). `false`: all of it stays in memory.",
    )

    @field_validator("listen", "metrics_listen")
    @classmethod
    def _listen(cls, value: str, info: ValidationInfo) -> str:
        if value or info.field_name == "listen":
            address_of(value)
        return value

    @field_validator("advertised")
    @classmethod
    def _advertised(cls, value: str) -> str:
        if value and (urlsplit(value).scheme != "pulsar" or not urlsplit(value).hostname):
            raise ValueError(f"{value!r} is no address of a gateway; write for example pulsar://gateway.example:6650")
        return value


def address_of(listen: str) -> tuple[str, int]:
    """Host and port. Raises ValueError."""
    found = _ADDRESS.fullmatch(listen)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError(f"{listen!r} is no address to listen on; write for example 127.0.0.1:6650")
    return found["host"].strip("[]"), int(found["port"])

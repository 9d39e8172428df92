"""The section `bridge`: how ledgers become readable for stock brokers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import time
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from offloader.config.policies import Policies
from offloader.config.problems import ConfigProblem
from offloader.config.section import Section
from offloader.config.units import SIZE, Delay, Size, Wait, at_least
from offloader.config.urls import store_url
from offloader.model import KIB, MIB

DAY_MS = 86_400_000
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)(?: +(\S+))?")


@dataclass(frozen=True)
class QuietHours:
    """A time of day, in a time zone; it may reach over midnight."""

    begin: time
    end: time
    zone: str = "UTC"


class Bridge(Section):
    """How ledgers become readable for stock brokers (`policies.brokerReadable`)."""

    bucket: str = Field(
        "",
        description="The bucket for what brokers shall read, as a URL, `s3://bucket`, in the same store as `storage`. "
        "By default the one that the brokers are configured with, which needs a super user's role.",
    )
    min_interval_ms: Delay = Field(
        3_600_000,
        ge=0,
        description="Least time between two unloads of a topic for bridging. Each costs its clients a pause of some "
        "0.2 s. `run --until-caught-up` does not wait for it.",
    )
    max_interval_ms: Delay = Field(
        86_400_000,
        ge=0,
        description="How long a ledger waits that an unload for bridging has closed, until its topic has another one. "
        "Without it each round makes the next one due. `run --until-caught-up` does not wait for it.",
    )
    quiet_hours: QuietHours | None = Field(
        None,
        description="Bridge topics only at this time of day, for example `22:00-05:00 Europe/Berlin`; UTC where no "
        "zone is named. `run --until-caught-up` does not wait for it.",
    )
    unloads_a_minute: int = Field(30, ge=1, description="Most unloads a minute, of all topics together.")
    topics_at_once: int = Field(4, ge=1, le=64, description="Topics that are bridged at a time.")
    ledgers_at_once: int = Field(100, ge=1, le=1000, description="Most ledgers of a topic that one unload bridges.")
    copy_size: Annotated[Size, at_least(5 * MIB, SIZE)] = Field(
        256 * MIB, alias="copySizeInBytes", description="How much one request copies inside the store, at most 5G."
    )
    record_size: Annotated[Size, at_least(64 * KIB, SIZE)] = Field(
        700 * KIB,
        alias="recordSizeInBytes",
        description="The most that a topic's record may have in Pulsar's metadata store, as it is stored there, once a "
        "round's contexts are in it. ZooKeeper takes 1M (`jute.maxbuffer`; 10M in Pulsar's own start scripts).",
    )
    proof_timeout_ms: Wait = Field(
        120_000, gt=0, description="How long a broker may take to load a topic and to deliver a bridged entry."
    )

    @property
    def longest_wait_ms(self) -> int:
        """Between two rounds of a topic, where nothing is in the way."""
        return max(self.min_interval_ms, 0 if self.quiet_hours is None else DAY_MS)

    @field_validator("bucket")
    @classmethod
    def _bucket(cls, value: str) -> str:
        return store_url(value) if value else ""

    @field_validator("quiet_hours", mode="before")
    @classmethod
    def _quiet_hours(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = _HOURS.fullmatch(value.strip())
        if found is None:
            raise ValueError(f"{value!r} is no time of day; write for example 22:00-05:00 Europe/Berlin")
        zone = found[5] or "UTC"
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{zone!r} is no time zone; write for example Europe/Berlin") from error
        begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
        if begin == end:
            raise ValueError(f"{value!r} begins when it ends; leave quietHours out to bridge at any time")
        return QuietHours(begin=begin, end=end, zone=zone)


def out_of_reach(policies: Policies, scheme: str, *, has_bookies: bool) -> Iterator[ConfigProblem]:
    """What is switched on and cannot be done."""
    for layers in policies.scopes():
        found = policies.resolve("broker_readable", layers)
        if not found.value:
            continue
        if not has_bookies:
            yield ConfigProblem(found.path, "the topic's record is in ZooKeeper: set pulsar.metadataServiceUri, too")
            return
        if scheme != "s3":
            yield ConfigProblem(found.path, f"brokers read objects of S3 only; storage.root is {scheme}://")
            return

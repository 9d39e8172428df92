"""The section `protection`: subscriptions of live topics, while brokers forget."""

from __future__ import annotations

from pydantic import Field, field_validator

from offloader.config.gateway import checked_address
from offloader.config.section import Section
from offloader.config.units import Wait


class ProtectionSettings(Section):
    """How `offloader subscriptions protect` looks at topics."""

    interval_ms: Wait = Field(
        30_000,
        ge=2_000,
        description="How often each topic is looked at, at least 2s apart. The shorter, the more is protected: what a "
        "broker stored since the last look cannot be told from a reset, and after a crash only who looks before the "
        "first consumer acknowledges can help.",
    )
    at_once: int = Field(8, ge=1, le=64, description="Topics that are looked at at a time.")
    looks_a_second: int = Field(50, ge=1, le=1_000, description="Most looks a second, of all topics.")
    metrics_listen: str = Field(
        "",
        description="Address and port for `/metrics`, `/healthz` and `/readyz` of the command, as long as it runs. "
        "Empty: none. It has no access control.",
    )

    @field_validator("metrics_listen")
    @classmethod
    def _listen(cls, value: str) -> str:
        return checked_address(value)

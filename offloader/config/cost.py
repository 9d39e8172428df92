"""The section `cost`: prices, for `offloader cost`. There are no defaults: nobody else knows what you pay."""

from __future__ import annotations

from datetime import date
from typing import Self

from pydantic import Field, field_validator, model_validator

from offloader.config.section import Section


class CostSettings(Section):
    """Prices as your provider's list says them; without them `offloader cost` shows bytes and requests alone."""

    currency: str = Field("", max_length=8, description="Whatever the prices are in, for example `EUR`.")
    as_of: str = Field("", description="The day of the price list, `2026-11-26`; needed where a price is set.")
    store_gib_month: float | None = Field(None, ge=0, description="A GiB in the store, a month.")
    writes_per_1000: float | None = Field(
        None, ge=0, alias="writesPer1000", description="1,000 writes: objects, parts, beginning and ending an upload."
    )
    reads_per_1000: float | None = Field(
        None, ge=0, alias="readsPer1000", description="1,000 reads, and looks at an object."
    )
    lists_per_1000: float | None = Field(
        None, ge=0, alias="listsPer1000", description="1,000 listings; `writesPer1000` by default, as at most stores."
    )
    egress_gib: float | None = Field(None, ge=0, description="A GiB that leaves the store.")
    bookie_gib_month: float | None = Field(
        None, ge=0, description="A GiB on a bookie's disks, a month: one copy, with what of the machine goes with it."
    )
    bookie_copies: int = Field(
        2, ge=1, le=20, description="Copies that bookies keep of an entry, where Pulsar is not asked for it."
    )

    @field_validator("as_of", mode="before")
    @classmethod
    def _day(cls, value: object) -> str:
        try:
            return date.fromisoformat(str(value)).isoformat() if value else ""
        except ValueError:
            raise ValueError(f"{value!r} is not a day; write for example 2026-11-26") from None

    @property
    def priced(self) -> bool:
        """Whether any price is known."""
        prices = (self.store_gib_month, self.writes_per_1000, self.reads_per_1000, self.lists_per_1000)
        return any(price is not None for price in (*prices, self.egress_gib, self.bookie_gib_month))

    @model_validator(mode="after")
    def _dated(self) -> Self:
        if self.priced and not self.as_of:
            raise ValueError("asOf is missing: prices change, so say of which day they are")
        return self

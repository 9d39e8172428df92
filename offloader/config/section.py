"""What every section of the file has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


def spelling(attribute: str) -> str:
    """How an attribute is spelled in the file: `discovery_interval_ms` is `discoveryInterval`."""
    return to_camel(attribute.removesuffix("_ms"))


class Section(BaseModel):
    """A frozen part of the configuration: camelCase in the file, unknown names refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=spelling,
        hide_input_in_errors=True,
    )

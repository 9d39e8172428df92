"""Whether brokers hand out entries exactly as BookKeeper stores them."""

from __future__ import annotations

from collections.abc import Mapping

from offloader.errors import InexactBytesError

EXPOSING = "exposingBrokerEntryMetadataToClientEnabled"
INTERCEPTORS = "brokerEntryMetadataInterceptors"


def check_exactness(configuration: Mapping[str, str]) -> None:
    """Raises InexactBytesError if brokers add metadata to entries and take it off before delivery.

    A broker without interceptors adds none, but may have done so in the past: entries of that time would be delivered
    without it.
    """
    if configuration.get(EXPOSING, "false").lower() == "true":
        return
    if configuration.get(INTERCEPTORS, "").strip("[] "):  # an empty set reads "[]"
        raise InexactBytesError(
            f"the broker stores metadata with each entry ({INTERCEPTORS}) and takes it off before delivery: "
            f"set {EXPOSING}=true in broker.conf, or use the source bookkeeper"
        )

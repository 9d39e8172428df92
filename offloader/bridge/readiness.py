"""What must be so before a topic's record may name objects: with it brokers read them, and nothing is skipped. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offloader.model import TopicName
from offloader.printable import printable
from offloader.pulsar.offloading import BrokerOffloading

SKIPS = "autoSkipNonRecoverableData"
_FILES = "filesystem"


def not_ready(
    topic: TopicName,
    offloading: BrokerOffloading,
    configuration: Mapping[str, str] | None,
    version: Callable[[], str],
) -> str:
    """Why not, in one line that says what to set; empty: nothing is in the way. `configuration`: of the brokers, None
    where we may not read it. `version`: theirs, asked only where it matters; what it raises passes."""
    if not offloading.driver:
        return (
            f"{topic}: its brokers have no offloader: set managedLedgerOffloadDriver and offloadersDirectory in "
            "broker.conf"
        )
    if offloading.driver == _FILES:
        return f"{topic}: its brokers offload to a file system, and would look for the objects there"
    if not offloading.tiered_first:
        return (
            f"{topic}: its brokers read BookKeeper first, so nothing would be proven: set "
            "managedLedgerDataReadPriority=tiered-storage-first in broker.conf, or run pulsar-admin namespaces "
            f"set-offload-policies with --offloadedReadPriority tiered-storage-first for {topic.namespace}"
        )
    if configuration is not None and configuration.get(SKIPS, "").lower() == "true":
        return (
            f"{topic}: with {SKIPS}=true its brokers skip what they cannot read, without a word: set {SKIPS}=false in "
            "broker.conf"
        )
    lag = offloading.deletion_lag_ms
    if lag is not None and lag < 0 and offloading.kept_ms(said := version()) is not None:
        return (
            f"{topic}: its brokers ({printable(said[:40])}) take a deletion lag of {lag} for 0, and would delete "
            "BookKeeper's copy before what they read instead is proven: set managedLedgerOffloadDeletionLagMs in "
            "broker.conf, or the namespace's deletion lag, to some hours"
        )
    return ""

"""What the in-memory Pulsar and its clients share."""

from __future__ import annotations

import random
import threading

from offloader.testing.cluster_state import State
from offloader.testing.faults import Faults


class Shared:
    """The state, the lock that guards it and tells of its changes, and what fails on purpose."""

    def __init__(self, *, seed: int, name: str, entries_per_ledger: int | None, real_time: bool) -> None:
        rng = random.Random(seed)  # noqa: S311 (test data)
        self.name = name
        self.state = State(rng, entries_per_ledger)
        self.changed = threading.Condition(threading.RLock())
        self.faults = Faults(rng)
        self.real_time = real_time
        self.configuration: dict[str, str] = {
            "brokerEntryMetadataInterceptors": "",
            "exposingBrokerEntryMetadataToClientEnabled": "true",
            "maxMessageSize": "5242880",
        }

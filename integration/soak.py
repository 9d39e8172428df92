"""What only long runs do, and what they share."""

from __future__ import annotations

import os
from typing import Any

SOAK = os.environ.get("OFFLOADER_SOAK") == "1"
"""Whether everything is to be multiplied: stores, moments, kills (`make test-soak`)."""

BEFORE, AFTER = "hook", "then"
"""When a signal comes: before a call to the store, or after it."""


STEPS = ("complete", "index", "catalog", "journal")
"""What the seal of a segment of several parts writes, in this order."""


def seal_steps(topic: str = "[^/]+") -> dict[str, dict[str, Any]]:
    """The calls to the store by which a segment of this topic (a regular expression) is sealed, by step."""
    index = {"call": "put", "key": f"/{topic}/[^/]+-index$"}
    catalog = {"call": "put", "key": f"/{topic}/_catalog/"}
    return {
        "complete": {"call": "commit", "key": f"/{topic}/"},
        # The object is complete, and the index entries of its parts are read.
        "object": {"call": "read", "key": f"/{topic}/[0-9a-f]{{8}}-[0-9a-f-]{{27}}$"},
        "index": index,
        "catalog": {**catalog, "behind": [index]},
        "journal": {"call": "put", "key": "^_journal/", "behind": [index, catalog]},
    }

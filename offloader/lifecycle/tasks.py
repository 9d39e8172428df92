"""What the application does for the end of data, beside offloading: one task after the other, in a thread of their own.

There is no such thread where nothing of it is switched on.
"""

from __future__ import annotations

from typing import Protocol


class LifecycleTask(Protocol):
    """One thing that is done again and again. `name`: as logs and metrics have it."""

    name: str

    def run(self) -> float:
        """Do what is due, and no more than a bounded share of it. Returns after how many seconds it wants to be called
        again. Raises OffloadError: it is called again after its interval; OvertakenError ends the application."""
        ...

"""How many topics may be unloaded for bridging: in time, pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

MINUTE_MS = 60_000
SHARE = 3  # of all unloads the part that what has failed before may have


class _Unload(NamedTuple):
    at: int
    again: bool


@dataclass
class UnloadRate:
    """So many unloads a minute, whichever the minute. Steps that have failed before have a part of them: they neither
    keep others waiting, nor wait for them."""

    a_minute: int
    _counted: list[_Unload] = field(default_factory=list)

    def take(self, now: int, *, again: bool = False) -> bool:
        """Whether a step that unloads may begin now; if so, an unload of its counts already."""
        self._counted = [one for one in self._counted if now - MINUTE_MS < one.at <= now]
        tried_again = sum(one.again for one in self._counted)
        if len(self._counted) >= self.a_minute or (again and tried_again >= max(1, self.a_minute // SHARE)):
            return False
        self._counted.append(_Unload(now, again))
        return True

    def made(self, began: int, now: int, unloads: int, *, again: bool = False) -> None:
        """A step that began then is over, and has made so many."""
        if (taken := _Unload(began, again)) in self._counted:
            self._counted.remove(taken)
        self._counted += [_Unload(now, again)] * unloads

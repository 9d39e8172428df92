"""What a bookie's HTTP end points say, checked where it comes in. Pure. Forms as of BookKeeper 4.17."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offloader.errors import ProtocolError
from offloader.json_text import parse_json

CONFIGURATION = "/api/v1/config/server_config"
DETAILS = "/api/v1/bookie/gc_details"
FORCED = "/api/v1/bookie/gc"
SUSPENDED = "/api/v1/bookie/gc/suspend_compaction"
SPACE = "/api/v1/bookie/info"
STATE = "/api/v1/bookie/state"
FILES = "/api/v1/bookie/list_disk_file?file_type=entrylog"
PATHS = (CONFIGURATION, DETAILS, FORCED, SUSPENDED, SPACE, STATE, FILES)

DEFAULTS: Mapping[str, str] = {
    "gcWaitTime": "600000",
    "minorCompactionThreshold": "0.2",
    "minorCompactionInterval": "3600",
    "majorCompactionThreshold": "0.8",
    "majorCompactionInterval": "86400",
    "isThrottleByBytes": "false",
    "compactionRateByEntries": "1000",
    "compactionRateByBytes": "1000000",
    "diskUsageThreshold": "0.95",
    "diskUsageWarnThreshold": "0.9",
    "isForceGCAllowWhenNoSpace": "false",
    "forceAllowCompaction": "false",
    "readOnlyModeEnabled": "true",
}
"""Of 4.17's code; a bookie tells only what its file sets."""


@dataclass(frozen=True, slots=True)
class CollectorDetails:
    """One ledger directory's collector since the bookie started. Times in ms; that of the start where it never ran."""

    minor_at: int
    major_at: int
    minor_runs: int
    major_runs: int
    compacting: bool


@dataclass(frozen=True, slots=True)
class BookieFacts:
    """What a bookie says. None, or empty: it did not. `failed`: why an end point gave nothing, by its path."""

    bookie: str
    url: str | None
    configuration: Mapping[str, str] | None = None
    collectors: tuple[CollectorDetails, ...] = ()
    forced: bool | None = None
    major_suspended: bool | None = None
    minor_suspended: bool | None = None
    free: int | None = None
    total: int | None = None
    read_only: bool | None = None
    entry_logs: int | None = None
    failed: Mapping[str, str] = field(default_factory=dict, hash=False)

    def setting(self, name: str) -> str:
        """As configured, else as by default."""
        return (self.configuration or {}).get(name) or DEFAULTS[name]

    def number(self, name: str) -> float:
        """The same as a number. What is none counts as the default."""
        try:
            return float(self.setting(name))
        except ValueError:
            return float(DEFAULTS[name])

    def switch(self, name: str) -> bool:
        """The same as a switch."""
        return self.setting(name).strip().lower() == "true"


def bookie_facts(bookie: str, url: str | None, answers: Mapping[str, bytes], failed: Mapping[str, str]) -> BookieFacts:
    """From the answers by path. What has another form than we know counts as not answered."""
    failures = dict(failed)
    found: dict[str, Any] = {}
    for path, data in answers.items():
        try:
            found |= _READERS[path](parse_json(data))
        except (ValueError, TypeError, KeyError, AttributeError, ProtocolError) as error:
            failures[path] = f"it answers in a way that we do not know ({error!r})"
    return BookieFacts(bookie, url, **found, failed=failures)


def _configuration(answer: Any) -> dict[str, Any]:
    return {"configuration": {str(name): str(value) for name, value in answer.items()}}


def _details(answer: Any) -> dict[str, Any]:
    return {"collectors": tuple(_collector(one) for one in answer)}


def _collector(one: Any) -> CollectorDetails:
    return CollectorDetails(
        minor_at=_number(one["lastMinorCompactionTime"]),
        major_at=_number(one["lastMajorCompactionTime"]),
        minor_runs=_number(one["minorCompactionCounter"]),
        major_runs=_number(one["majorCompactionCounter"]),
        compacting=bool(one["majorCompacting"] or one["minorCompacting"]),
    )


def _forced(answer: Any) -> dict[str, Any]:
    """A pair of Java's: `{"is_in_force_gc": "false"}`, or with its parts named."""
    said = answer.get("is_in_force_gc", answer.get("right", answer.get("value")))
    return {"forced": _truth(said)}


def _suspended(answer: Any) -> dict[str, Any]:
    return {
        "major_suspended": _truth(answer["isMajorGcSuspended"]),
        "minor_suspended": _truth(answer["isMinorGcSuspended"]),
    }


def _space(answer: Any) -> dict[str, Any]:
    return {"free": _number(answer["freeSpace"]), "total": _number(answer["totalSpace"])}


def _state(answer: Any) -> dict[str, Any]:
    return {"read_only": _truth(answer["readOnly"])}


def _files(answer: Any) -> dict[str, Any]:
    return {"entry_logs": len(answer["entrylog files"].split())}


_READERS = {
    CONFIGURATION: _configuration,
    DETAILS: _details,
    FORCED: _forced,
    SUSPENDED: _suspended,
    SPACE: _space,
    STATE: _state,
    FILES: _files,
}


def _truth(said: Any) -> bool:
    text = str(said).lower()
    if text not in ("true", "false"):
        raise ValueError(f"{said!r} is neither true nor false")
    return text == "true"


def _number(said: Any) -> int:
    if type(said) is not int or abs(said) >= 1 << 63:
        raise ValueError(f"{said!r} is no number")
    return said

"""Writes docs/configuration.md from the models: `python -m dev.docs.configuration docs/configuration.md`."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from dev.docs.lines import wrapped
from offloader.config.aliases import ALIASES, REFUSED
from offloader.config.bridging import QuietHours
from offloader.config.config import Config
from offloader.config.hints import named, section_of
from offloader.config.levels import DEFAULTS, PolicyLevel
from offloader.config.units import UnitKind

_INTRO = """\
# Configuration

Generated from the code by `python -m dev.docs.configuration docs/configuration.md`; a test keeps it up to date.

One YAML file configures the application (`conf/offloader.yaml` is a commented example). It is checked completely
before anything starts: names that are not settings, wrong values and violated limits are refused, each in one line
that begins with the setting's path and ends with its line in the file. A key may stand only once in its section.

* **Sizes**: `64M`, `1G`, `512K`, or a plain number in the unit that the setting's name says (bytes where it says
  none). K, M, G and T are powers of 1024; `MB` and `MiB` are the same as `M`.
* **Times**: `500ms`, `10s`, `100m`, `3h`, `2d`, `5w`. A plain number is allowed only where the setting's name says
  its unit. What somebody waits for (time-outs, `keepAlive`, `spark.trigger`, the times of a slice) is at most `1w`.
* **`${NAME}`** in a value is replaced by the environment variable NAME, which must be set. `$${` stands for `${`.
"""

_MERGE = """\
## Policies

A policy may be set for the cluster (`policies`), for a namespace (`namespaces.<tenant/namespace>.policies`) and for a
topic (`namespaces.<tenant/namespace>.topics.<persistent://…>.policies`). At namespace and topic level `enabled` may
also stand beside `policies`. The levels are merged **field by field, the most specific one wins**, and a level that
does not name a field says nothing about it; defaults come after the merge. What is set for a partitioned topic holds
for its partitions; a partition that is named itself wins over that.

A namespace can also be switched in Pulsar, by its property `offloader.enabled` (`true` or `false`):
`pulsar-admin namespaces set-property -k offloader.enabled -v true tenant/namespace`. Who decides whether a topic is
offloaded, the first one that says anything:

1. the file, for the partition, then for the topic
2. the file, for the namespace
3. the namespace's property in Pulsar
4. the file, for the cluster; without that, `false`

A topic that was offloaded and is not enabled any more, by `false` or because nothing enables it, is *paused*. What was
uploaded of it is committed, and nothing more is read. Its subscription stays, and Pulsar keeps what is written: this
counts against a backlog quota, and the alarm [`paused`](running.md#paused), `offloader topics list` and
`offloader_paused_bytes` show it. Enable the topic again, or release it: `offloader topics release` offloads it up to
its end and deletes its subscription, for a topic or for a namespace.

`maxBytesPerSecond` is the one field that is not merged: the limits of all three levels hold at the same time.
"""

_LIMITS = """\
### Limits, checked after the merge

* `partSizeInBytes` is at least 5M where `storage.root` is on S3.
* `blockSizeInBytes` is at most `partSizeInBytes`.
* `maxOffloadSegmentSizeInBytes` and `maxEntrySizeInBytes` (plus 64K for its metadata) stay together below 2 GiB,
  because Java readers hold lengths in 32 bits.
* `minOffloadSegmentRolloverTimeInSeconds` is at most `maxOffloadSegmentRolloverTimeInSeconds`.
* `source: bookkeeper` needs `pulsar.metadataServiceUri`.

A violated limit is reported at the level that set the value at fault. A worker process holds at most `threadsPerTask`
x (16 MiB that are read ahead + 5 x `partSizeInBytes` + `blockSizeInBytes` + the largest entry) of data in memory for
each of its tasks: three parts are sent at a time, one of which may be there twice, as it was cut and as it goes out,
and meanwhile the next one is cut. The slow lane's one task holds at most `slowLane.threads` x (2 MiB that are read
ahead + 5 x `partSizeInBytes` + `blockSizeInBytes` + the largest entry).
"""


def render() -> str:
    """The page."""
    parts = [
        _INTRO,
        _section("Top level", Config, ""),
        *_sections(Config, ""),
        _MERGE,
        _policy_table(),
        _LIMITS,
        _refused(),
    ]
    return wrapped("\n".join(parts))


def _sections(model: type[BaseModel], above: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = section_of(field)
        if inner is None or inner is PolicyLevel or named(field):
            continue
        path = f"{above}{field.alias or name}"
        yield _section(f"`{path}`", inner, (inner.__doc__ or "").partition("\n")[0] + "\n\n")
        yield from _sections(inner, f"{path}.")


def _section(title: str, model: type[BaseModel], text: str) -> str:
    rows = [_row(field, _default(field)) for field in model.model_fields.values() if section_of(field) is None]
    table = "| setting | type | default | meaning |\n| --- | --- | --- | --- |\n" + "".join(f"{row}\n" for row in rows)
    return f"## {title}\n\n{text}{table}"


def _row(field: FieldInfo, default: str, *more: str) -> str:
    cells = (f"`{field.alias}`", _type(field.annotation, _kind(field)), default, *more, field.description or "")
    return "| " + " | ".join(cells) + " |"


def _policy_table() -> str:
    rows = []
    for name, field in PolicyLevel.model_fields.items():
        aliases = ", ".join(f"`{alias}`" for alias, a in ALIASES.items() if a.target == field.alias)
        rows.append(_row(field, _value(DEFAULTS[name], _kind(field)), "cluster, namespace, topic", aliases or "-"))
    head = "| setting | type | default | levels | also accepted as | meaning |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + "".join(f"{row}\n" for row in rows)


def _refused() -> str:
    reasons: dict[str, list[str]] = {}
    for name, reason in REFUSED.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    head = (
        "### Names of Pulsar that are refused\n\nTheir meaning does not fit; the error says so.\n\n| name | why, and "
        "what to use |\n"
    )
    return (
        head + "| --- | --- |\n" + "".join(f"| {', '.join(names)} | {reason} |\n" for reason, names in reasons.items())
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return _value(field.get_default(call_default_factory=True, validated_data={}), _kind(field))


def _value(value: Any, kind: UnitKind | None) -> str:
    if value is None or value == {}:
        return "-"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{kind.format(value) if kind else value}`"


def _kind(field: FieldInfo) -> UnitKind | None:
    found = [k for k in (*field.metadata, *_metadata(field.annotation)) if isinstance(k, UnitKind)]
    return found[0] if found else None


def _metadata(annotation: Any) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for inner in get_args(annotation):
        yield from _metadata(inner)


def _type(annotation: Any, kind: UnitKind | None) -> str:
    if kind is not None:
        return kind.name
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return next(_type(a, None) for a in get_args(annotation) if a is not type(None))
    if origin is Literal:
        return " or ".join(f"`{a}`" for a in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    words = {
        str: "text",
        int: "number",
        float: "number",
        bool: "boolean",
        dict: "mapping",
        list: "list",
        SecretStr: "text (never shown)",
        QuietHours: "time of day",
    }
    return words[origin or annotation]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")

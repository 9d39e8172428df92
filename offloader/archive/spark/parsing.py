"""The options of `pulsar-archive`, named as in pulsar-spark. Spark hands them over in lower case."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from offloader.archive.messages.message import parse_message_size
from offloader.archive.spark.options import Form, LedgerBucketOptions, SourceOptions
from offloader.archive.spark.values import (
    parse_choice,
    parse_files,
    parse_names,
    parse_namespace,
    parse_pattern,
    parse_positions,
    parse_publish_time,
    parse_switch,
    parse_topics,
)
from offloader.config.units import parse_size, parse_time
from offloader.errors import ConfigError
from offloader.model import KIB, TopicName
from offloader.storage.settings import StoreSettings

STORAGE = "storage."


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options as Spark has them. Raises ConfigError: one line that begins with the option's name."""
    lower = {name.lower(): value for name, value in given.items()}
    storage = {name.removeprefix(STORAGE): value for name, value in lower.items() if name.startswith(STORAGE)}
    known = {_known(name): value for name, value in lower.items() if not name.startswith(STORAGE)}
    values = {_FIELDS[name][0]: _parsed(name, value) for name, value in known.items() if name in _FIELDS}
    store = _store(known, storage)
    ledgers = _ledgers(known, store)
    if ledgers is not None and not store.takes_options:  # they are for the ledgers' store
        store = replace(store, options=())
    options = SourceOptions(store, ledgers=ledgers, **values)
    _check_together(options, known)
    return options


def _at_least(least: int, parse: Callable[[str], int]) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        number = parse(text)
        if number < least:
            raise ValueError(f"{text!r} is too small; the least is {least}")
        return number

    return parsed


def _is(word: str, other: str) -> Callable[[str], bool]:
    return lambda text: parse_choice(text, (other, word)) == word


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


# Option -> field of Options, and how its text is read.
_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "topic": ("topics", lambda text: (TopicName.parse(text.strip()),)),
    "topics": ("topics", parse_topics),
    "topicsPattern": ("pattern", parse_pattern),
    "namespace": ("namespace", parse_namespace),
    "format": ("form", lambda text: Form(parse_choice(text, [form.value for form in Form]))),
    "columns": ("columns", parse_names),
    "startingPosition": ("starting_position", parse_positions),
    "endingPosition": ("ending_position", parse_positions),
    "startingTime": ("starting_time", parse_publish_time),
    "endingTime": ("ending_time", parse_publish_time),
    "startingOffsets": ("from_latest", _is("latest", "earliest")),
    "maxPartitionBytes": ("max_partition_bytes", _at_least(1, parse_size)),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _at_least(1, parse_size)),
    "pollInterval": ("poll_ms", lambda text: parse_time(text, 1000)),
    "readSize": ("read_size", _at_least(4 * KIB, parse_size)),
    "prefetch": ("prefetch", _whole),
    "maxMessageSize": ("max_message_size", parse_message_size),
    "maxChunkedMessageSize": ("max_chunked_message_size", parse_message_size),
    "onDamage": ("skip_damage", _is("skip", "fail")),
    "failOnDataLoss": ("fail_on_data_loss", parse_switch),
    "waitingForNonExistedTopic": ("wait_for_topics", parse_switch),
    "pushFilters": ("push_filters", parse_switch),
    "metrics": ("metrics", str),
    "privateKeys": ("private_keys", parse_files),
}
_STORE = ("root", "path", "endpoint", "region", "ledgers", "admin.url", "cluster")
_SELECTIONS = ("topic", "topics", "topicsPattern", "namespace")
# In lower case -> as documented.
_NAMES = {name.lower(): name for name in (*_STORE, *_FIELDS)}


def _known(name: str) -> str:
    """An option's name as documented."""
    if name in _NAMES:
        return _NAMES[name]
    close = difflib.get_close_matches(name, _NAMES, n=1)
    meant = f"did you mean {_NAMES[close[0]]}?" if close else f"there are {', '.join(sorted(_NAMES.values()))}"
    raise ConfigError(f"{name}: no option of pulsar-archive; {meant}")


def _parsed(name: str, text: str) -> Any:
    try:
        return _FIELDS[name][1](text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _store(known: Mapping[str, str], storage: Mapping[str, str]) -> StoreSettings:
    roots = [known[name] for name in ("root", "path") if name in known]
    if len(roots) != 1:
        raise ConfigError(
            "root: name the archive's root once, for example s3://bucket/prefix (as this option or in load())"
        )
    return StoreSettings(roots[0], known.get("endpoint"), known.get("region"), options=tuple(sorted(storage.items())))


def _ledgers(known: Mapping[str, str], archive: StoreSettings) -> LedgerBucketOptions | None:
    if "ledgers" in known:
        return LedgerBucketOptions(
            archive.beside(known["ledgers"], "ledgers"), known.get("admin.url"), known.get("cluster")
        )
    for name in ("admin.url", "cluster"):
        if name in known:
            raise ConfigError(f"{name}: it is only for option ledgers, the bucket that stock brokers have offloaded to")
    return None


def _check_together(options: SourceOptions, known: Mapping[str, str]) -> None:
    selections = [name for name in _SELECTIONS if name in known]
    if len(selections) != 1:
        raise ConfigError("topics: give exactly one of topic, topics, topicsPattern and namespace")
    for one, other in (("startingPosition", "startingTime"), ("endingPosition", "endingTime")):
        if one in known and other in known:
            raise ConfigError(f"{one}: give either this or {other}")
    for name, positions in options.positions:
        if positions.only is not None and len(options.topics) != 1:
            raise ConfigError(
                f'{name}: LEDGER:ENTRY is for one topic; for several write JSON {{"TOPIC": "LEDGER:ENTRY"}}'
            )
    start, end = options.starting_time, options.ending_time
    if start is not None and end is not None and start > end:
        raise ConfigError("endingTime: it is before startingTime")

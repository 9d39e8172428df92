"""What lies in a folder, in the order of keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from offloader.storage import rules


def walk(folder: Path, base: str, prefix: str, start_after: str) -> Iterator[tuple[str, int]]:
    """(key, size) of the files below a folder, in key order."""
    for name, entry in entries(folder, base, prefix, start_after):
        key = base + name
        if name.endswith("/"):
            yield from walk(Path(entry.path), key, prefix, start_after)
        else:
            with suppress(FileNotFoundError):  # deleted since the folder was read
                yield key, entry.stat().st_size


def entries(folder: Path, base: str, prefix: str = "", start_after: str = "") -> list[tuple[str, os.DirEntry[str]]]:
    """What may be wanted of a folder: nothing else is kept, however much there is."""
    # Sorted with the slash that folders have in keys: "a-b" comes before "a/b".
    try:
        with os.scandir(folder) as found:
            all_named = ((entry.name + "/" if entry.is_dir() else entry.name, entry) for entry in found)
            named = [item for item in all_named if rules.may_be_listed(base + item[0], prefix, start_after)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    helpers = () if base else tuple(f"{name}/" for name in rules.HELPER_FOLDERS)
    return sorted((item for item in named if item[0] not in helpers), key=lambda item: item[0])

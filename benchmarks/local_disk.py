"""`local-disk`: packing entries and uploading them to a local disk, beside a plain copy of the same bytes to that
disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from benchmarks.cutter import PER_RUN, cut_runs, entry_of
from benchmarks.figures import Figure, Report, rates
from benchmarks.options import Options
from offloader.format.cutter import CutPart
from offloader.model import KIB, MIB
from offloader.offload.worker.part_uploads import PartUploads
from offloader.ports.object_store import UploadedPart
from offloader.storage.local import LocalStore

TOTAL = 512 * MIB
CHUNK = 8 * MIB
TARGET = 0.5


def run(options: Options) -> Report:
    figures: list[Figure] = []
    for size in (100 * KIB, KIB):
        figures += _one_size(options, size)
    written = _written_per_byte(options.folder)
    figures.append(
        Figure(
            "bytes written per byte of object", written, "", written, "one write", "<= 1.01: in place", written <= 1.01
        )
    )
    return Report(
        "local-disk",
        f"{TOTAL // MIB} MiB of entries from memory to {options.folder.parent}",
        figures,
        (
            "plain copy: write() of 8 MiB at a time, one fsync at the end; the store syncs each part, so that a "
            "receipt is a promise",
        ),
    )


def _one_size(options: Options, size: int) -> list[Figure]:
    store = LocalStore(options.folder / "store")
    entries = list(_entries(size))
    copied, packed = f"plain copy, {size // KIB} KiB", f"pack and upload, {size // KIB} KiB"
    works: dict[str, Callable[[], int]] = {
        copied: lambda: _copy(entries, options.folder / "copy"),
        packed: lambda: _pack(entries, store),
    }
    measured: dict[str, list[float]] = {name: [] for name in works}
    for number in range(options.rounds + 1):
        for name in list(works) if number % 2 else reversed(works):
            rate = _rate(works[name])
            if number:  # the first round warms up
                measured[name].append(rate)
    return rates(measured, copied, targets={packed: (f">= {TARGET}", TARGET)})


def _entries(size: int) -> Iterator[bytes]:
    distinct = [entry_of(size) for _ in range(CHUNK // size)]
    for number in range(TOTAL // size):
        yield distinct[number % len(distinct)]


def _rate(work: Callable[[], int]) -> float:
    begun = time.perf_counter()
    size = work()
    return size / (time.perf_counter() - begun) / 1e6


def _copy(entries: list[bytes], path: Path) -> int:
    per_chunk = CHUNK // len(entries[0])
    chunk = b"".join(entries[:per_chunk])
    with path.open("wb", buffering=0) as file:
        for _ in range(0, len(entries), per_chunk):
            file.write(chunk)
        os.fsync(file.fileno())
        size = file.tell()
    path.unlink()
    return size


def _pack(entries: list[bytes], store: LocalStore) -> int:
    key = f"tenant/namespace/topic/{time.time_ns()}"
    upload = store.begin(key)
    uploads = PartUploads(store, key, upload)
    size = store.commit(upload, list(_uploaded(uploads, cut_runs(entries, PER_RUN)))).size
    store.delete([key])
    return size


def _uploaded(uploads: PartUploads, cuts: Iterable[CutPart]) -> Iterator[UploadedPart]:
    """As slices do it: a few parts on their way while the next one is cut."""
    with closing(uploads):
        for sent in chain(chain.from_iterable(map(uploads.start, cuts)), uploads.finish()):
            yield UploadedPart(sent.cut.number, sent.cut.size, sent.etag, sent.crc32c)


def _written_per_byte(folder: Path) -> float:
    """How often each byte goes to the disk, as the kernel counts what this process writes (proc(5), io: wchar)."""
    entries = list(_entries(100 * KIB))
    before = _written()
    size = _pack(entries, LocalStore(folder / "store"))
    return (_written() - before) / size


def _written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))

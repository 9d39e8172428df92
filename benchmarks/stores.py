"""`stores`: what one process gets out of each store beside S3: bytes in parts, small objects, ranges, requests, memory.

The servers are those of the tests, on this machine, so the figures compare our side and the protocols, not services.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from benchmarks.figures import Figure, Report, median_ratio
from benchmarks.options import Options
from integration import azurite, fake_gcs, versitygw
from integration.hdfs import cluster
from offloader.model import KIB, MIB
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.storage.proxy import Proxy
from tests.storage.servers import S3Server

S3 = "S3 (versitygw)"
PART, PARTS = 8 * MIB, 16
SMALL, OBJECTS = 2 * KIB, 50
RANGE = 64 * KIB


@dataclass(frozen=True)
class Served:
    """A store of a server that runs. `counted`: the same through proxies, which count requests; None: no server."""

    settings: StoreSettings
    counted: Callable[[ExitStack], tuple[StoreSettings, list[Proxy]]] | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One round of one store in a process of its own. Seconds, and bytes of memory that it took beyond its start."""

    parts_s: float
    commit_s: float
    read_s: float
    ranges_s: float
    objects_s: float
    processor_s: float
    memory: int


def run(options: Options) -> Report:
    figures: list[Figure] = []
    with serving(options.folder / "stores") as stores:
        rounds: dict[str, list[Measured]] = defaultdict(list)
        for number in range(options.rounds):
            for name in list(stores) if number % 2 else reversed(stores):
                options.say(f"stores: {name}, round {number + 1}")
                rounds[name].append(_in_a_process(stores[name].settings))
        requests = {name: _requests(store) for name, store in stores.items() if store.counted is not None}
    figures += _rates("parts of 8 MiB", PART * PARTS / 1e6, "MB/s", rounds, lambda m: m.parts_s)
    figures += _rates("read in ranges of 8 MiB", PART * PARTS / 1e6, "MB/s", rounds, lambda m: m.read_s)
    figures += _rates("ranges of 64 KiB", OBJECTS, "a second", rounds, lambda m: m.ranges_s)
    figures += _rates("creates of 2 KiB", OBJECTS, "a second", rounds, lambda m: m.objects_s)
    for name, measured in rounds.items():
        figures.append(Figure(f"commit of {PARTS} parts, {name}", 1000 * _least(measured, lambda m: m.commit_s), "ms"))
    for name, measured in rounds.items():
        figures.append(Figure(f"processor time, {name}", _least(measured, lambda m: m.processor_s), "s"))
    for name, measured in rounds.items():
        figures.append(Figure(f"memory, {name}", max(m.memory for m in measured) / MIB, "MiB"))
    for what in next(iter(requests.values())):
        figures += [Figure(f"requests: {what}, {name}", found[what], "") for name, found in requests.items()]
    return Report(
        "stores",
        f"{PARTS} parts of {PART // MIB} MiB written and read, {OBJECTS} small objects and ranges, one after the other",
        figures,
        (
            "ratio: to S3 of the same round; processor time: of the client, for all of a round",
            "memory: the most that a process took beyond what it had before its first part",
        ),
    )


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, Served]]:
    """All stores that this machine can serve."""
    with ExitStack() as stack:
        s3 = stack.enter_context(versitygw.running(folder / "s3"))
        google = stack.enter_context(fake_gcs.running(folder / "google"))
        hdfs = stack.enter_context(cluster.running(folder / "hdfs"))
        azure = stack.enter_context(azurite.running(folder / "azure"))

        def by_url(server: S3Server | fake_gcs.GoogleServer | azurite.AzuriteServer) -> Served:
            root = server.fresh_root()

            def counted(own: ExitStack) -> tuple[StoreSettings, list[Proxy]]:
                proxy = own.enter_context(Proxy(server.host, server.port))
                return server.settings(root, endpoint=proxy.url), [proxy]

            return Served(server.settings(root), counted)

        def of_hdfs(own: ExitStack) -> tuple[StoreSettings, list[Proxy]]:
            namenode, datanode = hdfs.proxies(own)
            return hdfs.settings(namenode.port), [namenode, datanode]

        yield {
            S3: by_url(s3),
            "folder": Served(StoreSettings((folder / "folder").as_uri())),
            "Google (fake-gcs-server)": by_url(google),
            "Azure (Azurite)": by_url(azure),
            "HDFS (mini cluster)": Served(hdfs.settings(), of_hdfs),
        }


def _in_a_process(settings: StoreSettings) -> Measured:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, settings).result()


def measure(settings: StoreSettings) -> Measured:
    """Write and read with one thread."""
    store = open_store(settings)
    data = bytes(range(256)) * (PART // 256)
    key = f"t/{time.time_ns()}"
    store.put(f"{key}/first", b"x", if_absent=True)
    store.read(f"{key}/first")
    memory, processor = _memory(), time.process_time()
    upload = store.begin(f"{key}/object")
    parts: list[UploadedPart] = []
    parts_s = _seconds(lambda: parts.extend(_parts(store, upload, data)))
    commit_s = _seconds(lambda: store.commit(upload, parts))
    read_s = _seconds_of(PARTS, lambda n: store.read(f"{key}/object", PART * n, PART))
    ranges_s = _seconds_of(OBJECTS, lambda n: store.read(f"{key}/object", PART * (n % PARTS), RANGE))
    objects_s = _seconds_of(OBJECTS, lambda n: store.put(f"{key}/{n}", data[:SMALL], if_absent=True))
    measured = Measured(
        parts_s, commit_s, read_s, ranges_s, objects_s, time.process_time() - processor, _memory() - memory
    )
    store.delete([f"{key}/object", f"{key}/first", *(f"{key}/{n}" for n in range(OBJECTS))])
    store.close()
    return measured


def _parts(store: ObjectStore, upload: str, data: bytes) -> Iterator[UploadedPart]:
    checksum = crc32c(data)
    for n in range(PARTS):
        yield store.put_part(upload, n + 1, n * PART, data, checksum)


def _requests(served: Served) -> dict[str, int]:
    """How many requests each call makes, once the store has tried what its server does."""
    assert served.counted is not None
    with ExitStack() as stack:
        settings, proxies = served.counted(stack)
        store = open_store(settings)
        stack.callback(store.close)  # before the proxies, which wait for its connections
        store.put("counted/first", b"x")
        parts: list[UploadedPart] = []
        upload = store.begin("counted/object")
        calls: dict[str, Callable[[], object]] = {
            "create": lambda: store.put("counted/one", b"1", if_absent=True),
            "create, another was first": lambda: store.put("counted/one", b"2", if_absent=True),
            "part": lambda: parts.append(store.put_part(upload, 1, 0, b"1", crc32c(b"1"))),
            "commit": lambda: store.commit(upload, parts),
            "range": lambda: store.read("counted/object", 0, 1),
            "look": lambda: store.stat("counted/object"),
            "listing": lambda: list(store.list("counted/")),
            "deletion of two": lambda: store.delete(["counted/one", "counted/object"]),
        }
        found = {}
        for what, call in calls.items():
            before = sum(len(proxy.requests) for proxy in proxies)
            call()
            found[what] = sum(len(proxy.requests) for proxy in proxies) - before
        return found


def _rates(
    what: str, amount: float, unit: str, rounds: dict[str, list[Measured]], seconds: Callable[[Measured], float]
) -> Iterator[Figure]:
    found = {name: [amount / seconds(m) for m in measured] for name, measured in rounds.items()}
    for name in sorted(found, key=lambda name: name != S3):
        ratio = None if name == S3 else median_ratio(found[name], found[S3])
        yield Figure(f"{what}, {name}", max(found[name]), unit, ratio, "" if ratio is None else S3)


def _least(measured: list[Measured], seconds: Callable[[Measured], float]) -> float:
    return min(seconds(m) for m in measured)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _seconds_of(times: int, work: Callable[[int], object]) -> float:
    begun = time.perf_counter()
    for n in range(times):
        work(n)
    return time.perf_counter() - begun


def _memory() -> int:
    """The most that this process has held so far, as the kernel counts it (getrusage counts its parent, too)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * KIB

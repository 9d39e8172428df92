"""Which module may import what: the rooms of docs/design.md, told by the imports that stand in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "offloader"
MODULES = {".".join(p.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): p for p in ROOT.rglob("*.py")}

# What does I/O: our own rooms, and the libraries that they are made of.
ROOMS_WITH_IO = tuple(
    f"offloader.{room}" for room in ("storage", "pulsar", "bookkeeper", "metadata", "streaming", "archive", "cli", "metrics")
)
NETWORK = ("socket", "ssl", "httpx", "httpcore", "urllib.request", "http", "selectors", "asyncio", "subprocess")
SDKS = ("boto3", "botocore", "fsspec", "google.cloud", "azure")
LIBRARIES_WITH_IO = (*NETWORK, *SDKS, "pyspark", "pathlib", "shutil", "tempfile")
PURE = (
    "offloader.format",
    "offloader.model",
    "offloader.errors",
    "offloader.offload.core.planner",
    "offloader.offload.core.lanes",
)
# Pure themselves, in rooms that are not.
PURE_NEIGHBOURS = (
    "offloader.offload.core.segments",
    "offloader.metadata.state",
    "offloader.offload.core.planner",
    "offloader.offload.core.lanes",
)
# BookKeeper's words, bytes and rules: pure, too; connections, sessions and threads stand beside them.
PURE_BOOKKEEPER = (
    *(
        f"offloader.bookkeeper.{m}"
        for m in ("model", "coverage", "api", "requests", "availability", "digests", "stored", "status")
    ),
    *(f"offloader.bookkeeper.{m}" for m in ("frames", "v2", "v3", "auth", "reading.runs", "reading.sizes", "reading.verdict")),
    *(
        f"offloader.bookkeeper.recovery.{m}"
        for m in ("machine", "fencing", "forward", "candidate", "decisions", "replacing", "messages", "answers")
    ),
    "offloader.pulsar.api",
)


@cache
def imports(module: str) -> tuple[str, ...]:
    """Every module that is imported anywhere in this one."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES or within(name, SDKS) else node.module or "" for name in names)


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def breaches(modules: tuple[str, ...], forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    """`module imports what it must not`, for the modules within these rooms."""
    return [
        f"{module} imports {name}"
        for module in sorted(MODULES)
        if within(module, modules)
        for name in imports(module)
        if within(name, forbidden) and not within(name, allowed)
    ]


def breaches_outside(rooms: tuple[str, ...], libraries: tuple[str, ...]) -> list[str]:
    return [breach for breach in breaches(("offloader",), libraries) if not within(breach.partition(" ")[0], rooms)]


def test_what_is_pure_imports_nothing_that_does_io() -> None:
    assert breaches(PURE, (*ROOMS_WITH_IO, *LIBRARIES_WITH_IO), PURE_NEIGHBOURS) == []
    assert breaches(PURE_NEIGHBOURS, (*ROOMS_WITH_IO, *LIBRARIES_WITH_IO), PURE_NEIGHBOURS) == []
    assert breaches(PURE_BOOKKEEPER, (*ROOMS_WITH_IO, *LIBRARIES_WITH_IO, "kazoo"), PURE_BOOKKEEPER) == []


def test_the_names_of_pure_modules_are_those_of_modules() -> None:
    assert [name for name in (*PURE, *PURE_NEIGHBOURS, *PURE_BOOKKEEPER) if name not in MODULES] == []


@pytest.mark.parametrize(
    ("libraries", "rooms"),
    [
        (SDKS, ("offloader.storage",)),
        (("pyspark",), ("offloader.offload", "offloader.archive")),
        (
            ("socket", "ssl"),  # to a cluster; the others listen, or play one
            (
                *("offloader.pulsar", "offloader.bookkeeper"),
                *("offloader.metrics", "offloader.offload.spark.plan_server", "dev.embedded", "offloader.testing"),
            ),
        ),
    ],
)
def test_a_library_stays_in_its_rooms(libraries: tuple[str, ...], rooms: tuple[str, ...]) -> None:
    assert breaches_outside(rooms, libraries) == []


def test_within_bookkeeper_few_modules_reach_out() -> None:
    def importers(*libraries: str) -> set[str]:
        return {module for module in MODULES for name in imports(module) if within(name, libraries)}

    assert importers("kazoo") == {"offloader.bookkeeper.zookeeper"}
    assert importers("asyncio") == {
        f"offloader.bookkeeper.{module}" for module in ("bookies", "connection", "links", "transport")
    }


def test_a_breach_is_seen() -> None:
    assert "offloader.storage.s3_client imports botocore.config.Config" in breaches(("offloader.storage",), SDKS)
    assert any(
        name.startswith("offloader.offload.spark.session imports pyspark") for name in breaches(("offloader",), ("pyspark",))
    )

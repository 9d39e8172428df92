"""The house's rules, as CONTRIBUTING.md has them in its table of wings: who may import whom, what is pure, and one name
for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILES = [
    path for folder in ("offloader", "dev") for path in (ROOT / folder).rglob("*.py") if "_proto" not in path.parts
]
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in FILES}

# Whoever imports one of these waits for something, or changes the world.
IO = (
    *(
        "socket",
        "ssl",
        "httpx",
        "httpcore",
        "urllib.request",
        "http",
        "selectors",
        "asyncio",
        "subprocess",
        "shutil",
        "tempfile",
    ),
    *(
        "os",
        "time",
        "threading",
        "queue",
        "concurrent.futures.ThreadPoolExecutor",
        "concurrent.futures.wait",
        "random.SystemRandom",
    ),
    *("boto3", "botocore", "fsspec", "google.cloud", "azure", "kazoo", "pyspark"),
)
VALUES = ("pyspark.sql.datasource",)  # Spark's filters: values, though they live beside what does I/O
EVERYWHERE = ("errors", "model", "_proto")


class Wing(NamedTuple):
    """A line of the table. `imports` None: all lines above it."""

    imports: frozenset[str] | None
    libraries: frozenset[str]


def table() -> dict[str, Wing]:
    """The wings by name, in the order of the page; names that share a line are wings of their own."""
    found: dict[str, Wing] = {}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for line in re.findall(r"^\| `.*\|$", text.partition("## The wings")[2].partition("\n## ")[0], re.M):
        names, _, imports, libraries = (cell.strip() for cell in line.strip("|").split("|"))
        shared = set(_quoted(names))
        allowed = None if imports == "all of these" else frozenset({*_quoted(imports), *shared})
        found |= {name: Wing(allowed, frozenset(_quoted(libraries))) for name in _quoted(names)}
    return found


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def parts_of_their_own() -> tuple[str, ...]:
    """Parts of packages that are wings of their own, and have a dot in their names."""
    return tuple(name for name in table() if "." in name)


@cache
def wing_of(module: str) -> str:
    top, _, rest = module.partition(".")
    part = next((name for name in parts_of_their_own() if within(rest, (name,))), "")
    return (part or rest.partition(".")[0]) if top == "offloader" else top


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


@cache
def imports(module: str) -> frozenset[str]:
    """Every module, or name of a library's module, that is imported anywhere in this one."""
    return frozenset(_imports(ast.parse(MODULES[module].read_text()), module))


def _imports(tree: ast.Module, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES or not within(name, ("offloader", "dev")) else str(node.module)


def ours(module: str) -> set[str]:
    return {name for name in imports(module) if name in MODULES and name != module}


def everything_behind(module: str) -> set[str]:
    """The module, and all of ours that it imports by whatever way."""
    found, due = {module}, [module]
    while due:
        new = ours(due.pop()) - found
        found |= new
        due += new
    return found


def claims_to_be_pure(module: str) -> bool:
    """It says so, or the package does that it is in."""
    packages = [module.rsplit(".", n)[0] for n in range(module.count("."))]
    return any(re.search(r"\bPure\.|\bPure[ ,]|[Nn]o I/O\b", _summary(name)) for name in packages)


def _summary(module: str) -> str:
    return (ast.get_docstring(ast.parse(MODULES[module].read_text())) or "").partition("\n\n")[0]


def test_each_wing_has_a_line_and_each_line_a_wing() -> None:
    there = {wing_of(module) for module in MODULES} - {""}
    assert set(table()) == there


def test_imports_go_only_where_the_table_says() -> None:
    wings, breaches = table(), []
    order = list(wings)
    for module in sorted(MODULES):
        wing = wing_of(module)
        allowed = wings[wing].imports if wing else frozenset({"archive", "storage", "pulsar"})
        may = set(order[: order.index(wing)]) if allowed is None else {*allowed, *EVERYWHERE}
        breaches += [
            f"{module} imports {name}" for name in sorted(ours(module)) if wing_of(name) not in {*may, wing, ""}
        ]
    assert breaches == []


def test_no_line_imports_one_below_it() -> None:
    order = list(table())
    up = [
        f"{wing} imports {name}"
        for wing, line in table().items()
        for name in line.imports or ()
        if order.index(name) > order.index(wing) and line.imports != wings_beside(name)
    ]
    assert up == []


def wings_beside(name: str) -> frozenset[str] | None:
    """What the wings that share a line may import."""
    return table()[name].imports


def test_the_driver_knows_features_by_their_protocol_alone() -> None:
    decides = (
        "offloader.offload.driver",
        "offloader.offload.core",
        "offloader.offload.worker",
        "offloader.offload.live",
    )
    breaches = [
        f"{module} imports {name}"
        for module in MODULES
        for name in ours(module)
        if within(module, decides) and within(name, ("offloader.bridge",))
    ]
    assert breaches == []


def test_a_line_names_no_import_that_is_not_needed() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        used[wing_of(module)] |= {wing_of(name) for name in ours(module)}
    idle = {
        wing: unused
        for wing, line in table().items()
        if line.imports is not None
        and (unused := line.imports - used_on_the_line(used, line) - {wing})
        and unused != line.imports
    }
    assert idle == {}


def used_on_the_line(used: dict[str, set[str]], line: Wing) -> set[str]:
    return {name for wing, other in table().items() if other is line or other == line for name in {*used[wing], wing}}


def test_a_library_stays_in_the_wings_that_name_it() -> None:
    homes: dict[str, set[str]] = defaultdict(lambda: {"dev"})
    for wing, line in table().items():
        for library in line.libraries:
            homes[library].add(wing)
    breaches = [
        f"{module} imports {name}"
        for module in sorted(MODULES)
        for name in sorted(imports(module))
        for library, wings in homes.items()
        if wing_of(module) not in wings and within(name, (library,))
    ]
    assert breaches == []


def test_no_imports_go_round() -> None:
    TopologicalSorter({module: ours(module) for module in MODULES}).prepare()  # raises CycleError


def test_what_says_that_it_is_pure_reaches_nothing_that_does_io() -> None:
    pure = [module for module in MODULES if claims_to_be_pure(module)]
    breaches = [
        f"{module}: {behind} imports {name}"
        for module in sorted(pure)
        for behind in sorted(everything_behind(module))
        for name in sorted(imports(behind))
        if within(name, IO) and not within(name, VALUES)
    ]
    assert breaches == []
    assert len(pure) > 110


def test_what_decides_says_that_it_is_pure() -> None:
    decides = ("offloader.model", "offloader.format", "offloader.offload.core", "offloader.ports")
    assert [module for module in MODULES if within(module, decides) and not claims_to_be_pure(module)] == []


def test_one_name_is_of_one_class() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_whatever_is_imported_from_the_house_is_there() -> None:
    """In tests that need a cluster, too, which run late."""
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for folder in ("integration", "benchmarks", "examples", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and within(node.module or "", ("offloader", "dev", "integration", "tests"))
        for alias in node.names
        if not is_there(node.module or "", alias.name)
    ]
    assert missing == []


def is_there(module: str, name: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    if (path / f"{name}.py").exists() or (path / name).is_dir():
        return True
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return module.startswith("offloader._proto") or (
        file.exists() and re.search(rf"\b{name}\b", file.read_text()) is not None
    )


def test_within_bookkeeper_few_modules_reach_out() -> None:
    def importers(*libraries: str) -> set[str]:
        return {module for module in MODULES for name in imports(module) if within(name, libraries)}

    assert importers("kazoo") == {"offloader.bookkeeper.zookeeper"}
    on_loops = {module for module in importers("asyncio") if wing_of(module) != "gateway"}
    assert on_loops == {f"offloader.bookkeeper.{module}" for module in ("bookies", "connection")}


def test_a_breach_is_seen() -> None:
    assert "botocore.config.Config" in imports("offloader.storage.s3_client")
    assert "offloader.storage.s3_calls" in everything_behind("offloader.storage.s3")
    assert not claims_to_be_pure("offloader.storage.s3")

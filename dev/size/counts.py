"""What a checkout's source text shows: files, lines, classes, importers, internal names and private members."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PRODUCT, TESTS = "offloader", "tests"
GENERATED = "_proto"
FOR_USERS = ("offloader", "offloader.cli.main")  # what users import and what the command runs: not internal
NAMED_TUPLE = ("_replace", "_asdict", "_fields", "_make")  # public by its documentation, in spite of the underscore
FOR_TESTS = "offloader.testing"  # written for tests: no name in it is internal to the product


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file. `imports`: the module and the name of each import; a name is empty for `import module`."""

    name: str
    lines: int
    tree: ast.Module
    imports: frozenset[tuple[str, str]]


def read_modules(root: Path, folder: str) -> dict[str, Module]:
    """The modules under a folder of a checkout, by their dotted names, without generated ones."""
    modules = {}
    for path in sorted((root / folder).rglob("*.py")):
        if GENERATED in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, text.count("\n"), tree, frozenset(_imports(tree)))
    return modules


def count(root: Path) -> dict[str, int]:
    """The rows of the table that need no run, by their titles."""
    product, tests = read_modules(root, PRODUCT), read_modules(root, TESTS)
    importers = _importers(product)
    return {
        "files of offloader/": len(product),
        "lines of offloader/": sum(module.lines for module in product.values()),
        "files of tests/": len(tests),
        "lines of tests/": sum(module.lines for module in tests.values()),
        "classes in offloader/": sum(_classes(module.tree) for module in product.values()),
        "modules with one importing module": sum(len(importers[name]) == 1 for name in product),
        "internal names that only tests import": len(internal_names(product, tests)),
        "private members that tests access": sum(_private_accesses(module.tree) for module in tests.values()),
    }


def internal_names(product: dict[str, Module], tests: dict[str, Module]) -> set[tuple[str, str]]:
    """The (module, name) pairs that tests import, and neither users nor another package directly below `offloader`."""
    outside = {
        (source, name)
        for module in product.values()
        for source, name in module.imports
        if _package(module.name) != _package(source)
    }
    imported = {pair for module in tests.values() for pair in module.imports}
    return {
        (source, name)
        for source, name in imported - outside
        if name and source in product and f"{source}.{name}" not in product
        if source not in FOR_USERS and not source.startswith(FOR_TESTS)
    }


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def _importers(modules: dict[str, Module]) -> dict[str, set[str]]:
    importers = defaultdict[str, set[str]](set)
    for module in modules.values():
        for source, name in module.imports:
            submodule = f"{source}.{name}"
            target = submodule if submodule in modules else source
            if target != module.name:
                importers[target].add(module.name)
    return importers


def _classes(tree: ast.Module) -> int:
    return sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree))


def _private_accesses(tree: ast.Module) -> int:
    return sum(isinstance(node, ast.Attribute) and _is_private_access(node) for node in ast.walk(tree))


def _is_private_access(node: ast.Attribute) -> bool:
    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return node.attr.startswith("_") and not node.attr.startswith("__") and not own and node.attr not in NAMED_TUPLE

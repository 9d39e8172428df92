"""What must not be changed of a topic cannot be: each facet is frozen, and has one owner."""

import ast
from dataclasses import fields
from pathlib import Path

from offloader.offload import driver
from offloader.offload.core.facets import OWNERS
from offloader.offload.core.topic import Topic


def assigned(path: Path) -> set[str]:
    """The attributes that a module assigns, of others than of `self`."""
    found = ast.walk(ast.parse(path.read_text()))
    stored = [node for node in found if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return {node.attr for node in stored if not (isinstance(node.value, ast.Name) and node.value.id == "self")}


def test_each_facet_of_a_topic_is_put_in_place_by_its_owner_alone() -> None:
    (folder,) = driver.__path__
    writers = {(attribute, path.stem) for path in Path(folder).parent.rglob("*.py") for attribute in assigned(path)}
    assert {each.name for each in fields(Topic)} == {"name", *OWNERS}
    assert {pair for pair in writers if pair[0] in OWNERS} == set(OWNERS.items())


def test_one_module_alone_appends_to_catalogs() -> None:
    (folder,) = driver.__path__
    texts = {path.stem: path.read_text() for path in Path(folder).parent.rglob("*.py")}
    assert [name for name, text in texts.items() if "catalogs.append(" in text] == ["committing"]

"""The YAML file as plain values, with the line of each, and nothing silently lost.

Stricter than YAML 1.1, where it surprises: a key may stand only once, only `true` and `false` are booleans (`no` is
text), and only decimal digits are numbers (`010` and `10:30` are text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from offloader.config.problems import ConfigProblem, Path, refuse
from offloader.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_VARIABLE = re.compile(r"\$(?:\$\{|\{([^}]*)\})")


@dataclass(frozen=True, slots=True)
class Document:
    """The file's values, and the line on which each path stands."""

    value: dict[str, Any]
    lines: dict[Path, int]


class _Loader(yaml.SafeLoader):
    """Safe values only, with the plain scalars that people mean."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rules if tag in (_TAG + "null", _TAG + "merge")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_TAG + "bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF"))
_Loader.add_implicit_resolver(_TAG + "int", re.compile(r"-?(?:0|[1-9][0-9]*)$"), list("-0123456789"))
_Loader.add_implicit_resolver(_TAG + "float", re.compile(r"-?[0-9]+\.[0-9]+$"), list("-0123456789"))


def read(text: str, environment: Mapping[str, str]) -> Document:
    """Parse the file and put environment variables in place of `${NAME}`. Raises ConfigError."""
    value, lines = _parse(text)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise ConfigError("configuration: must be a mapping of settings, for example application: NAME")
    problems: list[ConfigProblem] = []
    filled = _fill(value, (), environment, problems)
    refuse(problems, lines)
    return Document(filled, lines)


def _parse(text: str) -> tuple[Any, dict[Path, int]]:
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        raise ConfigError(
            f"configuration: not text that YAML allows: {error.reason} (character {error.position})"
        ) from error
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        lines = {path: line + 1 for path, line in _lines(node, (), ())}
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax(error)) from error
    finally:
        loader.dispose()


def _syntax(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    what = ", ".join(part for part in (error.context, error.problem) if part)
    return f"configuration: not valid YAML: {what}{where}".replace("\n", " ")


def _lines(node: yaml.Node, path: Path, ancestors: tuple[yaml.Node, ...]) -> Iterator[tuple[Path, int]]:
    """Each path below a node and its line; refuses double keys, keys that are not text, and a node inside itself."""
    if any(node is outer for outer in ancestors):
        raise yaml.MarkedYAMLError(problem="a section contains itself", problem_mark=node.start_mark)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _lines(item, path, (*ancestors, node))
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        if key.tag == _TAG + "merge":
            yield from _lines(value, path, (*ancestors, node))
            continue
        name = _key(key, seen)
        yield (*path, name), key.start_mark.line
        yield from _lines(value, (*path, name), (*ancestors, node))


def _key(node: yaml.Node, seen: dict[str, int]) -> str:
    if node.tag != _TAG + "str" or not isinstance(node, yaml.ScalarNode):
        raise yaml.MarkedYAMLError(problem="a name must be text; put it in quotes", problem_mark=node.start_mark)
    name = str(node.value)
    if name in seen:
        problem = f"{name} stands here a second time (first on line {seen[name]}); keep one"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    seen[name] = node.start_mark.line + 1
    return name


def _fill(value: Any, path: Path, environment: Mapping[str, str], problems: list[ConfigProblem]) -> Any:
    if isinstance(value, dict):
        return {k: _fill(v, (*path, k), environment, problems) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, path, environment, problems) for v in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:  # `$${` stands for `${` itself
            return "${"
        if name not in environment:
            problems.append(ConfigProblem(path, f"the environment variable {name!r} is not set"))
        return environment.get(name, "")

    return _VARIABLE.sub(variable, value)

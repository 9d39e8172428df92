"""Brings every spelling of a setting to one: `enabled` inside `policies`, aliases as their field."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from offloader.config.aliases import ALIASES, REFUSED, REMOVED
from offloader.config.document import Document
from offloader.config.problems import ConfigProblem, Path, refuse
from offloader.model import TopicName

_SECTIONS = ("pulsar", "storage", "spark", "policies", "namespaces", "metrics", "limits")
_NAMESPACE = re.compile(r"[^/\s]+/[^/\s]+")


def normalise(document: Document) -> Document:
    """The document with every setting under its own name. Raises ConfigError."""
    normaliser = _Normaliser(document)
    value = normaliser.root(document.value)
    refuse(normaliser.problems, normaliser.lines)
    return Document(value, normaliser.lines)


class _Normaliser:
    """Values that are no mappings pass through: the models refuse them."""

    def __init__(self, document: Document) -> None:
        self.problems: list[ConfigProblem] = []
        self.lines = dict(document.lines)

    def root(self, value: dict[str, Any]) -> dict[str, Any]:
        filled = {k: {} if v is None and k in _SECTIONS else v for k, v in value.items()}
        for (section, *rest), remedy in REMOVED.items():
            if not rest and section in filled:
                self._problem((section,), remedy)
            elif rest and isinstance(inside := filled.get(section), dict) and rest[0] in inside:
                self._problem((section, rest[0]), remedy)
                filled[section] = {name: setting for name, setting in inside.items() if name != rest[0]}
        if isinstance(filled.get("policies"), dict):
            filled["policies"] = self._policies(filled["policies"], ("policies",))
        if "namespaces" in filled:
            filled["namespaces"] = self._each(filled["namespaces"], ("namespaces",), self._namespace)
        return filled

    def _each(self, value: Any, path: Path, visit: Callable[[str, Any, Path], Any]) -> Any:
        if not isinstance(value, dict):
            return {} if value is None else value
        return {name: visit(name, {} if v is None else v, (*path, name)) for name, v in value.items()}

    def _namespace(self, name: str, value: Any, path: Path) -> Any:
        if _NAMESPACE.fullmatch(name) is None:
            self._problem(path, "is not a namespace; write TENANT/NAMESPACE")

        def topic(topic_name: str, section: Any, topic_path: Path) -> Any:
            self._check_topic(topic_name, name, topic_path)
            return self._level(section, topic_path)

        if not isinstance(value, dict):
            return value
        level = self._level(value, path)
        return (
            {**level, "topics": self._each(value["topics"], (*path, "topics"), topic)} if "topics" in value else level
        )

    def _check_topic(self, name: str, namespace: str, path: Path) -> None:
        try:
            topic = TopicName.parse(name)
        except ValueError as error:
            self._problem(path, str(error))
            return
        if str(topic) != name or topic.namespace != namespace:
            self._problem(
                path, f"is not the full name of a topic of this namespace; write persistent://{namespace}/NAME"
            )

    def _level(self, value: Any, path: Path) -> Any:
        """A namespace's or a topic's section, with `enabled` moved into its policies."""
        if not isinstance(value, dict):
            return value
        policies = value.get("policies")
        policies = {} if policies is None else policies
        if not isinstance(policies, dict):
            return value
        inside = self._policies(policies, (*path, "policies"))
        if value.get("enabled") is not None:
            if inside.get("enabled") is not None:
                self._problem((*path, "enabled"), "stands here and in policies; keep one")
            inside["enabled"] = value["enabled"]
            self._moved((*path, "enabled"), (*path, "policies", "enabled"))
        return {**{k: v for k, v in value.items() if k != "enabled"}, "policies": inside}

    def _policies(self, policies: dict[str, Any], path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, value in policies.items():
            if name in REFUSED:
                self._problem((*path, name), REFUSED[name])
                continue
            target = ALIASES[name].target if name in ALIASES else name
            if target in spelled:
                self._problem((*path, name), f"is the same setting as {spelled[target]}; keep one")
                continue
            spelled[target] = name
            result[target] = self._read(name, value, (*path, name))
            self._moved((*path, name), (*path, target))
        return result

    def _read(self, name: str, value: Any, path: Path) -> Any:
        alias = ALIASES.get(name)
        if alias is None or value is None:
            return value
        try:
            return alias.read(value)
        except ValueError as error:
            self._problem(path, str(error))
            return None

    def _moved(self, written: Path, path: Path) -> None:
        if written in self.lines:
            self.lines.setdefault(path, self.lines[written])

    def _problem(self, path: Path, message: str) -> None:
        self.problems.append(ConfigProblem(path, message))

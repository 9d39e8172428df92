"""The models' findings as problems: plain words, and what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from offloader.config.aliases import ALIASES
from offloader.config.levels import PolicyLevel, TopicSection
from offloader.config.problems import ConfigProblem, Path, spell

_WORDS = {
    "missing": "is missing",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be text; put it in quotes",
    "string_too_short": "must not be empty",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a section with settings below it",
}
_MEMBER = re.compile(r"<[\w.]+: ('[^']*')>")  # how pydantic shows an enum's member
_LIMITS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than_equal": ("le", "must be at most"),
}


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[ConfigProblem]:
    """One problem for each error of a validation of `model`."""
    return [_problem(e["type"], tuple(map(str, e["loc"])), e["msg"], e.get("ctx", {}), model) for e in error.errors()]


def _problem(kind: str, path: Path, text: str, context: dict[str, Any], model: type[BaseModel]) -> ConfigProblem:
    if kind == "extra_forbidden":
        return ConfigProblem(path, f"is not a setting{_meant(path, model)}")
    if kind == "value_error":
        return ConfigProblem(path, str(context["error"]))
    if kind in ("enum", "literal_error"):
        expected = _MEMBER.sub(r"\1", context["expected"])
        return ConfigProblem(path, f"must be {expected}")
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return ConfigProblem(path, f"{words} {context[key]}")
    return ConfigProblem(path, _WORDS.get(kind, text[:1].lower() + text[1:]))


def _meant(path: Path, root: type[BaseModel]) -> str:
    """`; did you mean …?`: a similar name here, the same name elsewhere, or else what there is."""
    here = section_at(root, path[:-1])
    if here is None:
        return ""
    settings = [info.alias or name for name, info in here.model_fields.items()]
    if issubclass(here, TopicSection):
        settings.insert(0, "enabled")  # may stand beside `policies` (see `normalise`)
    others = [*settings, *ALIASES] if here is PolicyLevel else settings
    if close := _similar(path[-1], others):
        return f"; did you mean {close}?"
    elsewhere = {p[-1]: p for p in reversed(list(spellings(root)))}
    if close := _similar(path[-1], elsewhere):
        return f" here; did you mean {spell(elsewhere[close])}?"
    return f"; there are {', '.join(settings)}"


def _similar(name: str, names: Iterable[str]) -> str | None:
    lower = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return lower[found[0]] if found else None


def section_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model of the section at a path."""
    if not path:
        return model
    field = next((f for name, f in model.model_fields.items() if (f.alias or name) == path[0]), None)
    inner = field and section_of(field)
    if inner is None or field is None:
        return None
    return section_at(inner, path[1 + named(field) :])


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a section, or a mapping of names to sections."""
    candidates = (field.annotation, *get_args(field.annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def named(field: FieldInfo) -> bool:
    """Whether the field maps names (of namespaces, of topics) to sections, or has several."""
    return get_origin(field.annotation) not in (None, UnionType)


def spellings(model: type[BaseModel], above: Path = ()) -> Iterator[Path]:
    """Paths of all settings outside of `namespaces`."""
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        inner = section_of(field)
        if inner is None:
            yield path
        elif not named(field):
            yield from spellings(inner, path)

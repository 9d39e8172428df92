"""The YAML file: nothing is silently lost, and what is wrong is found at its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.config import Config
from offloader.config.document import read
from offloader.errors import ConfigError
from tests.config.texts import BASE, parse, refused


def error(text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(text, environment)
    return str(raised.value)


def test_a_syntax_error_has_line_and_column() -> None:
    assert (
        error("a: 1\nb: c: d\n")
        == "configuration: not valid YAML: mapping values are not allowed here (line 2, column 5)"
    )


def test_a_tab_and_a_second_document_are_syntax_errors_in_one_line() -> None:
    for text in ("a:\n\t- b", "a: 1\n---\nb: 2\n", "a: !!python/object:os.x {}", "a: *nobody"):
        message = error(text)
        assert len(message.splitlines()) == 1
        assert "(line " in message


def test_a_double_key_is_refused_with_both_places() -> None:
    message = error("a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert (
        message
        == "configuration: not valid YAML: b stands here a second time (first on line 2); keep one (line 4, column 3)"
    )


def test_a_double_key_is_refused_also_in_what_is_merged() -> None:
    assert "a second time" in error("x: &x {b: 1, b: 2}\ny: {<<: *x, c: 3}\n")


def test_a_merged_section_may_be_overridden() -> None:
    assert read("x: &x {b: 1, c: 2}\ny: {<<: *x, b: 3}\n", {}).value["y"] == {"b": 3, "c": 2}


def test_a_name_must_be_text() -> None:
    assert "a name must be text" in error("1: x")
    assert "a name must be text" in error("[a]: x")


def test_a_section_within_itself_is_refused() -> None:
    assert "contains itself" in error("a: &a {b: *a}")
    assert "contains itself" in error("a: &a [*a]")


def test_only_what_looks_like_a_decimal_number_is_one() -> None:
    value = read("a: 10\nb: 010\nc: 10:30\nd: 0x10\ne: 1_000\nf: 1.5\ng: 2026-01-01\nh: -3\ni: no\nj: true", {}).value
    assert value == {
        "a": 10,
        "b": "010",
        "c": "10:30",
        "d": "0x10",
        "e": "1_000",
        "f": 1.5,
        "g": "2026-01-01",
        "h": -3,
        "i": "no",
        "j": True,
    }


def test_every_path_has_its_line() -> None:
    lines = read("a:\n  b: 1\n  c:\n    d: 2\n", {}).lines
    assert lines == {("a",): 1, ("a", "b"): 2, ("a", "c"): 3, ("a", "c", "d"): 4}


def test_an_empty_file_lacks_what_is_required() -> None:
    assert refused("", base="") == ["application: is missing", "pulsar: is missing", "storage: is missing"]


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "42"])
def test_a_file_that_is_no_mapping_is_refused(text) -> None:
    assert error(text).startswith("configuration: must be a mapping")


def test_control_characters_are_refused() -> None:
    assert error("a: \x01").startswith("configuration: not text that YAML allows")


def test_environment_variables_are_filled_in() -> None:
    value = read('a: ${ONE}/x\nb: ["$${ONE}", $ONE]\nc: {d: "${ONE}${TWO}"}', {"ONE": "1", "TWO": "2"}).value
    assert value == {"a": "1/x", "b": ["${ONE}", "$ONE"], "c": {"d": "12"}}


def test_an_environment_variable_that_is_not_set_is_refused_with_its_path() -> None:
    assert error("a: {b: 1,\n c: '${NO_SUCH}'}") == "a.c: the environment variable 'NO_SUCH' is not set (line 2)"


def test_a_variables_value_is_never_read_as_yaml_or_filled_again() -> None:
    assert read("a: ${X}", {"X": "{b: ${Y}}"}).value == {"a": "{b: ${Y}}"}


def test_switches_and_numbers_may_come_from_the_environment() -> None:
    config = parse("metrics: {port: '${PORT}'}\npolicies: {enabled: '${ON}'}", PORT="9000", ON="true")
    assert config.metrics.port == 9000
    assert config.cluster.enabled is True


def test_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "offloader.yaml"
    path.write_text(BASE, encoding="utf-8")
    assert Config.load(path) == Config.parse(BASE)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        Config.load(tmp_path / "none.yaml")
    (tmp_path / "latin").write_bytes(b"a: \xe4")
    with pytest.raises(ConfigError, match=r"latin: is not UTF-8 text"):
        Config.load(tmp_path / "latin")


@given(st.text())
def test_any_text_is_read_or_refused_with_a_config_error(text) -> None:
    try:
        value = read(text, {}).value
    except ConfigError:
        value = {}
    assert isinstance(value, dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=6,
)
SECTIONS = st.sampled_from(
    ["application", "pulsar", "storage", "spark", "policies", "namespaces", "metrics", "limits", "x"]
)


@given(st.dictionaries(SECTIONS, JSON))
def test_any_values_are_accepted_or_refused_with_a_config_error(value) -> None:
    with pytest.raises(ConfigError) as refusal:  # never complete: storage.root cannot be guessed
        Config.parse(json.dumps(value), {})
    assert all(": " in line for line in str(refusal.value).splitlines())

"""Rules and dashboard ask for what the product tells, and each alert leads to what is to be done."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

from dev.docs.dashboard import OF_NAMESPACES, render
from offloader.metrics import definitions, gateway
from tests.promql import named
from tests.test_docs import REPOSITORY, anchors

RULES = REPOSITORY / "conf" / "prometheus" / "offloader.rules.yaml"
DASHBOARD = REPOSITORY / "conf" / "grafana" / "offloader.json"
FAMILIES = (definitions.ALL, gateway.ALL)
OF_THE_TARGET = {"instance", "job"}
OF_GRAFANA = {OF_NAMESPACES.split('"')[1]}


def series():
    """Every name that can be queried, with its labels."""
    found: dict[str, set[str]] = {}
    for one in (one for family in FAMILIES for one in family):
        labels = set(one.labels) | OF_THE_TARGET
        if one.kind == "histogram":
            found |= {f"{one.name}_bucket": labels | {"le"}, f"{one.name}_sum": labels, f"{one.name}_count": labels}
        else:
            found[one.exposed] = labels
    return found


def texts():
    """All texts in the product's code: a value that a label can have is one of them."""
    found = set()
    for path in (REPOSITORY / "offloader").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Constant(value=str(text)):
                    found.add(text)
                case ast.keyword(arg=str(name)):  # Counter(claimed=0, ...)
                    found.add(name)
    return found


def alerts():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def targets():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], target) for panel in panels for target in panel.get("targets", ())]


EXPRESSIONS = [rule["expr"] for rule in alerts()] + [target["expr"] for _, target in targets()]


def unknown(expression, known):
    """What an expression asks for that nobody tells."""
    found = named(expression)
    wrong = [name for name in found.metrics if name not in known]
    wrong += [f"{metric}{{{label}}}" for metric, label, _ in found.matched if label not in known.get(metric, ())]
    there = set().union(*(known.get(name, set()) for name in found.metrics))
    return wrong + [f"by ({label})" for label in found.grouped - there]


@pytest.mark.parametrize("expression", sorted(set(EXPRESSIONS)))
def test_what_is_asked_for_is_told(expression) -> None:
    assert named(expression).metrics
    assert not unknown(expression, series())


def test_values_of_labels_are_texts_of_the_product() -> None:
    values = {value for expression in EXPRESSIONS for _, _, value in named(expression).matched}
    assert {"integrity", "given up", "in vain", "overtaken"} <= values
    assert not values - texts() - OF_GRAFANA


def test_a_metric_a_label_and_a_grouping_that_do_not_exist_are_noticed() -> None:
    known = series()
    assert unknown("rate(offloader_byte_total[5m])", known) == ["offloader_byte_total"]
    assert unknown("offloader_seal_seconds > 1", known) == ["offloader_seal_seconds"]
    assert unknown('offloader_topics{status="Failed"}', known) == ["offloader_topics{status}"]
    assert unknown("sum by (topic) (rate(offloader_bytes_total[5m]))", known) == ["by (topic)"]
    assert unknown("sum(offloader_topics) by (namespace)", known) == ["by (namespace)"]
    assert not unknown('offloader_topics{state="offloader_byte"} offset 1h30m or vector(0)', known)
    with pytest.raises(ValueError, match="no selector"):
        named("offloader_topics{state}")


@pytest.mark.parametrize("family", FAMILIES, ids=("application", "gateway"))
def test_the_dashboard_and_the_rules_cover_each_process(family) -> None:
    shown = {name for _, target in targets() for name in named(target["expr"]).metrics}
    watched = {name for rule in alerts() for name in named(rule["expr"]).metrics}
    here = {name for one in family for name in (one.exposed, f"{one.name}_bucket")}
    assert len(here & shown) >= len(family) // 3
    assert len(here & watched) >= 3


def test_every_alert_says_what_is_wrong_how_bad_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))
    for rule in alerts():
        about = rule["annotations"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert about.keys() == {"summary", "remedy", "runbook"}
        assert all("\n" not in text.strip() and text.endswith(".") for text in (about["summary"], about["remedy"]))


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_leads_to_a_place_of_the_manual(rule) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor
    assert anchor in anchors(REPOSITORY / Path(page))


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_names_only_labels_that_its_expression_leaves(rule) -> None:
    expression = rule["expr"]
    left = (
        named(expression).grouped
        if " by (" in expression
        else set().union(*map(series().get, named(expression).metrics))
    )
    asked = {label for text in rule["annotations"].values() for label in re.findall(r"\$labels\.(\w+)", text)}
    assert asked <= left


def test_legends_name_labels_that_their_query_leaves() -> None:
    for title, target in targets():
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= named(target["expr"]).grouped, title


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_is_up_to_date() -> None:
    assert DASHBOARD.read_text() == render(), "run `make docs`"


def test_namespaces_are_chosen_from_a_metric_that_has_them() -> None:
    (query,) = [
        one["definition"] for one in json.loads(DASHBOARD.read_text())["templating"]["list"] if "definition" in one
    ]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
    assert label in series()[metric]

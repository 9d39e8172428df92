"""What the pages say must be so: links, commands, settings, metrics, log lines and examples are those of the code."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import click
import pytest

from dev.docs import alarms as alarm_texts
from dev.docs.lines import WIDTH
from offloader.cli.groups import GroupWithDefault
from offloader.cli.main import main
from offloader.config.config import parse_archive
from offloader.format.cutter import PartCutter
from offloader.format.entry import inspect
from offloader.format.index import index_of_segment
from offloader.metrics import gateway
from offloader.metrics.definitions import ALL
from offloader.model import LedgerRange, SegmentLayout

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")] + sorted(
    (REPOSITORY / "docs").glob("*.md")
)
FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:\.venv/bin/|/opt/offloader/\.venv/bin/)?offloader ([^#\n]+)")
LEAST_LITERAL = 6  # characters of a log line that make it recognisable
NOT_RUNNING = ("_proto",)
TROUBLES = ("warning", "error", "exception", "critical")
LEVELS = (*TROUBLES, "info")
RUNNING = REPOSITORY / "docs" / "running.md"

pages = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


def prose(page):
    return FENCE.sub("", page.read_text())


def fenced(page, kind):
    return [body for found, body in FENCE.findall(page.read_text()) if found.strip() == kind]


def code_of(page):
    """Everything that stands in a page as something to type: spans, and the lines of shell examples."""
    return SPAN.findall(prose(page)) + [line for body in fenced(page, "sh") for line in body.splitlines()]


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    """What a link may name in a page: its headings, and the places that are marked by hand."""
    text = prose(page)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


@pages
def test_relative_links_lead_somewhere(page) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name}: {target}"
        assert linked.is_relative_to(REPOSITORY)
        assert not anchor or anchor in anchors(linked), f"{page.name}: {target}: there are {sorted(anchors(linked))}"


def definitions(path):
    """The functions, classes and methods of a module: `name`, or `Class.name`."""
    tree = ast.parse(path.read_text()).body
    found = {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return found | {
        f"{c.name}.{f.name}"
        for c in tree
        if isinstance(c, ast.ClassDef)
        for f in c.body
        if isinstance(f, ast.FunctionDef)
    }


@pages
def test_what_a_link_to_a_module_names_is_defined_there(page) -> None:
    for name, target in re.findall(r"\[`([\w.]+)`\]\(([^)#]+\.py)\)", prose(page)):
        assert name in definitions(page.parent / target), f"{page.name}: {target} has no {name}"


@pages
def test_modules_exist(page) -> None:
    """What ends with .py, and what stands in brackets: `[`format/entry.py`]` is below offloader/."""
    bracketed = [name for group in re.findall(r"\[(`[^\]]+)\](?!\()", prose(page)) for name in SPAN.findall(group)]
    named = {name for name in SPAN.findall(prose(page)) if name.endswith(".py")} | set(bracketed)
    paths = [name for name in named if re.fullmatch(r"[a-z_0-9]+(/[a-z_0-9]+)*/?(\.py)?", name) and "/" in name]
    assert not [
        path for path in paths if not any((at / path).exists() for at in (REPOSITORY, REPOSITORY / "offloader"))
    ]


def test_the_tour_has_two_ways_of_at_most_fifteen_stops_each_a_function() -> None:
    ways = re.findall(r"\n## (One .*?)\n(.*?)(?=\n## )", (REPOSITORY / "docs" / "tour.md").read_text(), re.DOTALL)
    assert [name for name, _ in ways] == ["One entry's way out", "One row's way back"]
    for _, way in ways:
        stops = re.findall(r"^\d+\. (.*)", way, re.MULTILINE)
        assert 5 < len(stops) <= 15
        assert all(re.match(r"\[`[\w.]+`\]\(\.\./offloader/[\w/]+\.py\)", stop) for stop in stops)


@pages
def test_lines_are_short(page) -> None:
    """But for rows of tables, which Markdown cannot part."""
    assert not [
        line for line in page.read_text().splitlines() if len(line) > WIDTH and not line.lstrip().startswith("|")
    ]


@pages
def test_make_targets_exist(page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {found for text in code_of(page) for found in re.findall(r"^make ([a-z-]+)", text)}
    assert named <= targets


def command_of(group, name):
    return group.get_command(click.Context(group), name)


def fault_of(line):
    """What is wrong with a command line of ours; empty where nothing is."""
    command, words = main, line.split()
    while isinstance(command, click.Group) and words:
        if words[0].startswith("-"):
            if isinstance(command, GroupWithDefault):
                command = command_of(command, command.default) or command
            break
        found = command_of(command, words[0])
        if found is None:
            return f"{words[0]!r} is not a command of {command.name}"
        command = found
        words.pop(0)
    known = {name for p in command.params for name in p.opts} | {"--help", "-h", "--version"}
    unknown = [word for word in words if word.startswith("-") and word.strip("[]") not in known]
    return f"{unknown} are no options" if unknown else ""


@pages
def test_commands_exist(page) -> None:
    faults = {text: fault_of(found[1]) for text in code_of(page) if (found := COMMAND.match(text))}
    assert not {text: fault for text, fault in faults.items() if fault}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert fault_of("topics nonsense") == "'nonsense' is not a command of topics"
    assert fault_of("verify --nonsense") == "['--nonsense'] are no options"
    assert fault_of("topics accept-loss TOPIC --to LEDGER:ENTRY") == ""


def test_messages_of_the_program_name_commands_that_exist() -> None:
    texts = [p.read_text() for p in (REPOSITORY / "offloader").rglob("*.py")]
    named = {found for text in texts for found in re.findall(r"`offloader ([a-z][a-z -]*)", text)}
    assert named
    assert not {line: fault for line in named if (fault := fault_of(line))}


def test_the_unit_runs_commands_that_exist() -> None:
    lines = re.findall(r"^Exec\w+=(.+)$", (REPOSITORY / "conf" / "offloader.service").read_text(), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        command = COMMAND.match(line)
        assert command is not None
        assert fault_of(command[1]) == ""


@pages
def test_configurations_are_valid(page) -> None:
    for text in fenced(page, "yaml"):
        environment = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "value")
        parse_archive(text, environment)


@pages
def test_json_can_be_read(page) -> None:
    for text in fenced(page, "json"):
        json.loads(text)


@pages
def test_settings_exist(page) -> None:
    documented = (REPOSITORY / "docs" / "configuration.md").read_text()
    for section, name in re.findall(r"`(pulsar|storage|metrics|limits|policies)\.(?:slice\.)?([A-Za-z]+)", prose(page)):
        assert f"`{name}`" in documented or f"`{section}.{name}`" in documented, f"{section}.{name}"


@pages
def test_metrics_exist(page) -> None:
    known = (*ALL, *gateway.ALL)
    exposed = {definition.exposed for definition in known} | {"brk_ledgeroffloader_"}
    assert set(re.findall(r"`((?:offloader|brk)_[a-z_]+)", prose(page))) <= exposed


def logged():
    """Every call of the application's code that logs: module, level, the longest literal of the text, the alarm that it
    names."""
    for path in sorted((REPOSITORY / "offloader").rglob("*.py")):
        if path.relative_to(REPOSITORY / "offloader").parts[0] in NOT_RUNNING:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level)) if level in LEVELS:
                    extras = [ast.literal_eval(k.value) for k in node.keywords if k.arg == "extra"]
                    text = max(re.split(r"%\w", ast.literal_eval(node.args[0])), key=len)
                    yield path.name, level, text, extras[0].get("see", "") if extras else ""


def alarms():
    """The rows of the tables of alarms: name of the alarm, line, meaning, remedy. The name stands in the first of its
    rows."""
    section = RUNNING.read_text().partition("\n## Alarms")[2].partition("\n### Kinds of failures")[0]
    name, seen = "", set()
    for row in re.findall(r"^\| (?!alarm \||--- )(.*) \|$", section, re.MULTILINE):
        first, line, meaning, remedy = row.split(" | ")
        if first != "the same":
            anchor, name = re.fullmatch(r'<a id="([a-z-]+)"></a>([a-z-]+)', first).groups()
            assert anchor == name
            assert name not in seen
            seen.add(name)
        yield name, line, meaning, remedy


def test_every_warning_and_error_names_its_alarm_which_has_its_line() -> None:
    lines: dict[str, str] = {}
    for name, line, *_ in alarms():
        lines[name] = lines.get(name, "") + line
    found = list(logged())
    troubles = [(module, text, alarm) for module, level, text, alarm in found if level in TROUBLES]
    assert len(troubles) > 40
    unnamed = [f"{module}: {text!r}: {alarm!r}" for module, text, alarm in troubles if alarm not in lines]
    assert not unnamed, f'end these with extra={{"see": "..."}}, an alarm of docs/running.md: {unnamed}'
    unsaid = [
        f"{alarm}: {text!r}"
        for _, text, alarm in troubles
        if len(text) >= LEAST_LITERAL and text.strip() not in lines[alarm]
    ]
    assert not unsaid, f"these lines are not in their alarm's row of docs/running.md: {unsaid}"
    assert lines.keys() == {alarm for *_, alarm in found} - {""}


def test_the_page_of_the_application_says_of_alarms_what_the_manual_says() -> None:
    held = REPOSITORY / "offloader" / "offload" / "live" / "alarms.json"
    assert held.read_text(encoding="utf-8") == alarm_texts.render(), "run `make docs`"


def test_every_alarm_says_what_to_do() -> None:
    rows = list(alarms())
    assert len(rows) > 50
    assert all(meaning.strip() and remedy.strip() for *_, meaning, remedy in rows)


def test_every_line_in_the_operators_page_is_one_that_the_program_can_print() -> None:
    code = "".join(p.read_text() for p in (REPOSITORY / "offloader").rglob("*.py"))
    code = re.sub(r'"\n\s+f?"', "", code)  # texts that are spread over lines
    errors = RUNNING.read_text().partition("\n### Errors that end")[2]
    cells = [line for _, line, *_ in alarms()] + re.findall(r"^\| (`.+?) \| ", errors, re.MULTILINE)
    lines = [line for cell in cells for line in SPAN.findall(re.sub(r"\(.*?\)$", "", cell))]
    assert len(lines) > 60
    for line in lines:
        for piece in re.split(r"…|%s", line):
            assert piece.strip(" :") in code, f"{line}: {piece!r}"


def hexadecimal(kind):
    (body,) = fenced(REPOSITORY / "docs" / "format.md", f"hex {kind}")
    text = re.sub(r"#.*", "", body).replace("00*92", "00" * 92)
    return bytes.fromhex("".join(text.split()))


def test_the_example_of_the_formats_page_is_what_we_write() -> None:
    cutter = PartCutter(SegmentLayout(), first_part=1, offset=0, first_block=1, room=1_000_000)
    for ledger, entry, data in ((5, 0, b"hello"), (5, 1, b"offloader"), (9, 0, b"!")):
        assert cutter.offer(ledger, entry, data, inspect(data)) is None
    cut = cutter.finish()
    assert cut.data() == hexadecimal("data")
    ledgers = [LedgerRange(5, 0, 2, count=2, size=14, closed_with=1), LedgerRange(9, 0, 1, count=1, size=1)]
    assert index_of_segment(cut.index, ledgers, cut.size, 1_700_000_000_000) == hexadecimal("index")

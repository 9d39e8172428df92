"""No text of others moves the cursor or forges a line: every command, whatever names, reasons and errors it has to
show."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offloader.cli
from offloader.cli.main import main
from offloader.cli.output import TextOutput, plain_table
from offloader.errors import FatalError
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionEvidence, DeletionProof, DeletionState, LedgerType
from offloader.lifecycle.rescue.objects import RescueCuts, RescueWriter
from offloader.logs import JsonLines, ShortLines
from offloader.metadata import layout, requests
from offloader.metadata.requests import Request, RequestKind
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.rescued_keys import rescue_records_folder
from offloader.metadata.rescues import RescuedLedger
from offloader.model import Loss, Position, TopicName
from offloader.ports.entry_source import RawEntry
from offloader.ports.object_store import ObjectStore
from offloader.printable import printable
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import encode_cursor_node
from tests.archive.messages.encoder import Producer, Sent, single
from tests.archive.support import APPLICATION, Archive, uuid_of
from tests.cli.test_ledgers import Bookkeeper
from tests.format.support import Stored
from tests.lifecycle.deletion.cluster import JudgingScanner
from tests.lifecycle.deletion.support import candidate

MANY = 1000

EVIL = "\x1b]0;title\x07\x1b[2J\x9b2J\u202e\r\nerror: forged"
TOPIC = TopicName("public", "default", f"orders{EVIL}")
LEDGER = "12"


class Hostile:
    """Whatever is asked is refused with such a text."""

    def __init__(self, name: str = "world") -> None:
        self._name = name

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Hostile:
        return Hostile(name)

    def __call__(self, *arguments: object, **named: object) -> object:
        raise FatalError(f"{self._name}: {EVIL}")


@pytest.fixture
def evil(line):
    """An archive, a journal's folder and ledgers in which everything that has a name or a reason has this one."""
    archive = Archive(line.archive.store, TOPIC)
    line.archive = archive
    line.root()
    archive.claim(1, 0)
    sent = Sent(EVIL.encode(), key=EVIL.encode(), properties=((EVIL, EVIL),))
    archive.add([Stored(1, 0, single(Producer(name=EVIL), sent).data), Stored(1, 1, EVIL.encode())])
    archive._append(Loss(Position(0, 1, 2), Position(0, 1, 2), EVIL, EVIL, at=2))
    archive.store.put(f"{layout.topic_folder(TOPIC)}{EVIL}", b"stray")
    archive.store.put(layout.data_key(TOPIC, uuid_of(77)), b"stray")
    requests.submit(archive.store, APPLICATION, Request(RequestKind.CLOSE, TOPIC, 1, EVIL), lambda: "t")
    archive.store.put(f"{layout.requests_folder(APPLICATION)}2", b"[" * 100_000)
    deletions = DeletionQueue(archive.store, "memory", lambda: "t")
    said = DeletionEvidence(DeletionProof.PASSED_BY, EVIL, 1, (EVIL,), (EVIL,))
    for ledger, state in ((77, DeletionState.MARKED), (78, DeletionState.GIVEN_UP)):
        forged = candidate(ledger, topic_name=EVIL, evidence=said, marked_by=EVIL, reason=EVIL, state=state)
        deletions.write(forged, None)
    _rescue(archive.store, single(Producer(name=EVIL), sent).data)
    bookkeeper = Bookkeeper()
    bookkeeper.put(15, EVIL.encode(), **{f"custom{EVIL}": EVIL.encode()})
    bookkeeper.metadata.cluster.register(f"b9{EVIL}:1", None)
    bookkeeper.metadata.cluster.put_managed_ledger(TOPIC, ManagedLedger((ListedLedger(15, 0, 0),)))
    cursor = CursorState((15, -1), subscription_properties=(("owner", EVIL),))
    bookkeeper.metadata.cluster.put_cursor(TOPIC, EVIL, encode_cursor_node(cursor))
    removal = candidate(
        -1, ledger_type=LedgerType.SUBSCRIPTION, topic_name=str(TOPIC), cursor_name=EVIL, marked_by=EVIL, reason=EVIL
    )
    deletions.write(removal, None)
    archive.store.put(f"{layout.cursor_folder('memory', TOPIC, 'damaged' + EVIL)}records/{0:020d}", EVIL.encode())
    line.dependencies = replace(
        line.dependencies,
        bookkeeper=lambda _config, _timeout: tuple(reversed(bookkeeper.client())),
        admin=lambda _: Hostile(),
        scanner=lambda _config, tree, *_: JudgingScanner(tree.nodes, lambda: 5),
        target=lambda _: Hostile(),
        subscriptions=lambda _: Hostile(),
        visits=lambda _: Hostile(),
        bookie_http=lambda _url, _timeout: Hostile(),
        probes=lambda *_: Hostile(),
    )
    return line


def _rescue(store: ObjectStore, entry: bytes) -> None:
    """What was rescued of ledger 79, whose second entry is lost; and the damaged record of ledger 80."""
    rescues = Rescues(store, "memory")
    writer = RescueWriter(store, rescues.folder(79, 0), 1, lambda: uuid_of(79), lambda: 5, RescueCuts())
    writer.take([RawEntry(79, 0, entry)])
    writer.lose(79, 1, EVIL, EVIL)
    record = RescuedLedger(
        79, 1, 1, 9, EVIL, EVIL, EVIL, 1, 1, 1, ((EVIL, EVIL.encode()),), tuple(writer.segments),
        tuple(writer.losses), b"", 5, EVIL,
    )  # fmt: skip
    rescues.write(79, 0, record, lambda: "t")
    store.put(f"{rescue_records_folder('memory', 80)}{0:020d}", EVIL.encode())


# What each command is called with; several where one way shows something and another ends in an error.
CALLS: dict[str, list[list[str]]] = {
    "archive delete": [[str(TOPIC)], [EVIL, "--yes"]],
    "archive lift-hold": [[str(TOPIC), "--timeout", "1s"], [EVIL]],
    "archive retention plan": [[], [EVIL]],
    "archive retention run": [[], [EVIL, "--yes"]],
    "archive undelete": [[str(TOPIC), "--timeout", "1s"], [EVIL]],
    "bridge let-go": [[str(TOPIC), "1"], [str(TOPIC), "1", "--yes", "--timeout", "1s"], [EVIL, "1"]],
    "bridge status": [[], [str(TOPIC)], [EVIL]],
    "catalog compact": [[str(TOPIC)], [EVIL]],
    "catalog rebuild": [[str(TOPIC)], [str(TOPIC), "--dry-run"]],
    "config check": [[]],
    "config explain": [[str(TOPIC)], [str(TOPIC), "--offline"]],
    "cost": [[], ["--no-pulsar"], [str(TOPIC), "--no-pulsar"], [f"public/{EVIL}"], [EVIL]],
    "doctor": [[]],
    "explain": [[str(TOPIC)], [str(TOPIC), "--offline"], ["15"], [EVIL], ["b9:1", "--bookie-http", "http://b9:8000"]],
    "gateway run": [[EVIL]],
    "gateway status": [[], [EVIL]],
    "gateway subscriptions delete": [[str(TOPIC), EVIL], [str(TOPIC), EVIL, "--yes"], [EVIL, EVIL]],
    "gateway subscriptions import": [[str(TOPIC), EVIL], [str(TOPIC), EVIL, "--at", EVIL], [EVIL, EVIL]],
    "gateway subscriptions list": [[], [str(TOPIC)], [EVIL]],
    "ledgers close": [["15"], ["99"]],
    "ledgers delete": [["15"], ["15", "--topic", EVIL]],
    "ledgers inspect": [["15"], ["12"]],
    "orphans explain": [["15"], ["99"], [EVIL]],
    "orphans scan": [[], ["--show", "0"]],
    "migrate to-ledger-based": [[str(TOPIC), "--dry-run"], [str(TOPIC), "--yes", "--timeout", "1s"], [EVIL]],
    "migrate to-streaming": [[str(TOPIC), "--dry-run"], [str(TOPIC), "--timeout", "1s"], [EVIL, "--rewrite"]],
    "migrate undo": [[str(TOPIC), "--timeout", "1s"], [EVIL]],
    "orphans drop": [["77"], ["--all"], [EVIL]],
    "orphans forget": [["79"], ["79", "--yes"], ["80"], ["99"]],
    "orphans in-flight": [[]],
    "orphans list": [[]],
    "orphans purge": [[], ["--yes"]],
    "orphans quarantine": [["15"], ["--all-certain", "--yes"]],
    "orphans read": [["79"], ["79", "--entries"], ["79", "--format", "hex"], ["80"], ["99"], [EVIL]],
    "orphans rescue": [["15"], ["15", "99"], ["79", "--yes"], [EVIL]],
    "orphans rescued": [[], ["--read-back"]],
    "orphans retry": [["78"], ["99"], ["--all"]],
    "orphans undo": [["77"], [EVIL]],
    "run": [["--timeout", EVIL]],
    "shards": [[], ["--unclaimed"]],
    "takeover": [[EVIL], [APPLICATION]],
    "topics accept-loss": [[str(TOPIC), "--to", "1:1"], [str(TOPIC), "--to", EVIL]],
    "topics cat": [
        [str(TOPIC), *more] for more in ([], ["--format", "hex"], ["--entries"], ["--on-damage", "skip"], ["--follow"])
    ],
    "topics close-orphan-tail": [[str(TOPIC)], [str(TOPIC), "--dry-run"]],
    "topics cursors list": [[], [str(TOPIC), "--offline"], [EVIL]],
    "topics cursors purge": [[], ["--yes"]],
    "topics cursors removals": [[]],
    "topics cursors remove": [[str(TOPIC), EVIL], [str(TOPIC), EVIL, "--yes"], [EVIL, EVIL]],
    "topics cursors show": [[str(TOPIC)], [str(TOPIC), "--at", EVIL], [str(TOPIC), "--subscription", EVIL], [EVIL]],
    "topics cursors undo": [[str(TOPIC), EVIL], [str(TOPIC), EVIL, "--yes"], [EVIL, EVIL]],
    "topics export": [[str(TOPIC), "--to", "{folder}/x.parquet", "--on-damage", "skip"], [str(TOPIC), "--to", EVIL]],
    "topics list": [[]],
    "topics offload": [[str(TOPIC)]],
    "topics offload-status": [[str(TOPIC)]],
    "topics peek": [[str(TOPIC), "1:0"], [str(TOPIC), "1:1"], [str(TOPIC), "1:2"], [str(TOPIC), EVIL]],
    "topics release": [[str(TOPIC)]],
    "topics restore": [[str(TOPIC), "--to", str(TOPIC)], [EVIL]],
    "topics schemas": [[str(TOPIC)], [EVIL]],
    "topics segments": [[str(TOPIC)]],
    "topics trim-unloaded plan": [[], [f"public/{EVIL}"], [EVIL]],
    "topics trim-unloaded run": [[], ["--yes"], [EVIL]],
    "verify": [[], ["--quick"], [str(TOPIC)]],
    "ui": [["--listen", EVIL], ["--listen", "0.0.0.0:0"], ["--token-file", EVIL]],
}


def _commands(group: click.Group, before: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield before + name


def test_every_command_is_called() -> None:
    assert sorted(CALLS) == sorted(_commands(main))


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("name", CALLS)
def test_no_command_prints_what_moves_the_cursor(evil, name: str, output: str) -> None:
    for arguments in CALLS[name]:
        given_ = [argument.format(folder=evil.folder) if "{folder}" in argument else argument for argument in arguments]
        result = evil.run(*name.split(), *given_, "--output", output)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.output
        for text in (result.stdout, result.stderr):
            assert [c for c in text if c not in "\n\t" and not c.isprintable()] == []
            assert not any(part.startswith("error: forged") for part in text.splitlines())


def test_what_others_wrote_is_shown_all_the_same(evil) -> None:
    shown = evil.ok("topics", "list") + evil.ok("topics", "cat", str(TOPIC), "--on-damage", "skip")
    assert printable(EVIL) in shown
    assert "\\x1b[2J\\x9b2J\\u202e\\r\\nerror: forged" in shown


def test_nothing_prints_but_what_makes_text_printable() -> None:
    """`say`, and what is allowed to print by itself: help, styled tables, JSON, and the formats of `cat`."""
    allowed = {"output.py": 5, "groups.py": 1}
    for path in Path(offloader.cli.__file__).parent.glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printing = [
            call
            for call in calls
            if ast.unparse(call.func) in ("print", "click.echo", "click.secho", "sys.stdout.write")
        ]
        assert len(printing) <= allowed.get(path.name, 0), f"{path.name}: print with `say`"


@given(st.text() | st.binary())
def test_what_is_printable_is_one_line_that_stays_as_it_is(text: str | bytes) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert not isinstance(text, str) or not text.isprintable() or shown == text


@pytest.mark.parametrize("formatter", [ShortLines(), JsonLines()])
def test_logs_are_lines(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        record = logging.makeLogRecord({
            "name": "x", "levelname": "ERROR", "msg": "failed %s", "args": (EVIL,), "topic": EVIL,
            "exc_info": (type(error), error, None),
        })  # fmt: skip
    text = formatter.format(record)
    assert [c for c in text if c != "\n" and not c.isprintable()] == []
    assert text.count("\n") <= 3


def test_a_long_table_has_the_lines_of_a_short_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("t", 1, None, 5), ("a name that is long", 222, "日本\x1b[2J", None), ("", 3, "x", 7)]
    columns = ("topic", "entries", "owner", "consumers")
    TextOutput().table(columns, rows, "none")
    short = click.unstyle(capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in short] == [*plain_table(columns, rows)]
    TextOutput().table(columns, rows * MANY, "none")
    assert capsys.readouterr().out.splitlines()[:4] == [line.rstrip() for line in short]

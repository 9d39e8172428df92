"""Bad input and errors are one clear line and an exit code, never a traceback."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from offloader.cli.main import main
from offloader.errors import OvertakenError, StoreUnavailableError
from tests.cli.support import CONFIG


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus'."),
        (["topics", "bogus"], "No such command 'bogus'."),
        (["topics", "segments"], "Missing argument 'TOPIC'."),
        (
            ["topics", "segments", "a/b"],
            "Invalid value for 'TOPIC': 'a/b' is not a topic name; write persistent://tenant/namespace/name",
        ),
        (
            ["topics", "cat", "non-persistent://a/b/c"],
            "Invalid value for 'TOPIC': 'non-persistent://a/b/c': only persistent topics can be offloaded",
        ),
        (
            ["topics", "cat", "x", "--from", "7"],
            "Invalid value for '--from': '7' is neither a position nor a time; write LEDGER:ENTRY, for example 12:345",
        ),
        (
            ["topics", "cat", "x", "--to", "yesterday"],
            "Invalid value for '--to' / '--until': 'yesterday' is neither a position nor a time",
        ),
        (["topics", "cat", "x\udcff"], "Invalid value for 'TOPIC': 'x\\udcff' is not a topic name; it is not UTF-8"),
        (
            ["topics", "cat", "x", "--from", "12:0", "--to", "10:0"],
            "the range ends before it begins; exchange its two bounds",
        ),
        (
            ["topics", "export", "x", "--to", "y", "--from", "2026-02-02", "--until", "2026-02-01"],
            "the range ends before it begins",
        ),
        (
            ["topics", "cat", "x", "--to", "7:"],
            "Invalid value for '--to' / '--until': '7:' is neither a position nor a time",
        ),
        (["topics", "cat", "x", "--limit", "0"], "Invalid value for '--limit': 0 is not in the range x>=1."),
        (["topics", "cat", "x", "--format", "xml"], "Invalid value for '--format': 'xml' is not one of"),
        (
            ["topics", "cat", "x", "--property", "colour"],
            "Invalid value for '--property': 'colour' has no name; write NAME=VALUE",
        ),
        (
            ["topics", "cat", "x", "--entries", "--key", "k"],
            "--key and --property choose messages; leave out --entries",
        ),
        (["topics", "cat", "x", "--follow", "--to", "2026-01-01"], "--follow: no time ends a live topic"),
        (
            ["topics", "cat", "x", "--ledgers", "bucket"],
            "--ledgers: 'bucket' is not a URL; write file:///folder or s3://bucket/prefix",
        ),
        (
            ["topics", "export", "x", "--to", "x", "--ledgers", "s3://"],
            "--ledgers: 's3://' names no bucket; write s3://bucket/prefix",
        ),
        (["verify", "--ledgers", "file://x"], "--ledgers: 'file://x' must be file:/// and an absolute path"),
        (["topics", "cat", "x", "--cluster", "c"], "--cluster and --ask-pulsar are for --ledgers"),
        (["topics", "peek", "orders", "7"], "'7' is not a position; write LEDGER:ENTRY, for example 12:345"),
        (["topics", "peek", "orders", "7:1"], "persistent://public/default/orders is not in the archive"),
        (["topics", "export", "orders"], "Missing option '--to'."),
        (
            ["topics", "export", "orders", "--to", "x.parquet"],
            "persistent://public/default/orders is not in the archive",
        ),
        (
            ["topics", "export", "x", "--to", "y", "--columns", "a"],
            "--columns: there is no column a; there are value, __key,",
        ),
        (["topics", "export", "x", "--to", "y", "--columns", ","], "Invalid value for '--columns': it names nothing"),
        (
            ["topics", "export", "x", "--to", "y", "--entries", "--columns", "value"],
            "there are topic, ledgerId, entryId,",
        ),
        (["topics", "export", "x", "--to", "y", "--max-file-bytes", "big"], "'big' is not a size"),
        (
            ["topics", "accept-loss", "x"],
            "say how far the loss reaches (--to LEDGER:ENTRY), or that the topic was deleted (--deleted)",
        ),
        (
            ["topics", "offload", "x", "--timeout", "soon"],
            "'soon' is not a time; write a whole number with ms, s, m, h, d or w",
        ),
        (
            ["topics", "list", "--output", "xml"],
            "Invalid value for '-o' / '--output': 'xml' is not one of 'text', 'json'.",
        ),
        (["topics", "list", "--log-level", "loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        (["verify", "--slow"], "No such option '--slow'."),
        (["run", "--timeout", "5s"], "--timeout is for --until-caught-up"),
        (["takeover"], "Missing argument 'OLD_APPLICATION'."),
        (
            ["takeover", "nobody"],
            "application: there is no journal of nobody at memory://; the names are those below _journal/",
        ),
        (
            ["topics", "segments", "orders"],
            "persistent://public/default/orders is not in the archive; `offloader topics list` shows what is",
        ),
        (
            ["topics", "cat", "orders"],
            "persistent://public/default/orders is not in the archive; `offloader topics list` shows what is",
        ),
        (
            ["topics", "release", "orders"],
            "persistent://public/default/orders is not in the archive; `offloader topics list` shows what is",
        ),
        (
            ["topics", "offload", "orders"],
            "persistent://public/default/orders does not exist; namespace public/default has 0 topics",
        ),
        (["verify"], "nothing was offloaded to memory:// yet"),
    ],
)
def test_bad_input_is_one_line(line, arguments, message) -> None:
    line.cluster.namespace("public/default")
    assert message in line.error(*arguments)


def test_no_configuration(line) -> None:
    assert (
        line.error("topics", "list", config=False)
        == "no configuration: name one with --config FILE or in OFFLOADER_CONFIG"
    )


def test_a_configuration_that_is_not_there(line) -> None:
    assert "No such file or directory" in line.error(
        "topics", "list", "--config", str(line.folder / "absent.yaml"), config=False
    )


def test_each_problem_of_a_configuration_is_a_line(line) -> None:
    line.config = "application: app\npulsar: {serviceUrl: 'http://x', adminUrl: 'http://x'}\n"
    result = line.run("config", "check")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert all(text.startswith("error: ") for text in result.stderr.splitlines())


def test_the_store_does_not_answer(line) -> None:
    def down(*_: object, **__: object) -> object:
        raise StoreUnavailableError("s3://bucket does not answer")

    line.archive.store.list = down
    assert line.error("topics", "list") == "s3://bucket does not answer"


def test_overtaken_is_exit_code_3(line, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*_: object) -> object:
        raise OvertakenError("another process owns the journal now")

    monkeypatch.setattr("offloader.cli.shards.takeover", overtaken)
    result = line.run("takeover", "old")
    assert result.exit_code == 3
    assert result.stderr == "error: another process owns the journal now\n"


def test_debug_shows_where_an_error_comes_from(line) -> None:
    result = line.run("topics", "cat", "orders", "--debug")
    assert result.exception is not None
    assert "is not in the archive" in str(result.exception)


def test_an_unexpected_error_is_not_hidden(line) -> None:
    line.archive.store.list = lambda *_, **__: 1 / 0
    assert isinstance(line.run("topics", "list").exception, ZeroDivisionError)


def test_the_log_level_comes_from_option_or_environment(line, monkeypatch: pytest.MonkeyPatch) -> None:
    line.ok("topics", "list")
    assert logging.getLogger().level == logging.WARNING
    monkeypatch.setenv("OFFLOADER_LOG_LEVEL", "info")
    line.ok("topics", "list")
    assert logging.getLogger().level == logging.INFO
    line.ok("topics", "list", "--log-level", "error", "--log-format", "json")
    assert logging.getLogger().level == logging.ERROR


def test_without_a_command_it_says_which_there_are(line) -> None:
    result = line.run(config=False)
    assert result.exit_code == 1
    assert "topics" in result.stderr


def test_version_and_help_are_no_errors(line) -> None:
    assert "offloader, version" in line.run("--version", config=False).stdout
    assert "Exit codes: 0 ok, 1 error, 2 findings, 3 overtaken" in line.run("--help", config=False).stdout


def test_it_ends_the_process_with_the_code(line) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topics", "bogus"])
    assert ended.value.code == 1


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [(">/dev/full", 1, "error: the output cannot be written: No space left on device\n"), (">&-", 0, "")],
)
def test_an_output_that_takes_nothing_is_one_line_or_none(tmp_path: Path, redirection, code, message) -> None:
    (tmp_path / "offloader.yaml").write_text(CONFIG)
    program = (
        f"{sys.executable} -c 'from offloader.cli.main import main; main()' config check --config offloader.yaml "
        f"{redirection}"
    )
    done = subprocess.run(["sh", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)

"""`--private-key`: encrypted messages as the shell reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.archive.messages.encoder import Producer, Sent, single
from tests.archive.messages.test_encryption import KEY, encrypted, pem
from tests.format.support import Stored


@pytest.fixture
def secret(line, tmp_path: Path):
    """A topic with one message, and what names the key that opens it."""
    line.archive.claim(1, 0)
    line.archive.add([Stored(1, 0, encrypted(single(Producer(), Sent(b"secret")), ("owner", KEY)).data)])
    (tmp_path / "key.pem").write_bytes(pem(KEY))
    return line, ("--private-key", f"owner={tmp_path}/key.pem")


def test_cat(secret) -> None:
    line, option = secret
    assert line.ok("topics", "cat", "orders").endswith("\t(undecryptable)\n")
    assert line.ok("topics", "cat", "orders", *option).endswith("\tsecret\n")
    assert line.ok("topics", "cat", "orders", "--private-key", "other=/nowhere").endswith("\t(undecryptable)\n")


def test_export(secret, tmp_path: Path) -> None:
    line, option = secret
    told = line.ok("topics", "export", "orders", "--to", str(tmp_path / "all.parquet"), *option, "-o", "json")
    assert json.loads(told)["topics"][0]["withoutValue"] == {}
    assert pq.read_table(tmp_path / "all.parquet").column("value").to_pylist() == [b"secret"]


def test_a_file_that_cannot_be_read_is_one_line(secret) -> None:
    line, _ = secret
    result = line.run("topics", "cat", "orders", "--private-key", "owner=/nowhere/key.pem")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: private key owner: ")

"""A key in a file: read again when it changes."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from offloader.errors import ConfigError
from offloader.gateway.access.access import key_of
from offloader.gateway.access.tokens import public_key, secret_key
from tests.gateway.access.tokens import RSA, SECRET, der


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "{}"])
def test_a_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a key"
    path.write_bytes(SECRET)
    written = str(path).replace(" ", "%20") if form.startswith("file") else str(path)
    assert key_of("gateway.k", form.format(written), secret_key).now().key == SECRET


def test_the_key_itself() -> None:
    text = base64.b64encode(der(RSA)).decode()
    for form in (text, f"data:;base64,{text}"):
        key = key_of("gateway.k", form, public_key)
        assert key.now() == public_key(der(RSA))
        assert not key.look()


def test_a_key_that_cannot_be_read_names_its_setting(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"x")
    for text in (f"file://{tmp_path}/none", str(tmp_path / "none"), f"file://{tmp_path}", str(wrong), ""):
        with pytest.raises(ConfigError, match=r"^gateway.k: "):
            key_of("gateway.k", text, secret_key)


def test_a_new_key_is_found_and_a_broken_one_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "key"
    path.write_bytes(SECRET)
    key = key_of("gateway.k", str(path), secret_key)
    assert not key.look()
    path.write_bytes(SECRET[:10])
    assert not key.look()
    assert not key.look()
    path.unlink()
    assert not key.look()
    assert key.now().key == SECRET
    assert [record.__dict__["see"] for record in caplog.records] == ["gateway-file"] * 2
    path.write_bytes(SECRET[::-1])
    assert key.look()
    assert key.now().key == SECRET[::-1]
    assert not key.look()

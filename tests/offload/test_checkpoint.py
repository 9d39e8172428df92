"""Spark's checkpoint: a new folder for each run, which leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from offloader.errors import ConfigError
from offloader.offload.application import _checkpoint


def test_each_run_has_a_new_folder_below_the_one_that_is_named(tmp_path: Path) -> None:
    with _checkpoint(str(tmp_path)) as one, _checkpoint(str(tmp_path)) as other:
        assert {Path(one), Path(other)} == set(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_where_no_folder_can_be_made_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with (
        pytest.raises(ConfigError, match=rf"spark\.checkpoint: .*{name}: no folder can be made"),
        _checkpoint(str(tmp_path / name)),
    ):
        pass

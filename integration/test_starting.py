"""A server that does not start is started once more, elsewhere; one that never does fails with what it said last."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from integration.starting import TRIES, started
from offloader.errors import FatalError


def failing(times: int) -> tuple[Callable[[Path], AbstractContextManager[Path]], list[Path]]:
    """A server whose first starts fail, and the folders in which it was started."""
    folders: list[Path] = []

    @contextmanager
    def server(folder: Path) -> Iterator[Path]:
        folders.append(folder)
        if len(folders) <= times:
            raise FatalError(f"bookie-3 did not start, try {len(folders)}")
        yield folder
        folders.clear()

    return server, folders


def test_one_failed_start_fails_nobody(tmp_path: Path) -> None:
    make, folders = failing(TRIES - 1)
    with started(tmp_path, make) as found:
        assert found == folders[-1]
        assert len(set(folders)) == TRIES
    assert not folders  # ended


def test_a_server_that_never_starts_is_told_of(tmp_path: Path) -> None:
    make, folders = failing(TRIES)
    with pytest.raises(FatalError, match=f"bookie-3 did not start, try {TRIES}"), started(tmp_path, make):
        pass
    assert len(folders) == TRIES


def test_what_fails_once_it_has_started_is_not_tried_again(tmp_path: Path) -> None:
    make, _ = failing(0)
    with pytest.raises(FatalError, match="later"), started(tmp_path, make):
        raise FatalError("later")

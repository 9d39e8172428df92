from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.cli.support import Line


@pytest.fixture
def line(tmp_path: Path):
    """Commands log to a stream that ends with their call."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield Line(tmp_path)
    root.handlers[:] = before
    root.setLevel(level)

from __future__ import annotations

import pytest

from tests.cli.support import Line


@pytest.fixture
def line(tmp_path):
    return Line(tmp_path)

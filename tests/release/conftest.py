"""Each archive, in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release.golden import VERSIONS, Golden, unpacked


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return unpacked(request.param, tmp_path)

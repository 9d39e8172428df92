"""There, back, and there again, interrupted once on each way. `python -m integration.bridge.ways_soak` does it at each
step."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.bridge.place import place
from integration.bridge.ways import AGAIN, BACK, THERE, THRESHOLD, migrate
from integration.starting import started

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]


@pytest.mark.soak
def test_a_topic_goes_there_back_and_there_again_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    steps = {
        THERE: ("a copy is committed", "behind"),
        BACK: ("objects are recorded", "behind"),
        AGAIN: (THRESHOLD, "before"),
    }
    with started(tmp_path, place) as here:
        migrate(here, steps, open_one=True)

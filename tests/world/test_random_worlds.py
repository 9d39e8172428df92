"""Whatever happens, chosen by a seed: every entry is offloaded exactly once, nothing is lost, and everything comes to
rest.

`OFFLOADER_WORLDS` says how many worlds live (`make test-soak`: 10,000); `OFFLOADER_WORLD=seed` lets one of them live
again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.examples import FIRST_SEED, tries
from tests.world.chaos import chaotic, is_robbed, lives
from tests.world.world import World, live

GROUPS = 16  # so that several processes share the work
WORLDS = tries("OFFLOADER_WORLDS", 16, 160)
ONE = os.environ.get("OFFLOADER_WORLD")
FIRST = FIRST_SEED

pytestmark = pytest.mark.explores


def lived(seed: int, life: Callable[[World], None] = lives) -> World:
    again = f"OFFLOADER_WORLD={seed} .venv/bin/python -m pytest tests/world -k whatever_happens"
    return live(life, seed, reproduce=again, **chaotic(seed))


@pytest.mark.parametrize("group", range(GROUPS) if ONE is None else [0])
def test_whatever_happens_every_entry_is_offloaded_once_and_everything_comes_to_rest(group: int) -> None:
    seeds = range(FIRST + group, FIRST + WORLDS, GROUPS) if ONE is None else [int(ONE)]
    for seed in seeds:
        lived(seed)


@pytest.mark.parametrize("group", range(GROUPS // 4) if ONE is None else [0])
def test_whatever_happens_and_is_taken_away_nothing_is_missing_without_a_record_of_it(group: int) -> None:
    seeds = range(FIRST + group, FIRST + WORLDS // 4, GROUPS // 4) if ONE is None else [int(ONE)]
    for seed in seeds:
        lived(seed, is_robbed)


@pytest.mark.large
def test_a_seed_gives_the_same_world_again_also_in_another_process() -> None:
    """Whose sets and dictionaries are in another order."""
    one, again = lived(11), lived(11)
    assert one.scheduler.events == again.scheduler.events
    script = "from tests.world.test_random_worlds import lived; print(lived(11).scheduler.fingerprint)"
    env = os.environ | {"PYTHONHASHSEED": "4711"}
    answer = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert int(answer.stdout) == one.scheduler.fingerprint == again.scheduler.fingerprint

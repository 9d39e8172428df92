"""One cluster for all tests of a file, with topics in use. A test leaves it as it found it, but for brokers that it
killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from integration.lifecycle.ground import Ground
from integration.lifecycle.looking import Looking, looking
from integration.lifecycle.reading import controls, everything
from integration.lifecycle.soak import KEY, SECRET, offloading_cluster
from integration.starting import started
from offloader.model import TopicName


@dataclass
class Used:
    """Topics that are in use. `said`: what they said before anything else was there."""

    topics: dict[str, TopicName]
    said: dict[str, Any]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with started(tmp_path_factory.mktemp("lifecycle"), offloading_cluster) as cluster:
        ground = Ground(cluster)
        yield ground
        ground.close()


@pytest.fixture(scope="module")
def product(ground: Ground) -> Iterator[Looking]:
    with looking(ground.cluster) as found:
        yield found


@pytest.fixture(scope="module")
def used(ground: Ground) -> Used:
    topics = controls(ground)
    return Used(topics, everything(ground, topics))


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the store of the brokers' own offloader."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

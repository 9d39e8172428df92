"""One topic, whatever state its ledgers are in: each position once, or told. And broken variants of readers are
caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from offloader.archive.reading import overlaps
from offloader.archive.reading.plan import Deletions
from offloader.errors import OffloadError
from offloader.metadata.deletions import Removal
from tests.examples import tries

from .mixed import Asked, MixedTopic

TOPICS = tries("OFFLOADER_MIXED_TOPICS", 20, 60)


@pytest.mark.parametrize("asked", Asked)
@pytest.mark.explores
@pytest.mark.parametrize("seed", range(TOPICS))
def test_each_position_is_read_once_or_told(seed: int, asked: Asked) -> None:
    MixedTopic(seed).check(asked, read_size=(1024, 4096, 1 << 20)[seed % 3])


def test_the_topics_have_every_state() -> None:
    topics = [MixedTopic(seed) for seed in range(60)]
    assert sum(bool(topic.stock) for topic in topics) > 20
    assert sum(bool(topic.too_old) for topic in topics) > 5
    assert sum(bool(topic.expected(Asked.NOBODY)[2]) for topic in topics) > 10
    assert (
        sum(topic.bridging._head.state is not None and topic.bridging.state.round is not None for topic in topics) > 5
    )


Variant = Callable[[pytest.MonkeyPatch], None]


def deleted_is_there(patch: pytest.MonkeyPatch) -> None:
    """What went is read as if it were there."""
    patch.setattr(Removal, "told", property(lambda _: ()))


def in_silence(patch: pytest.MonkeyPatch) -> None:
    """What went is left out."""
    patch.setattr(Deletions, "tell", lambda *_: [])


def stock_comes_twice(patch: pytest.MonkeyPatch) -> None:
    """Each ledger of the bucket is read, also where segments have its entries."""
    patch.setattr(overlaps, "_taken", lambda _: {})


VARIANTS: list[Variant] = [deleted_is_there, in_silence, stock_comes_twice]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.__name__)
def test_a_broken_variant_is_caught(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    variant(monkeypatch)

    def caught(seed: int) -> bool:
        try:
            for asked in Asked:
                MixedTopic(seed).check(asked)
        except (AssertionError, OffloadError):
            return True
        return False

    assert any(caught(seed) for seed in range(40))

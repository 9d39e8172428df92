"""One topic, whatever state its ledgers are in: each position once, or told. And broken variants of readers are
caught."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from offloader.archive.reading import bridged_ranges, plan
from offloader.archive.snapshot import OffloadedLedger
from offloader.errors import OffloadError
from offloader.metadata.deletions import Removal

from .mixed import Asked, MixedTopic

TOPICS = int(os.environ.get("OFFLOADER_MIXED_TOPICS", "60"))


@pytest.mark.parametrize("asked", Asked)
@pytest.mark.parametrize("seed", range(TOPICS))
def test_each_position_is_read_once_or_told(seed: int, asked: Asked):
    MixedTopic(seed).check(asked, read_size=(1024, 4096, 1 << 20)[seed % 3])


def test_the_topics_have_every_state():
    topics = [MixedTopic(seed) for seed in range(60)]
    assert sum(bool(topic.stock) for topic in topics) > 20
    assert sum(bool(topic.handed_over) for topic in topics) > 15
    assert sum(bool(topic.too_old) for topic in topics) > 5
    assert sum(bool(topic.expected(Asked.NOBODY)[2]) for topic in topics) > 10
    assert (
        sum(topic.bridging._head.state is not None and topic.bridging.state.round is not None for topic in topics) > 5
    )


Variant = Callable[[pytest.MonkeyPatch], None]


def deleted_is_deleted(patch: pytest.MonkeyPatch) -> None:
    """Whatever went is told to be gone, also where brokers have it."""
    patch.setattr(Removal, "withheld", property(lambda self: self.told))
    patch.setattr(Removal, "handed_over", property(lambda _: ()))


def in_silence(patch: pytest.MonkeyPatch) -> None:
    """What Pulsar has deleted is left out."""
    patch.setattr(Removal, "withheld", property(lambda self: tuple(r for r in self.told if not r.is_bridged)))
    items = bridged_ranges.HandedOver.items

    def quiet(*arguments: object) -> object:
        return (item for item in items(*arguments) if not hasattr(item, "deleted"))  # type: ignore[arg-type]

    patch.setattr(plan.HandedOver, "items", quiet)


def whole_ledgers(patch: pytest.MonkeyPatch) -> None:
    """Of a ledger that was handed over in part, all is read from brokers."""
    make = bridged_ranges.HandedOver._range_of

    def whole(self: bridged_ranges.HandedOver, held: OffloadedLedger, wanted: tuple[bridged_ranges.Run, ...]) -> object:
        return make(self, held, (bridged_ranges.Run.closed(held.start.ledger, 0, held.end.entry),))

    patch.setattr(bridged_ranges.HandedOver, "_range_of", whole)


def gaps_are_read(patch: pytest.MonkeyPatch) -> None:
    """Positions that consumers never got become entries."""
    kept = bridged_ranges._kept

    def filled(*arguments: object) -> list[bridged_ranges.Run]:
        return [replace(run, gap=None) for run in kept(*arguments)]  # type: ignore[arg-type]

    patch.setattr(bridged_ranges, "_kept", filled)


def damage_is_damage(patch: pytest.MonkeyPatch) -> None:
    """An object that brokers have deleted is missing."""
    make = OffloadedLedger.of
    patch.setattr(OffloadedLedger, "of", lambda *of: replace(make(*of), is_bridged=False))


VARIANTS: list[Variant] = [deleted_is_deleted, in_silence, whole_ledgers, gaps_are_read, damage_is_damage]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.__name__)
def test_a_broken_variant_is_caught(variant: Variant, monkeypatch: pytest.MonkeyPatch):
    variant(monkeypatch)

    def caught(seed: int) -> bool:
        try:
            for asked in Asked:
                MixedTopic(seed).check(asked)
        except (AssertionError, OffloadError):
            return True
        return False

    assert any(caught(seed) for seed in range(40))

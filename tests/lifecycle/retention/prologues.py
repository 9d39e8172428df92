"""What is rare, for a beginning of the ages of a topic. What comes after it is as in any other world."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from offloader.errors import IntegrityError, OvertakenError
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata import layout
from offloader.storage.forwarding import Verb
from tests.archive.support import TOPIC
from tests.times import MINUTE_MS

from .ages import Ages, Chunks
from .processes import LOOKS, Process, is_note, is_slot
from .world import A_LEDGER, GRACE


def _visits(world: Ages, count: int = 1, wait: int = 0) -> None:
    for _ in range(count):
        world.now += wait
        world.visit("app")


def _with_policy(world: Ages, policy: RetentionPolicy) -> None:
    world.policies["app"], world.changed = policy, True
    world.start("app")


def sealed_behind_all_that_went(world: Ages) -> None:
    """Then the topic is made again, and its beginning goes."""
    _with_policy(world, RetentionPolicy(gone_minutes=20))
    for _ in range(3):
        world.seal()
    world.there, world.left_open, world.rolled_back = False, True, True
    _visits(world, LOOKS + 3, wait=21 * MINUTE_MS)
    world.seal()
    world.incarnation, world._segments, world.there = world.incarnation + 1, 0, True
    world.claim("app")
    for _ in range(A_LEDGER + 1):
        world.seal()
    world.trim()
    _with_policy(world, RetentionPolicy(follow_pulsar=True))
    _visits(world, 2, wait=GRACE + 1)


def started_again_and_again(world: Ages) -> None:
    """Each time with one look."""
    _with_policy(world, RetentionPolicy(gone_minutes=20))
    for _ in range(3):
        world.seal()
    world.there, world.left_open = False, False
    _visits(world, LOOKS)
    _visits(world, 1, wait=21 * MINUTE_MS)
    for _ in range(4):
        world.start("app")
        _visits(world, 1, wait=GRACE + 1)


def an_undo_that_never_counted(world: Ages) -> None:
    """And what it was about begins, is interrupted, and the catalog is lost."""
    _with_policy(world, RetentionPolicy(minutes=30))
    for _ in range(4):
        world.seal()
    _visits(world, 1, wait=31 * MINUTE_MS)
    world.nested = False
    _with_policy(world, RetentionPolicy(minutes=30, hold="court"))
    world.kill_when = is_slot
    world.doing("app", Process.visit_all, killed=False)
    _with_policy(world, RetentionPolicy(minutes=30))
    world.now += GRACE + 1
    segments = {layout.record_key(TOPIC, segment.uuid) for segment in world.catalog.segments}
    world.kill_when = lambda verb, key: verb == "put" and key in segments
    world.doing("app", Process.visit_all, killed=False)
    world.kill_when, world.nested = None, True
    world.rebuild(world.rng.choice([0.0, 1.0]))


def asked(process: Process) -> str:
    """What it answers; "": there is nothing to delete."""
    with suppress(IntegrityError):
        return process.retention.delete(TOPIC, "me")
    return ""


def asked_twice(world: Ages) -> None:
    """Taken back, by a process that is paused before it forgets, and asked for again."""
    _with_policy(world, RetentionPolicy())
    for _ in range(3):
        world.seal()
    first = world.running["app"]
    if "deletion" not in asked(first):
        return

    def pause(verb: Verb, key: str) -> bool:
        if verb == "delete" and is_note(verb, key):
            world.kill_when, world.nested = None, True
            world.counts.pauses += 1
            world.start("app")
            asked(world.running["app"])
        return False

    world.nested, world.kill_when = False, pause
    with suppress(OvertakenError):
        first.retention.undelete(TOPIC, "me")
    world.nested = True
    _with_policy(world, RetentionPolicy())
    world.now += GRACE + 1
    _visits(world)
    assert world.head.removed.pending is None, "it is under way for ever"


def a_message_over_three_segments(world: Ages) -> None:
    """Its end is sealed while its beginning is about to go."""
    _with_policy(world, RetentionPolicy(minutes=30))
    world.seal(Chunks.BEGIN)
    world.now += 31 * MINUTE_MS
    world.seal(Chunks.NONE)
    _visits(world)
    world.seal(Chunks.GO_ON)
    world.seal(Chunks.NONE)
    _visits(world, 1, wait=GRACE + 1)


def released_under_a_hold(world: Ages) -> None:
    """By an application that is down then; the other one never had it."""
    _with_policy(world, RetentionPolicy(minutes=30, hold="court"))
    for _ in range(3):
        world.seal()
    world.release()
    world.policies["other"] = RetentionPolicy(minutes=30)
    for _ in range(3):
        world.now += 31 * MINUTE_MS
        world.visit("other")


PROLOGUES: tuple[Callable[[Ages], None] | None, ...] = (
    None,
    None,
    sealed_behind_all_that_went,
    started_again_and_again,
    an_undo_that_never_counted,
    asked_twice,
    a_message_over_three_segments,
    released_under_a_hold,
)

"""What must hold of subscriptions at work when the store fails, or clients go in the middle of something."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from offloader.errors import AccessDeniedError, FatalError, OffloadError, StoreUnavailableError
from offloader.gateway.topics import archive as archive_module
from offloader.gateway.topics import subscription as subscription_module
from offloader.gateway.values import ErrorCode, LookUpAgainError, RefusedError, SubscriptionType
from offloader.metadata.deletions import DeletedRange
from offloader.model import MIB, Place, Position, TopicName
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.cursors.marks import mark_delete_of
from tests.gateway.topics.served import NAME, PATIENCE, Consumer, Served, ToldStore, archive_of, asked, until, whole


def test_what_is_confirmed_after_an_unsubscribing_that_failed_is_not_forgotten() -> None:
    async def work(store: ToldStore) -> None:
        served = Served(store)
        consumer = await served.subscribe()
        places = await consumer.has(5)
        store.fails = True
        assert consumer.subscribed is not None
        with pytest.raises(OffloadError):
            await consumer.subscribed.unsubscribe()
        await consumer.until(lambda one: one.is_closed)
        store.fails = False
        again = await served.subscribe()
        assert again.subscribed is not None
        again.subscribed.acknowledge(whole(places[:3]))
        await again.subscribed.durable()
        served.close()
        anew = Served(store)
        third = await anew.subscribe()
        await third.has(5)
        assert not set(third.places) & set(places[:3])
        anew.close()

    asyncio.run(work(ToldStore()))


def test_a_subscription_whose_name_a_store_cannot_hold_is_refused_for_good(tmp_path: Path) -> None:
    """Clients do not try again. Others go on."""

    async def work(served: Served) -> None:
        for name in ("n" * 300, "é" * 60, "n" * 2_000):
            with pytest.raises(RefusedError) as refused:
                await served.subscribe(name)
            assert refused.value.code is ErrorCode.NOT_ALLOWED
            assert "at most 255 bytes" in str(refused.value)
        await (await served.subscribe("n" * 255)).has(5)
        served.close()

    with closing(open_store(StoreSettings(f"file://{tmp_path}"))) as store:
        told = ToldStore()
        told.store = store
        asyncio.run(work(Served(told)))


def test_a_seek_whose_client_has_gone_is_done_or_is_not() -> None:
    async def work(served: Served) -> None:
        consumer = await served.subscribe()
        places = await consumer.has(len(served.world.entries))
        await served.is_at_end()
        assert consumer.subscribed is not None
        entries = served.entries
        with entries.held():
            consumer.subscribed.acknowledge(whole(places[:1]))
            await entries.until_held()
            consumer.subscribed.acknowledge(whole(places[1:2]))
            seek = asyncio.create_task(consumer.subscribed.seek((-1, -1), None))
            await consumer.until(lambda one: one.is_closed)
        with entries.held():
            await entries.until_held()
            seek.cancel()
            with pytest.raises(asyncio.CancelledError):
                await seek
        again = await served.subscribe()
        await again.has(len(served.world.entries))
        served.close()

    asyncio.run(work(Served()))


def test_who_has_read_everything_hears_of_new_entries_though_something_else_fails_then() -> None:
    async def work(served: Served) -> None:
        consumer = await served.subscribe()
        await consumer.has(len(served.world.entries))
        await served.is_at_end()
        served.world.grow(5)
        served.entries.deleted.append(DeletedRange(Position(0, 10, 0), Position(0, 10, 1), (), "", 0, 0))
        served.entries.deletions_fail = True
        with pytest.raises(StoreUnavailableError):
            await served.topic.refresh()
        served.entries.deletions_fail = False
        await served.topic.refresh()
        await consumer.has(len(served.world.entries))
        served.close()

    asyncio.run(work(Served()))


def test_who_comes_after_damage_that_is_mended_is_given_everything() -> None:
    async def work(served: Served) -> None:
        served.entries.damaged = True
        first = await served.subscribe(durable=False)
        await first.until(lambda one: one.is_closed)
        with pytest.raises(RefusedError, match="damaged"):
            await served.subscribe(durable=False)
        served.entries.damaged = False
        served.forget_trouble()
        second = await served.subscribe(durable=False)
        await second.has(len(served.world.entries))
        served.close()

    asyncio.run(work(Served()))


def test_nothing_is_left_of_readers_that_were_closed_and_do_not_come_back() -> None:
    async def work(served: Served) -> None:
        before = served.shares.left
        served.entries.damaged = True
        damaged = await served.subscribe("damaged", durable=False)
        await damaged.until(lambda one: one.is_closed)
        served.entries.damaged = False
        seeking = await served.subscribe("seeks", durable=False)
        assert seeking.subscribed is not None
        await seeking.subscribed.seek((-1, -1), None)
        await served.flush()
        assert served.topic.subscriptions.keys() == {"damaged", "seeks"}, "they have some time to come back"
        served.is_long_ago()
        await served.flush()
        assert not served.topic.subscriptions
        assert served.shares.left == before
        served.close()

    asyncio.run(work(Served()))


def test_the_end_of_a_terminated_topic_is_told_though_the_store_was_away_when_the_last_entry_was_acknowledged() -> None:
    async def work(served: Served) -> None:
        served.entries.terminated = True
        consumer = await served.subscribe()
        places = await consumer.has(len(served.world.entries))
        await served.is_at_end()
        assert consumer.subscribed is not None
        served.entries.end_fails = True
        consumer.subscribed.acknowledge(whole(places))
        await until(lambda: served.entries.failures > 0)
        served.entries.end_fails = False
        await consumer.until(lambda one: one.has_all)
        served.close()

    asyncio.run(work(Served()))


def test_the_end_is_told_to_who_has_acknowledged_everything_before_the_topic_was_terminated() -> None:
    async def work(served: Served) -> None:
        consumer = await served.subscribe()
        places = await consumer.has(len(served.world.entries))
        await served.is_at_end()
        assert consumer.subscribed is not None
        consumer.subscribed.acknowledge(whole(places))
        await consumer.subscribed.durable()
        await served.is_at_end()
        served.entries.terminated = True
        await served.topic.refresh()
        await consumer.until(lambda one: one.has_all)
        served.close()

    asyncio.run(work(Served()))


def test_the_end_is_told_though_the_last_acknowledgement_comes_while_it_is_looked_for() -> None:
    async def work(served: Served) -> None:
        served.entries.terminated = True
        consumer = await served.subscribe()
        places = await consumer.has(len(served.world.entries))
        await served.is_at_end()
        assert consumer.subscribed is not None
        with served.entries.held():
            consumer.subscribed.acknowledge(whole(places[:-1]))
            await served.entries.until_held()
        with served.entries.held():
            await served.entries.until_held()
            consumer.subscribed.acknowledge(whole(places[-1:]))
        await consumer.until(lambda one: one.has_all)
        served.close()

    asyncio.run(work(Served()))


def test_what_nobody_foresaw_of_one_subscription_ends_it_and_the_others_are_written() -> None:
    async def work(store: ToldStore) -> None:
        served = Served(store)
        archive = archive_of(served)
        broken, sound = await served.subscribe("broken"), await served.subscribe("sound")
        for one in (broken, sound):
            assert one.subscribed is not None
            one.subscribed.acknowledge(whole((await one.has(3))[:3]))
        served.break_cursor("broken")
        assert await archive.flush() == []
        assert (broken.is_closed, sound.is_closed) == (True, False)
        assert mark_delete_of(store, NAME, "sound") == Position(0, 10, 2)
        again = await served.subscribe("broken")
        await again.has(len(served.world.entries))
        served.close()

    asyncio.run(work(ToldStore()))


def test_a_topic_is_not_let_go_of_while_somebody_is_about_to_subscribe() -> None:
    async def work(served: Served) -> None:
        served.entries.missing = "something is missing"
        coming = [asyncio.create_task(served.subscribe(name)) for name in ("first", "second")]
        await asyncio.sleep(0)  # they have begun
        idle = list[bool]()

        def look() -> None:
            """In every turn of the loop."""
            if not all(task.done() for task in coming):
                idle.append(served.topic.is_idle)
                asyncio.get_running_loop().call_soon(look)

        look()
        assert all(isinstance(answer, RefusedError) for answer in await asyncio.gather(*coming, return_exceptions=True))
        assert idle
        assert not any(idle)
        assert served.topic.is_idle
        served.close()

    asyncio.run(work(Served()))


def test_nobody_gets_a_subscription_of_a_topic_that_was_closed_meanwhile() -> None:
    """No round would write what is acknowledged in it."""

    async def work(served: Served) -> None:
        served.store.gate.clear()
        coming = asyncio.create_task(served.subscribe())
        await until(lambda: served.store.writes > 0)
        served.topic.close()
        served.store.gate.set()
        with pytest.raises(LookUpAgainError):
            await coming
        assert not served.topic.subscriptions
        assert served.shares.left == MIB
        served.close()

    asyncio.run(work(Served()))


def test_a_topic_that_is_being_given_back_holds_up_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "ROUND", 0.05)

    async def work(served: Served) -> None:
        archive, consumer = archive_of(served), await served.subscribe()
        given = list[TopicName]()

        async def hang(name: TopicName) -> None:
            given.append(name)
            await asyncio.Event().wait()

        monkeypatch.setattr(archive._owners, "give_back", hang)
        archive._owners.owned[TopicName("public", "default", "other")] = 0
        assert consumer.subscribed is not None
        await served.is_at_end()
        async with asyncio.timeout(20):
            for place in consumer.places[:3]:
                consumer.subscribed.acknowledge(whole([place]))
                assert await archive.flush() == []
                assert not served.topic.subscriptions["s"].changed
        assert len(given) == 1
        served.close()

    asyncio.run(work(Served()))


def test_what_is_used_by_the_time_that_it_would_be_given_back_is_kept() -> None:
    async def work(served: Served) -> None:
        archive = archive_of(served)
        archive.served.clear()
        archive._owners.owned[NAME] = 0
        await served.workers._rounds["know"].acquire()  # the only place
        flushing = asyncio.create_task(archive.flush())
        await until(lambda: ("give back", NAME, None) in archive._rounds)
        archive.served[NAME] = served.topic
        served.workers._rounds["know"].release()
        assert await flushing == []
        assert archive._owners.owned == {NAME: 0}
        served.close()

    asyncio.run(work(Served()))


def test_a_topic_that_cannot_be_opened_is_not_taken_for_none() -> None:
    """Clients give up for good where there is no topic."""

    async def work(served: Served) -> None:
        archive = archive_of(served, AccessDeniedError("the store refuses it (the test)"))
        archive.served.clear()
        with pytest.raises(AccessDeniedError):
            await archive.subscribe(asked("s"), Consumer(), "")
        other = replace(asked("s"), topic=TopicName("public", "default", "other"))
        with pytest.raises(RefusedError) as caught:
            await archive.subscribe(other, Consumer(), "")
        assert caught.value.code is ErrorCode.TOPIC_NOT_FOUND
        served.close()

    asyncio.run(work(Served()))


def test_who_consumes_a_topic_that_is_deleted_looks_it_up_again() -> None:
    async def work(served: Served) -> None:
        archive = archive_of(served)
        consumer = await served.subscribe()
        served.entries.refuses = AccessDeniedError("the store refuses it (the test)")
        assert await archive.refresh() == [served.entries.refuses]
        closed = [consumer.is_closed]
        served.entries.refuses = FatalError("it is not in the archive (the test)")
        served.archived.topics.clear()
        assert await archive.refresh() == []
        assert [*closed, consumer.is_closed] == [False, True]
        assert not archive.served
        served.close()

    asyncio.run(work(Served()))


def test_who_subscribes_does_not_wait_until_all_others_are_written() -> None:
    async def work(served: Served) -> None:
        count = 60
        for number in range(count):
            consumer = await served.subscribe(f"s{number}")
            assert consumer.subscribed is not None
            consumer.subscribed.acknowledge(whole((await consumer.has(1))[:1]))
        served.store.seconds, served.store.writes = 0.01, 0
        flush = asyncio.create_task(served.flush())
        await until(lambda: served.store.writes > 0)
        await served.subscribe("new")
        assert served.store.writes < count / 2
        await flush
        assert served.store.writes >= count
        served.close()

    asyncio.run(work(Served(threads=4)))


def test_who_looks_up_does_not_wait_until_all_topics_were_looked_at() -> None:
    async def work(served: Served) -> None:
        archive, count, looked = archive_of(served), 60, list[int]()

        def look() -> bool:
            looked.append(1)
            time.sleep(0.01)
            return False

        setattr(served.entries, "refresh", look)  # noqa: B010
        archive.served |= {TopicName("public", "default", f"t{number}"): served.topic for number in range(count)}
        refresh = asyncio.create_task(archive.refresh())
        await until(lambda: bool(looked))
        assert await archive.topics(NAME.namespace, "") == [str(NAME)]
        assert len(looked) < count / 2
        assert await refresh == []
        assert len(looked) > count
        served.close()

    asyncio.run(work(Served(threads=4)))


def test_a_reader_begins_as_far_back_in_time_as_it_says() -> None:
    async def work(served: Served) -> None:
        asked_for = list[int]()

        def before_time(published_ms: int) -> Place:
            asked_for.append(published_ms)
            return (11, 0)

        setattr(served.entries, "before_time", before_time)  # noqa: B010
        reader = Consumer()
        wanted = replace(asked("r", durable=False), rollback_seconds=60)
        begun = time.time()
        subscribed = await served.topic.subscribe(wanted, reader, "key", lambda: True)
        subscribed.flow(1000)
        later = [entry.place for entry in served.world.entries if entry.place > (11, 0)]
        assert (await reader.has(len(later))) == later
        assert 1000 * (begun - 61) < asked_for[0] <= 1000 * (time.time() - 60)  # in whole seconds
        served.close()

    asyncio.run(work(Served()))


def test_what_is_not_written_is_told_though_the_client_that_waited_has_gone() -> None:
    async def work(served: Served) -> None:
        consumer = await served.subscribe()
        places = await consumer.has(3)
        assert consumer.subscribed is not None
        served.store.gate.clear()
        served.store.writes = 0
        consumer.subscribed.acknowledge(whole(places[:1]))
        waiting = asyncio.create_task(consumer.subscribed.durable())
        await until(lambda: served.store.writes > 0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        subscription = served.topic.subscriptions["s"]
        assert subscription.unwritten_for > 0
        served.store.gate.set()
        await served.flush()
        assert subscription.unwritten_for == 0
        served.close()

    asyncio.run(work(Served()))


def test_what_could_not_be_applied_for_a_reason_that_nobody_foresaw_is_not_confirmed() -> None:
    async def work(served: Served) -> None:
        consumer = await served.subscribe()
        places = await consumer.has(3)
        assert consumer.subscribed is not None
        await served.is_at_end()
        await served.flush()

        def acknowledge(*_: object) -> bool:
            raise KeyError("nobody foresaw it (the test)")

        setattr(served.topic.subscriptions["s"]._acks.cursor, "acknowledge", acknowledge)  # noqa: B010
        consumer.subscribed.acknowledge(whole(places[:1]))
        await consumer.until(lambda one: one.is_closed)
        with pytest.raises(RefusedError):
            await consumer.subscribed.durable()
        served.close()

    asyncio.run(work(Served()))


def test_a_subscription_that_waits_for_the_store_is_seen_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(served: Served) -> None:
        consumer = await served.subscribe()
        places = await consumer.has(len(served.world.entries))
        await served.is_at_end()
        assert consumer.subscribed is not None
        subscription = served.topic.subscriptions["s"]
        with served.entries.held():
            consumer.subscribed.acknowledge(whole(places[:1]))
            await served.entries.until_held()
            seen = await asyncio.wait_for(subscription.seen(), PATIENCE / 2)
        assert (seen.consumers, seen.backlog) == (1, None)
        await served.flush()
        assert (await subscription.seen()).backlog == len(places) - 1
        served.close()

    monkeypatch.setattr(subscription_module, "LOOK_WITHIN", 0.1)
    asyncio.run(work(Served()))


def test_the_first_of_a_failover_subscription_hears_that_it_is_the_active_one_once_it_is_subscribed() -> None:
    """Clients drop what they are told before: they do not know the consumer yet."""

    async def work(served: Served) -> None:
        consumer = await served.subscribe(kind=SubscriptionType.FAILOVER)
        assert not consumer.told
        await consumer.until(lambda one: bool(one.told))
        assert consumer.told == [True]
        await consumer.has(1)
        served.close()

    asyncio.run(work(Served()))

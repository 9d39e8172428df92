"""Which topics this gateway has, and where the others are.

The newest claim decides; whether its gateway lives says only who may make the next one."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from offloader.errors import OffloadError, StoreUnavailableError
from offloader.gateway.owners.claim import TopicClaim
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.protocol.answers import Address
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import LookUpAgainError
from offloader.model import TopicName

log = logging.getLogger(__name__)

TRIES = 5  # each is lost only to another gateway's claim
LATE = 5.0  # seconds between two looks, beyond which nobody wonders that others took this gateway for dead
FIRST_TRUCE, LONGEST_TRUCE = 10.0, 3600.0  # seconds
AWAY = 30.0  # seconds without an answer of the store, after which others may have what this gateway has
IDLE = 60.0  # seconds since somebody has asked for a topic that nobody uses, until it is given back
MOST_FREE = 10_000  # topics of which it is remembered that a look-up has found no owner
LOOK_WITHIN = 10.0  # seconds; a look that hangs is taken again


class Rival(NamedTuple):
    """A gateway that took a topic from this one while it lived. Until then it counts as living, whatever its port
    says: two that cannot reach each other would else take the topic from each other all the time."""

    gateway: str
    until: float
    truce: float


class TopicOwners:
    """On the loop. `gateway`: this process. `here`: where clients reach it. `lost`: is told of a topic that another
    gateway has claimed; its durable consumers are to be closed. `away`: is told once that the store has not answered
    for long: durable consumers are to look up again, others may serve them. `counts`: topics since the start, by what
    became of them."""

    def __init__(
        self,
        claims: ClaimLog,
        gateway: str,
        here: Callable[[], Address],
        is_living: Callable[[Address], Awaitable[bool]],
        workers: Workers,
        now_ms: Callable[[], int],
        away_after: float = AWAY,
    ) -> None:
        self.owned: dict[TopicName, int] = {}
        self.lost: Callable[[TopicName], None] = lambda _: None
        self.away: Callable[[], None] = lambda: None
        self.counts = Counter(claimed=0, overtaken=0, released=0)
        self._claims = claims
        self._gateway = gateway
        self._here = here
        self._is_living = is_living
        self._workers = workers
        self._now_ms = now_ms
        self._rivals: dict[TopicName, Rival] = {}
        self._looked_at = asyncio.get_running_loop().time()
        self._stopping = False
        self.is_away = False
        self._away_after = away_after
        self._answered_at = self._watched_at = asyncio.get_running_loop().time()
        self._asked_at: dict[TopicName, float] = {}  # for what is owned
        self._changing: defaultdict[TopicName, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._free: dict[TopicName, TopicClaim | None] = {}  # the newest claims of what was nobody's at a look-up
        self._removing = set[asyncio.Task[None]]()

    @property
    def truces(self) -> int:
        """How many topics are left to those who took them, whatever these answer."""
        now = asyncio.get_running_loop().time()
        return sum(rival.until > now for rival in self._rivals.values())

    async def watch(self) -> list[OffloadError]:
        """Whether the store has not answered for so long that others may have what this gateway has: it gives them no
        sign of life then, and its clients ask elsewhere. Nothing goes wrong here."""
        now = asyncio.get_running_loop().time()
        if now - self._watched_at > LATE:  # it was paused: the store had no chance
            self._answered_at = now
        self._watched_at = now
        if self.owned and not self.is_away and now - self._answered_at > self._away_after:
            self.is_away = True
            log.warning(
                "gateway: the store has not answered for %d s: others may serve the topics of this one, %d",
                self._away_after,
                len(self.owned),
                extra={"see": "gateway-away"},
            )
            self.away()
        return []

    async def address(self, topic: TopicName) -> Address:
        """Where a client is to go: to the gateway that has the topic; else it may stay. Nothing is written: readers
        need no owner, and who subscribes durably claims the topic then. Raises what the store raises."""
        claim = await self._newest(topic)
        self._free.pop(topic, None)
        if claim is None or not claim.gateway:
            self._is_free(topic, claim)
        if claim is None or not await self._is_of_another(claim):
            return self._here()
        return claim.address

    async def own(self, topic: TopicName) -> Callable[[], bool]:
        """Returns when the topic is this gateway's: whether it still is, as far as that is known. Raises
        LookUpAgainError where another one has it that lives; and what the store raises."""
        async with self._changing[topic]:
            self._asked_at[topic] = asyncio.get_running_loop().time()
            return await self._own(topic)

    def was_asked_for(self, topic: TopicName) -> bool:
        """Whether somebody has asked for it lately, or does now."""
        since = asyncio.get_running_loop().time() - self._asked_at.get(topic, -IDLE)
        return since < IDLE or self._changing[topic].locked()

    async def give_back(self, topic: TopicName) -> None:
        """Nobody uses it: whoever is asked for it next may have it. Raises what the store raises."""
        if topic not in self.owned or self.was_asked_for(topic):
            return
        async with self._changing[topic]:
            await self._give(topic, self.owned.pop(topic))
            self._asked_at.pop(topic, None)
            self.counts["released"] += 1

    async def _own(self, topic: TopicName) -> Callable[[], bool]:
        if topic in self._free and not self._stopping and not self.is_away:
            # Whether it is nobody's still, the write says: it takes the number only if nobody has it.
            number = await self._claim(topic, self._free.pop(topic))
            if number is not None:
                return self._holds(topic, number)
        for _ in range(TRIES):
            claim = await self._newest(topic)
            if claim is not None and claim.gateway == self._gateway:
                return self._holds(topic, claim.number)
            if self._stopping:
                raise LookUpAgainError("this gateway stops")
            if claim is not None and await self._is_of_another(claim):
                raise LookUpAgainError(f"{topic} is served at {claim.address.url or claim.address.tls}")
            number = await self._claim(topic, claim)
            if number is not None:
                return self._holds(topic, number)
        raise LookUpAgainError(f"other gateways claim {topic}")

    def _holds(self, topic: TopicName, number: int) -> Callable[[], bool]:
        self._has(topic, number)
        return lambda: self.owned.get(topic) == number

    async def _claim(self, topic: TopicName, behind: TopicClaim | None) -> int | None:
        """The number of the new claim; None: others were faster. Nobody waits until the former ones are removed."""
        number = 0 if behind is None else behind.number + 1
        claim = TopicClaim(topic, number, self._gateway, self._here(), self._now_ms())
        former = await self._workers.know(lambda: self._claims.write(claim))
        if former is None:
            return None
        self.counts["claimed"] += 1
        if former:
            task = asyncio.create_task(self._remove(topic, former))
            self._removing.add(task)
            task.add_done_callback(self._removing.discard)
        return claim.number

    async def _remove(self, topic: TopicName, former: Collection[int]) -> None:
        try:
            await self._workers.know(lambda: self._claims.remove(topic, former))
        except OffloadError as error:  # the next claim removes them, too
            log.debug("gateway: former claims of %s stay: %s", topic, error)

    def _is_free(self, topic: TopicName, newest: TopicClaim | None) -> None:
        if len(self._free) >= MOST_FREE:
            self._free.clear()
        self._free[topic] = newest

    async def look(self) -> list[OffloadError]:
        """Whether others have claimed what was this gateway's; returns what went wrong."""
        now = asyncio.get_running_loop().time()
        was_late, self._looked_at = now - self._looked_at > LATE, now
        owned = dict(self.owned)
        if not owned:
            self._has_answered()
            return []
        try:
            newest = await asyncio.wait_for(self._workers.know(self._claims.newest_of_all), LOOK_WITHIN)
        except OffloadError as error:
            return [error]
        except TimeoutError:
            return [StoreUnavailableError(f"the store has not said within {LOOK_WITHIN:g} s who has which topic")]
        self._has_answered()
        failed: list[OffloadError] = []
        for topic, number in owned.items():
            if newest.get(topic) == number or self.owned.get(topic) != number:
                continue
            try:
                await self._look_at(topic, surprised=not was_late)
            except OffloadError as error:
                failed.append(error)
        return failed

    async def release(self) -> list[OffloadError]:
        """Nothing is claimed any more, and all topics are anybody's; returns what went wrong."""
        self._stopping = True
        owned, self.owned = self.owned, {}
        work = (self._give(topic, number) for topic, number in owned.items())
        answers = await asyncio.gather(*work, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, OffloadError):
                raise answer
        return [answer for answer in answers if isinstance(answer, OffloadError)]

    async def _give(self, topic: TopicName, number: int) -> bool:
        claim = TopicClaim(topic, number + 1, at=self._now_ms())
        return await self._workers.know(lambda: self._claims.append(claim))

    def _has_answered(self) -> None:
        self._answered_at, self.is_away = asyncio.get_running_loop().time(), False

    async def _newest(self, topic: TopicName) -> TopicClaim | None:
        """Where that is another gateway's, this one has lost the topic."""
        if self.is_away:
            raise StoreUnavailableError(f"the store has not answered for {self._away_after:g} s")
        claim = await self._workers.know(lambda: self._claims.newest(topic))
        if topic in self.owned and (claim is None or claim.gateway != self._gateway):
            self._has_lost(topic, claim, surprised=asyncio.get_running_loop().time() - self._looked_at <= LATE)
        return claim

    async def _look_at(self, topic: TopicName, *, surprised: bool) -> None:
        claim = await self._workers.know(lambda: self._claims.newest(topic))
        if claim is not None and claim.gateway == self._gateway:
            self._has(topic, claim.number)
        elif topic in self.owned:
            self._has_lost(topic, claim, surprised=surprised)

    def _has(self, topic: TopicName, number: int) -> None:
        """By a claim whose outcome was not known it may have the topic again, and another one had it in between."""
        if self.owned.get(topic, number) != number:
            self.lost(topic)
        self.owned[topic] = number

    def _has_lost(self, topic: TopicName, claim: TopicClaim | None, *, surprised: bool) -> None:
        del self.owned[topic]
        self.counts["overtaken"] += claim is not None and claim.gateway != ""
        if claim is not None and claim.gateway and surprised:
            truce = min(2 * self._rivals[topic].truce, LONGEST_TRUCE) if topic in self._rivals else FIRST_TRUCE
            until = asyncio.get_running_loop().time() + truce
            self._rivals[topic] = Rival(claim.gateway, until, truce)
            where = claim.address.url or claim.address.tls
            log.warning("gateway: %s was taken over by %s", topic, where, extra={"see": "gateway-overtaken"})
        self.lost(topic)

    async def _is_of_another(self, claim: TopicClaim) -> bool:
        """Whether a gateway has the topic that is not this one, and lives."""
        if claim.gateway in ("", self._gateway):
            return False
        rival = self._rivals.get(claim.topic)
        if rival is not None and rival.gateway == claim.gateway and asyncio.get_running_loop().time() < rival.until:
            return True
        if claim.address == self._here():  # whoever was here before
            return False
        return await self._is_living(claim.address)

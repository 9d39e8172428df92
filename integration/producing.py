"""Producing in the background while applications come and go."""

from __future__ import annotations

import itertools
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pulsar

from integration.produce import Produced, merged, produce_mixed

# Seconds between two rounds. A busy machine, where everything lasts longer, shall not have far more to offload.
PAUSE = 1.0

log = logging.getLogger(__name__)


class Producing:
    """Produces mixed entries to topics in turn from a thread, until it is left; `produced` is then what was
    acknowledged.

    `largest`: the largest message, whose size some messages of each round have. `partitioned`: which topics are.
    """

    def __init__(
        self,
        service_url: str,
        topics: list[str],
        *,
        seed: int,
        messages: int,
        largest: int,
        partitioned: frozenset[str],
    ) -> None:
        self._service_url = service_url
        self._topics = topics
        self._seed = seed
        self._messages = messages
        self._largest = largest
        self._partitioned = partitioned
        self._enough = threading.Event()
        self._pool = ThreadPoolExecutor(1, "producing")
        self._rounds: Future[list[Produced]] | None = None
        self.produced = Produced()

    def __enter__(self) -> Self:
        self._rounds = self._pool.submit(self._produce)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        self._pool.shutdown()
        if self._rounds is not None and error is None:
            self.produced = merged(self._rounds.result())

    def _produce(self) -> list[Produced]:
        rounds: list[Produced] = []
        for number, topic in enumerate(itertools.cycle(self._topics)):
            if self._enough.wait(PAUSE):
                return rounds
            try:
                rounds.append(self._round(topic, self._seed + number))
            except pulsar.Timeout as error:
                log.warning(
                    "a round of %s is not answered for, whoever reads the topic sees what came of it: %s", topic, error
                )
        return rounds

    def _round(self, topic: str, seed: int) -> Produced:
        return produce_mixed(
            self._service_url,
            topic,
            seed=seed,
            messages=self._messages,
            largest=self._largest,
            partitioned=topic in self._partitioned,
        )

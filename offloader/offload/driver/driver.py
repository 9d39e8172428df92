"""The one process that decides: rounds of looking, deciding, journaling and publishing plans.

One thread runs everything here (`run`) and owns all topics. It waits for nothing but the journal: whatever else may
take long it posts as work, and takes the result in a later round. Other threads only put receipts into its inbox, or
wake it. Batches run beside that, one of each lane at a time."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from offloader.errors import RetryableError
from offloader.metadata.state import TopicState
from offloader.model import Lane, Receipt, TopicName
from offloader.offload.driver import acknowledging
from offloader.offload.driver.committing import Compacting
from offloader.offload.driver.context import Context
from offloader.offload.driver.feature import TopicFeature
from offloader.offload.driver.lane_plans import LaneBatch, LanePlans
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.retaining import Retaining
from offloader.offload.driver.topic_copies import TopicCopying
from offloader.offload.driver.topic_status import TopicStatuses
from offloader.offload.driver.uploads import AbandonedUploads
from offloader.offload.live.view import LaneStatus, LiveView

log = logging.getLogger(__name__)

BUSY_WAIT = 0.25  # seconds between rounds while something is under way
OTHERS = 3  # times as long as a round had the interpreter, others have it: threads that work, and drivers of shards
LONGEST_REST = 1.0  # seconds, at most


class Driver:
    """`registry` has the topics, `plans` what is read of them. `poll_ms`: how often the journal is checked. `features`:
    what is done for topics besides. `copying`: what is copied of them besides their entries. `passing_on`: topics of
    other shards; None: there are none."""

    def __init__(
        self,
        context: Context,
        registry: TopicRegistry,
        plans: LanePlans,
        requests: RequestHandler,
        retaining: Retaining,
        features: Sequence[TopicFeature],
        poll_ms: int,
        copying: Sequence[TopicCopying] = (),
        passing_on: PassingOn | None = None,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self.context = context
        self.registry = registry
        self.plans = plans
        self.statuses = TopicStatuses(context)
        self.view: LiveView | None = None  # the last one, for any thread
        self._requests = requests
        self._retaining = retaining
        context.features.extend(features)
        self._copying = copying
        self._passing_on = passing_on
        self._poll_ms = poll_ms
        self._inbox: queue.Queue[LaneBatch | None] = queue.Queue()  # None: there is something to look at
        self._batches_in: deque[LaneBatch] = deque()
        context.work.wake = lambda: self._inbox.put(None)
        context.journal.recorded = context.changes.mark
        self._abandoned = AbandonedUploads(context)
        self._compacting = Compacting(context)
        self._acknowledging = context.changes.agenda()
        self._cpu_seconds = cpu_seconds
        self._stopping = threading.Event()
        self._checked_at = 0
        self._batches: Counter[Lane] = Counter()
        self._failed_rounds = 0  # in a row
        self.turns = 0  # rounds that did not fail

    # The application's side

    def deliver(self, lane: Lane, receipts: list[Receipt]) -> LaneBatch:
        """Hand over what came of a lane's plan. The batch is done once the receipts are journaled."""
        batch = LaneBatch(lane, receipts)
        self._inbox.put(batch)
        return batch

    def journal_receipts(self, lane: Lane, receipts: list[Receipt]) -> None:
        """Called by foreachBatch: returns once the receipts are journaled (or the driver stops)."""
        batch = self.deliver(lane, receipts)
        while not batch.done.wait(BUSY_WAIT) and not self._stopping.is_set():
            pass

    def stop(self) -> None:
        """End `run` after its present round."""
        self._stopping.set()
        self._inbox.put(None)

    def run(self) -> None:
        """Rounds until stopped. Raises OvertakenError and other errors that end the application."""
        try:
            while not self._stopping.is_set():
                began = self._cpu_seconds()
                pause = self.turn()
                self._rest(pause, self._cpu_seconds() - began)
        finally:
            self.plans.ended()

    def _rest(self, seconds: float, worked: float) -> None:
        """Until there is something to do. But for receipts, for which Spark waits, not before the threads that do the
        work had their time: with many topics an answer comes while a round looks at all of them, and would begin the
        next one. `worked`: seconds."""
        with self.context.metrics.health.waiting("pause", seconds):
            if self._failed_rounds:
                self._stopping.wait(seconds)  # what is done meanwhile cannot be journaled either
            else:
                self._wait(min(OTHERS * worked, LONGEST_REST), seconds)

    def turn(self) -> float:
        """One round; a later one tries again what can be. Returns the seconds until the next, if nothing wakes us."""
        began = self.context.clock_ms()
        try:
            self.round()
        except RetryableError as error:
            self._failed_rounds += 1
            self.context.metrics.health.checked("store", str(error))
            log.warning("waiting, nothing is lost (%d): %s", self._failed_rounds, error, extra={"see": "waiting"})
            return min(2.0 ** (self._failed_rounds - 1), 30.0)
        finally:
            self.context.metrics.round((self.context.clock_ms() - began) / 1000)
        self._failed_rounds = 0
        self.turns += 1
        self.context.metrics.health.checked("store")
        return self._pause()

    def batches_since_restart(self, lane: Lane) -> int:
        """How many batches of the lane were committed since the last call."""
        return self._batches.pop(lane, 0)

    def state(self, name: TopicName) -> TopicState:
        """The topic's journal state."""
        return self.context.state(name)

    # One round

    def round(self) -> None:
        """Everything that is due now. Safe to call at any time from the driver's thread."""
        now, topics = self.context.clock_ms(), self.registry.topics
        self.context.metrics.health.tick()
        self._check_not_overtaken(now)
        self._take_receipts()
        self.plans.take_done()
        self.registry.update()
        self._requests.serve(self.registry, now)
        self.registry.release_retired()
        acknowledging.acknowledge_all(self.context, self._acknowledging, topics)
        if self._passing_on is not None:
            self._passing_on.look(now)
        self._abandoned.abort(now)
        self._compacting.look(topics)
        self._retaining.look(topics.values())
        for feature in self.context.features:
            feature.look(topics)
        for one in self._copying:
            one.look(topics)
        if self.statuses.tell(topics, now):
            self.view = self._seen(now)
        self.plans.take_done()
        self.plans.plan()

    def _seen(self, now: int) -> LiveView:
        """What others may look at: frozen, and made of what there is already."""
        out = self.plans.under_way()
        lanes = tuple(LaneStatus(lane, *out.get(lane, (0, 0)), self.statuses.lanes[lane]) for lane in Lane)
        refused = tuple(self.registry.refused.items())
        return LiveView(now, self.statuses.latest, refused, lanes, self.registry.settled)

    def _check_not_overtaken(self, now: int) -> None:
        if now - self._checked_at >= self._poll_ms or not self.plans.outstanding(Lane.FAST):
            self.context.journal.check_not_overtaken()
            self._checked_at = now

    def _wait(self, least: float, most: float) -> None:
        """Until receipts are in, or we stop; or something is done, `least` seconds or more; `most` where nothing is."""
        began, until = time.monotonic(), max(least, most)
        while (left := began + until - time.monotonic()) > 0:
            try:
                batch = self._inbox.get(timeout=left)
            except queue.Empty:
                return
            if batch is not None:
                self._batches_in.append(batch)
            if batch is not None or self._stopping.is_set():
                return
            until = least

    def _pause(self) -> float:
        """Seconds until the next round."""
        if self.plans.outstanding(Lane.FAST) or not self.registry.settled or self._requests.busy:
            return BUSY_WAIT
        return max(BUSY_WAIT, min(self.plans.due_at - self.context.clock_ms(), self._poll_ms) / 1000)

    def _take_receipts(self) -> None:
        for _ in range(self._inbox.qsize()):
            batch = self._inbox.get()
            if batch is not None:
                self._batches_in.append(batch)
        while self._batches_in:
            batch = self._batches_in[0]
            self.plans.take(batch)
            self._batches[batch.lane] += 1
            batch.done.set()
            self._batches_in.popleft()

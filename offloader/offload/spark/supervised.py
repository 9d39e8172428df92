"""Spark's query, kept running: one that dies is started again with a checkpoint of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from offloader.errors import FatalError

log = logging.getLogger(__name__)

_GONE = (Py4JError, ConnectionError)
# In a row, each without a committed batch in between. Spark gives a Python process ten seconds to connect, which a busy
# machine may not keep for minutes; and a start of the whole application takes far longer than one of a query.
MOST_RESTARTS = 20


class SupervisedQuery:
    """`start` starts a query; `batches` says how many batches were committed since it was last asked."""

    def __init__(self, start: Callable[[], StreamingQuery], batches: Callable[[], int]) -> None:
        self._start = start
        self._batches = batches
        self._restarts = 0
        self._query = self._started()

    def keep_running(self) -> None:
        """Start the query again where it died: it runs the outstanding plan. Raises FatalError if that does not
        help."""
        try:
            if self._query is not None and self._query.isActive:
                return
            reason = self._why_dead()
        except _GONE as error:
            raise FatalError(
                f"Spark's JVM does not answer any more, it may have been killed: {_first_line(error)}"
            ) from error
        self._restarts = 0 if self._batches() else self._restarts + 1
        if self._restarts > MOST_RESTARTS:
            raise FatalError(f"Spark's query ended {self._restarts} times in a row without a batch: {reason}")
        self._query = self._started()

    def stop(self) -> None:
        """End it. What Spark says while it shuts down is of no interest any more."""
        try:
            if self._query is not None:
                self._query.stop()
        except (PySparkException, *_GONE) as error:
            log.debug("while stopping Spark's query: %s", error)

    def _started(self) -> StreamingQuery | None:
        try:
            return self._start()
        except (PySparkException, *_GONE) as error:  # for example a Python process of Spark's that was killed meanwhile
            log.error("Spark's query could not be started: %s", _first_line(error), extra={"see": "query-not-started"})
            return None

    def _why_dead(self) -> str:
        if self._query is None:
            return "it could not be started"
        error: StreamingQueryException | None = self._query.exception()
        reason = _first_line(error) if error else "no reason given"
        log.error("Spark's query ended: %s", reason, extra={"see": "query-ended"})
        return reason


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

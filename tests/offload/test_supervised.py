"""Spark's query is kept running, but not for ever without a batch."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from offloader.errors import FatalError
from offloader.offload.spark.supervised import SupervisedQuery

MOST_RESTARTS = 20


class Query:
    isActive = False  # noqa: N815

    def exception(self) -> Exception | None:
        return None

    def stop(self) -> None:
        raise Py4JError("the JVM is gone")


def test_a_query_that_cannot_be_started_is_started_again() -> None:
    attempts = []

    def start() -> Query:
        attempts.append(1)
        if len(attempts) == 1:
            raise Py4JError("a Python process was killed")
        query = Query()
        query.isActive = True
        return query

    query = SupervisedQuery(start, lambda: 0)
    query.keep_running()
    query.keep_running()
    assert len(attempts) == 2
    query.stop()


def test_a_query_that_dies_again_and_again_without_a_batch_ends_the_application() -> None:
    query = SupervisedQuery(Query, lambda: 0)
    for _ in range(MOST_RESTARTS):
        query.keep_running()
    with pytest.raises(FatalError, match="in a row without a batch"):
        query.keep_running()


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("cannot connect to the Java server"), ConnectionResetError("reset")]
)
def test_a_jvm_that_is_gone_ends_the_application(error: Exception) -> None:
    class Gone:
        @property
        def isActive(self) -> bool:  # noqa: N802
            raise error

        def exception(self) -> Exception | None:
            return None

        def stop(self) -> None:
            raise error

    query = SupervisedQuery(Gone, lambda: 0)
    with pytest.raises(FatalError, match=f"JVM does not answer any more, .*: .*{error}"):
        query.keep_running()
    query.stop()


def test_batches_in_between_start_the_count_anew() -> None:
    starts = []

    def start() -> Query:
        starts.append(1)
        return Query()

    query = SupervisedQuery(start, lambda: 1)
    for _ in range(5 * MOST_RESTARTS):
        query.keep_running()
    assert len(starts) == 1 + 5 * MOST_RESTARTS

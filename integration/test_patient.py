"""What a busy Pulsar, or a busy Spark, is asked again, and what not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import httpx
import pytest
from pyspark.errors import PySparkException

from integration import patient, spark
from integration.patient import PatientPulsar
from integration.spark import TOO_LATE, patiently
from offloader.errors import BrokerUnavailableError, FatalError


@pytest.fixture
def pulsar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PatientPulsar:
    """One that is not started: `answering` says what it would say."""
    monkeypatch.setattr(patient, "PAUSE", 0.0)
    return PatientPulsar(tmp_path)


def answering(pulsar: PatientPulsar, answers: Iterable[int | Exception]) -> list[str]:
    """What it is asked, while it gives one answer after the other."""
    asked: list[str] = []
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.path}")
        status = next(left)
        if isinstance(status, Exception):
            raise status
        return httpx.Response(status, text="because")

    pulsar.web.close()
    pulsar.web = httpx.Client(base_url=pulsar.web.base_url, transport=httpx.MockTransport(answer))
    return asked


@pytest.mark.parametrize("busy", [httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("closed"), 307, 412, 500, 503])
def test_a_busy_pulsar_is_asked_again(pulsar: PatientPulsar, busy: int | Exception) -> None:
    asked = answering(pulsar, [busy, busy, 200])
    assert pulsar.admin("GET", "clusters").text == "because"
    assert asked == 3 * ["GET /admin/v2/clusters"]


@pytest.mark.parametrize(("method", "done"), [("PUT", 409), ("DELETE", 404)])
def test_a_call_whose_answer_was_lost_may_be_done_already(pulsar: PatientPulsar, method: str, done: int) -> None:
    answering(pulsar, [httpx.ReadTimeout("slow"), done])
    assert pulsar.admin(method, "persistent/public/default/t").is_success
    answering(pulsar, [done])
    with pytest.raises(FatalError, match=f"{method} persistent/public/default/t: {done} because"):
        pulsar.admin(method, "persistent/public/default/t")


def test_a_pulsar_that_stays_busy_fails_with_its_last_word(
    pulsar: PatientPulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient, "HANGS", -1.0)
    answering(pulsar, [500])
    with pytest.raises(FatalError, match="GET clusters: 500 because"):
        pulsar.admin("GET", "clusters")
    answering(pulsar, [httpx.ReadTimeout("slow")])
    with pytest.raises(BrokerUnavailableError, match="GET clusters: slow"):
        pulsar.admin("GET", "clusters")


def test_spark_is_asked_again_where_its_python_was_too_late_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, wrong = PySparkException(f"failed to {TOO_LATE}"), PySparkException("wrong")
    answers: list[PySparkException | int] = [late, late, 1, wrong, late]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert patiently(ask) == 1
    with pytest.raises(PySparkException, match="wrong"):
        patiently(ask)
    monkeypatch.setattr(spark, "HANGS", -1.0)
    with pytest.raises(PySparkException, match=TOO_LATE):
        patiently(ask)

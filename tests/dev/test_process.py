"""A process that we start does not outlive us. Java is stood for by the shell: the same code starts both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dev.embedded.process import JavaProcess
from offloader.errors import FatalError

STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]
OBEDIENT = ["/bin/sh", "-c", "echo up; exec sleep 60"]


def started(command: list[str], folder: Path) -> JavaProcess:
    process = JavaProcess(command, folder, folder / "log")
    wait_for(lambda: (folder / "log").read_text() == "up\n")
    return process


def wait_for(condition: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_waited_for_until_it_is_ready(tmp_path: Path) -> None:
    process = JavaProcess(OBEDIENT, tmp_path, tmp_path / "log")
    process.await_ready(lambda: (tmp_path / "log").read_text() == "up\n", 20)
    process.kill()


def test_what_ends_while_it_starts_is_quoted_from_this_run_only(tmp_path: Path) -> None:
    log = tmp_path / "bookie.log"
    log.write_text("ERROR of the last run\n")
    process = JavaProcess(["/bin/sh", "-c", "echo fine; echo ERROR disk full; echo bye"], tmp_path, log)
    with pytest.raises(FatalError, match=rf"^bookie ended while it started, see {log}: ERROR disk full$"):
        process.await_ready(lambda: False, 20)
    process.kill()


def test_what_does_not_get_ready_is_given_up(tmp_path: Path) -> None:
    process = started(OBEDIENT, tmp_path)
    with pytest.raises(FatalError, match=r"^log did not start within 0 s, see .*: up$"):
        process.await_ready(lambda: False, 0.2)
    process.kill()


def test_stop_lets_it_end_by_itself(tmp_path: Path) -> None:
    process = started(OBEDIENT, tmp_path)
    begin = time.monotonic()
    process.stop(grace=50)
    assert time.monotonic() - begin < 40
    wait_for(lambda: not group_is_alive(process.pid))


def test_stop_ends_what_does_not_listen(tmp_path: Path) -> None:
    process = started(STUBBORN, tmp_path)
    process.stop(grace=0.1)
    wait_for(lambda: not group_is_alive(process.pid))


def test_kill_after_the_end_does_nothing(tmp_path: Path) -> None:
    process = started(["/bin/sh", "-c", "echo up"], tmp_path)
    assert process.ended_within(20)
    process.kill()
    wait_for(lambda: not group_is_alive(process.pid))


def test_a_running_process_has_not_ended(tmp_path: Path) -> None:
    process = started(OBEDIENT, tmp_path)
    assert not process.ended_within(0.01)
    process.kill()
    assert process.ended_within(0)


def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from dev.embedded.process import JavaProcess\n"
        f"folder = Path({str(tmp_path)!r}); print(JavaProcess({OBEDIENT!r}, folder, folder / 'log').pid, "
        "flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        wait_for(lambda: (tmp_path / "log").read_text() == "up\n")
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not group_is_alive(group))


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    from threading import Thread

    processes: list[JavaProcess] = []
    thread = Thread(target=lambda: processes.append(started(OBEDIENT, tmp_path)))
    thread.start()
    thread.join()
    assert not processes[0].ended_within(0.5)
    processes[0].kill()

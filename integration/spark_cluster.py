"""A Spark standalone cluster on this machine: a master and workers, each a process with a work directory of its own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pyspark

from dev.embedded.process import JavaProcess
from dev.embedded.settings import free_ports
from integration.processes import HANGS
from offloader.java import find_java

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
EXECUTOR = b"CoarseGrainedExecutorBackend"
HOST = "127.0.0.1"


class Worker:
    """A worker. Its executors are its children, and inherit its environment."""

    def __init__(self, cluster: SparkCluster, number: int, cores: int, environment: Mapping[str, str]) -> None:
        self.folder = cluster.folder / f"worker-{number}"
        self.folder.mkdir()
        (web,) = free_ports(1, random.SystemRandom())
        options = ("--host", HOST, "--webui-port", str(web), "--cores", str(cores), "--memory", "2g")
        command = cluster.command("worker.Worker", *options, "--work-dir", str(self.folder), cluster.master)
        self._process = JavaProcess(
            command, self.folder, self.folder / "worker.log", {**cluster.environment, **environment}
        )

    def await_ready(self) -> None:
        """Until it has registered with the master."""
        self._process.await_ready(lambda: "Successfully registered" in self.log(), HANGS)

    def log(self) -> str:
        """What the worker itself has logged."""
        return (self.folder / "worker.log").read_text(errors="replace")

    def executors(self) -> list[int]:
        """The processes that run tasks of applications."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if EXECUTOR in (entry / "cmdline").read_bytes() and (entry / "cwd").readlink().is_relative_to(
                    self.folder
                ):
                    found.append(int(entry.name))
        return found

    def tasks(self) -> int:
        """How many tasks its executors have begun."""
        return sum(log.read_text(errors="replace").count("Running task") for log in self.folder.glob("app-*/*/stderr"))

    def busy(self) -> bool:
        """Whether an executor is at work on a task."""
        logs = [Path(f"/proc/{pid}/cwd/stderr") for pid in self.executors()]
        texts = [log.read_text(errors="replace") for log in logs if log.exists()]
        return any(text.count("Running task") > text.count("Finished task") for text in texts)

    def kill_executors(self) -> int:
        """SIGKILL to all of them; how many there were."""
        found = self.executors()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def end(self) -> None:
        """Kill it and its executors."""
        self._process.kill()
        self.kill_executors()


class SparkCluster:
    """A master, and the workers that `add` gives it. Loopback only. `environment` is that of every process."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
            **(environment or {}),
        }
        self.workers: list[Worker] = []
        port, self._web = free_ports(2, random.SystemRandom())
        self.master = f"spark://{HOST}:{port}"
        command = self.command("master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(self._web))
        self._process = JavaProcess(command, self.folder, self.folder / "master.log", self.environment)

    def __enter__(self) -> Self:
        try:
            self._process.await_ready(lambda: self.state() is not None, HANGS)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def add(self, cores: int = 2, **environment: str) -> Worker:
        """One more worker, which has registered."""
        worker = Worker(self, len(self.workers) + 1, cores, environment)
        self.workers.append(worker)
        worker.await_ready()
        return worker

    def state(self) -> dict[str, Any] | None:
        """What the master says of its workers and applications; None while it does not answer."""
        with contextlib.suppress(httpx.TransportError, json.JSONDecodeError):  # its first pages are empty
            answer = httpx.get(f"http://{HOST}:{self._web}/json/", timeout=10.0, follow_redirects=True)
            return answer.json() if answer.is_success else None
        return None

    def end(self) -> None:
        """Kill everything."""
        for worker in self.workers:
            worker.end()
        self._process.kill()

    @staticmethod
    def command(name: str, *arguments: str) -> list[str]:
        return [str(SPARK_CLASS), f"{DEPLOY}.{name}", *arguments]

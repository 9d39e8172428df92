"""A mirror named in the environment is asked, and nothing else."""

from __future__ import annotations

import gc
import hashlib
import io
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from dev.embedded.jars import JarCache, repository_download
from dev.embedded.lock import Jar
from offloader.errors import FatalError

CONTENT = b"a jar"
JAR = Jar("org.example", "thing", "1.0", "linux", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


# jgo leaves the answers that it does not want to the garbage collector: the fixture collects them while this holds
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the test's output stays clean."""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    served = tmp_path / "served"
    (served / JAR.path).parent.mkdir(parents=True)
    (served / JAR.path).write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(served))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
    gc.collect()


def cache_of(folder: Path, mirror: str) -> JarCache:
    return JarCache(folder, repository_download(mirror), Console(file=io.StringIO()), sleep=lambda _: None)


def test_a_jar_comes_from_the_mirror(tmp_path: Path, mirror: str) -> None:
    (path,) = cache_of(tmp_path / "cache", mirror).fetch([JAR])
    assert path.read_bytes() == CONTENT


def test_what_the_mirror_lacks_is_an_error(tmp_path: Path, mirror: str) -> None:
    other = Jar("org.example", "other", "1.0", "", 1, "0" * 64)
    with pytest.raises(FatalError, match=r"cannot fetch org\.example:other:1\.0"):
        cache_of(tmp_path / "cache", mirror).fetch([other])


def test_a_mirror_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="OFFLOADER_MAVEN_MIRROR"):
        cache_of(tmp_path, "http://127.0.0.1:9").fetch([JAR])

"""Only what is exactly the locked file counts as fetched; what is finished is not fetched again."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from dev.embedded.jars import JarCache, cache_directory
from dev.embedded.lock import Jar
from offloader.errors import FatalError

CONTENTS = {f"artifact-{number}": bytes([number]) * (1000 + number) for number in range(20)}
JARS = [
    Jar("g", name, "1", "", len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items()
]


class Repository:
    """Serves CONTENTS; `answer` may replace a download. Counts what is asked for."""

    def __init__(self, answer: Callable[[Jar, int], bytes] | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self._answer = answer or (lambda jar, attempt: CONTENTS[jar.artifact])
        self._lock = threading.Lock()

    def __call__(self, jar: Jar, folder: Path) -> Path:
        with self._lock:
            self.asked[jar.artifact] += 1
            attempt = self.asked[jar.artifact]
        path = folder / "some" / "where.jar"
        path.parent.mkdir()
        path.write_bytes(self._answer(jar, attempt))
        return path


def cache_of(folder: Path, repository: Repository, output: io.StringIO | None = None) -> JarCache:
    return JarCache(folder, repository, Console(file=output or io.StringIO()), sleep=lambda _: None)


def check_complete(folder: Path, paths: list[Path]) -> None:
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert not list(folder.glob("fetch-*"))


def test_fetches_everything_once(tmp_path: Path) -> None:
    repository = Repository()
    check_complete(tmp_path, cache_of(tmp_path, repository).fetch(JARS))
    check_complete(tmp_path, cache_of(tmp_path, repository).fetch(JARS))
    assert repository.asked == Counter(CONTENTS.keys())


def test_a_second_start_hashes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of(tmp_path, Repository()).fetch(JARS)
    monkeypatch.setattr(hashlib, "file_digest", None)
    check_complete(tmp_path, cache_of(tmp_path, Repository()).fetch(JARS))


def test_a_lost_stamp_file_costs_no_download(tmp_path: Path) -> None:
    cache_of(tmp_path, Repository()).fetch(JARS)
    for content in ("", "[]", "{"):
        (tmp_path / "verified.json").write_text(content)
        repository = Repository()
        check_complete(tmp_path, cache_of(tmp_path, repository).fetch(JARS))
        assert not repository.asked


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-1]), lambda path: path.unlink()])
def test_a_partial_or_missing_jar_is_fetched_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    damage(cache_of(tmp_path, Repository()).fetch(JARS)[3])
    repository = Repository()
    check_complete(tmp_path, cache_of(tmp_path, repository).fetch(JARS))
    assert repository.asked == {"artifact-3": 1}


def test_a_changed_byte_is_found_although_the_size_is_right(tmp_path: Path) -> None:
    path = cache_of(tmp_path, Repository()).fetch(JARS)[3]
    status = path.stat()
    path.write_bytes(b"x" * JARS[3].size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    repository = Repository()
    check_complete(tmp_path, cache_of(tmp_path, repository).fetch(JARS))
    assert repository.asked == {"artifact-3": 1}


def test_a_changed_lock_is_not_satisfied_by_an_old_stamp(tmp_path: Path) -> None:
    cache_of(tmp_path, Repository()).fetch(JARS)
    other = Jar("g", "artifact-3", "1", "", JARS[3].size, "0" * 64)
    with pytest.raises(FatalError, match="g:artifact-3:1 is not the locked file"):
        cache_of(tmp_path, Repository()).fetch([other])


def test_a_cut_off_download_is_tried_again(tmp_path: Path) -> None:
    repository = Repository(lambda jar, attempt: CONTENTS[jar.artifact][: 10 if attempt == 1 else None])
    check_complete(tmp_path, cache_of(tmp_path, repository).fetch(JARS))
    assert set(repository.asked.values()) == {2}


def _offline_for(artifact: str) -> Callable[[Jar, int], bytes]:
    def answer(jar: Jar, attempt: int) -> bytes:
        if jar.artifact == artifact:
            raise ConnectionError("name resolution failed\nand more")
        return CONTENTS[jar.artifact]

    return answer


def test_offline_is_one_clear_line_and_what_is_finished_stays(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="OFFLOADER_MAVEN_MIRROR") as failure:
        cache_of(tmp_path, Repository(_offline_for("artifact-19"))).fetch(JARS)
    assert str(failure.value).startswith("cannot fetch g:artifact-19:1: name resolution failed;")
    assert "\n" not in str(failure.value)
    repository = Repository()
    check_complete(tmp_path, cache_of(tmp_path, repository).fetch(JARS))
    assert repository.asked["artifact-19"] == 1
    assert repository.asked["artifact-0"] == 0


def test_wrong_content_is_never_kept(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="is not the locked file: SHA-256"):
        cache_of(tmp_path, Repository(lambda jar, attempt: b"?" * jar.size)).fetch(JARS[:1])
    assert not list(tmp_path.rglob("*.jar"))


def test_leftovers_of_a_killed_fetch_are_removed(tmp_path: Path) -> None:
    (tmp_path / "fetch-killed").mkdir()
    check_complete(tmp_path, cache_of(tmp_path, Repository()).fetch(JARS))


def test_two_at_once_fetch_each_jar_once(tmp_path: Path) -> None:
    first_is_fetching, second_waits = threading.Event(), threading.Event()

    def answer(jar: Jar, attempt: int) -> bytes:
        first_is_fetching.set()
        assert second_waits.wait(20)
        return CONTENTS[jar.artifact]

    class Signal(io.StringIO):
        def write(self, text: str) -> int:
            if "Another process" in text:
                second_waits.set()
            return super().write(text)

    repository = Repository(answer)
    first = threading.Thread(target=cache_of(tmp_path, repository).fetch, args=(JARS,))
    first.start()
    assert first_is_fetching.wait(20)
    check_complete(tmp_path, cache_of(tmp_path, repository, Signal()).fetch(JARS))
    first.join()
    assert set(repository.asked.values()) == {1}


def test_progress_without_a_terminal_is_a_few_plain_lines(tmp_path: Path) -> None:
    output = io.StringIO()
    cache_of(tmp_path, Repository(), output).fetch(JARS)
    lines = output.getvalue().splitlines()
    assert 1 <= len(lines) <= 10
    assert all(line.startswith("Fetching 20 jars: ") for line in lines)


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_directory({}) == Path("/home/somebody/.cache/pulsar-offloader/jars")
    assert cache_directory({"XDG_CACHE_HOME": "/var/cache"}) == Path("/var/cache/pulsar-offloader/jars")

"""Fetches the jars of a lock list into a per-user cache, which any number of processes may share.

A jar counts only once its size and SHA-256 are the locked ones. Finished jars stay, so that an interrupted fetch goes
on where it ended. A stamp file remembers what was verified: hashing 235 MB at each start would take longer than
everything else here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from dev.embedded.lock import Jar, load_lock
from offloader.cli.progress_bar import download_progress
from offloader.errors import FatalError, IntegrityError, RetryableError

MIRROR = "OFFLOADER_MAVEN_MIRROR"
_THREADS = 16
_ATTEMPTS = 4
_TIMEOUT = 60

Download = Callable[[Jar, Path], Path]


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where jars are kept: `$XDG_CACHE_HOME/pulsar-offloader/jars`, by default below `~/.cache`."""
    base = (os.environ if environment is None else environment).get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pulsar-offloader" / "jars"


def fetch_lock(name: str) -> list[Path]:
    """The paths of a lock list's jars, fetched where they are missing. Raises FatalError (offline, wrong content)."""
    return JarCache(cache_directory(), repository_download(os.environ.get(MIRROR))).fetch(load_lock(name))


def repository_download(mirror: str | None = None) -> Download:
    """Downloads one jar below a folder through jgo, from the public Maven repository or from `mirror` (a URL)."""
    repositories = {"mirror": mirror.rstrip("/")} if mirror else None

    def download(jar: Jar, folder: Path) -> Path:
        try:
            from jgo.maven import MavenContext
        except ImportError as error:
            raise FatalError("the embedded Pulsar needs jgo: run make setup") from error
        context: Any = MavenContext(repo_cache=folder, local_repos=[], remote_repos=repositories, timeout=_TIMEOUT)
        component = context.project(jar.group, jar.artifact).at_version(jar.version)
        return Path(component.artifact(classifier=jar.classifier, packaging="jar").resolve())

    return download


@dataclass(slots=True)
class JarCache:
    """The cache in one folder. `download` puts a jar somewhere below the folder it is given and returns its path."""

    folder: Path
    download: Download
    console: Console = field(default_factory=lambda: Console(stderr=True))
    sleep: Callable[[float], None] = time.sleep

    def fetch(self, jars: Sequence[Jar]) -> list[Path]:
        """The paths of `jars`, all of them verified."""
        stamps = self._read_stamps()
        if not all(self._is_stamped(jar, stamps) for jar in jars):
            with self._locked():
                self._complete(jars)
        return [self.folder / jar.path for jar in jars]

    def _complete(self, jars: Sequence[Jar]) -> None:
        stamps = self._read_stamps()  # again: another process may have fetched while we waited for the lock
        unknown = [jar for jar in jars if not self._is_stamped(jar, stamps)]
        verified = [jar for jar in unknown if self._is_intact(jar)]
        try:
            self._fetch_all(sorted(set(unknown) - set(verified)), verified.append)
        finally:
            self._write_stamps(stamps, verified)

    def _fetch_all(self, jars: Sequence[Jar], verified: Callable[[Jar], None]) -> None:
        if not jars:
            return
        for left_behind in self.folder.glob("fetch-*"):  # by a process that was killed: we hold the lock
            shutil.rmtree(left_behind)
        total = sum(jar.size for jar in jars)
        with (
            download_progress(f"Fetching {len(jars)} jars", total, self.console) as advance,
            tempfile.TemporaryDirectory(prefix="fetch-", dir=self.folder) as staging,
            ThreadPoolExecutor(_THREADS) as pool,
        ):
            pending = {pool.submit(self._fetch_one, jar, Path(staging)): jar for jar in jars}
            try:
                for done in as_completed(pending):
                    done.result()
                    verified(pending[done])
                    advance(pending[done].size)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _fetch_one(self, jar: Jar, staging: Path) -> None:
        retrying = Retrying(
            retry=retry_if_exception_type((RetryableError, IntegrityError)),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(multiplier=0.5, max=8),
            sleep=self.sleep,
            reraise=True,
        )
        try:
            retrying(self._attempt, jar, staging)
        except RetryableError as error:
            advice = f"check the network, or set {MIRROR} to a Maven repository within reach"
            raise FatalError(f"cannot fetch {jar.coordinate}: {error}; {advice}") from error
        except IntegrityError as error:
            advice = f"{MIRROR} or a proxy changes what it passes on"
            raise FatalError(f"{jar.coordinate} is not the locked file: {error}; {advice}") from error

    def _attempt(self, jar: Jar, staging: Path) -> None:
        # a folder per attempt: jgo takes whatever a broken attempt left behind for the finished file
        with tempfile.TemporaryDirectory(dir=staging) as folder:
            try:
                path = self.download(jar, Path(folder))
            except (OSError, RuntimeError) as error:
                raise RetryableError(_first_line(error)) from error
            problem = _mismatch(jar, path)
            if problem:
                raise IntegrityError(problem)
            target = self.folder / jar.path
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)

    def _is_intact(self, jar: Jar) -> bool:
        path = self.folder / jar.path
        return path.is_file() and not _mismatch(jar, path)

    def _is_stamped(self, jar: Jar, stamps: Mapping[str, Sequence[object]]) -> bool:
        try:
            return stamps.get(str(jar.path)) == _stamp(jar, self.folder / jar.path)
        except FileNotFoundError:
            return False

    def _read_stamps(self) -> dict[str, Sequence[object]]:
        try:
            stamps = json.loads((self.folder / "verified.json").read_text())
        except (FileNotFoundError, ValueError):  # only a memory: without it everything is hashed again
            return {}
        return stamps if isinstance(stamps, dict) else {}

    def _write_stamps(self, stamps: dict[str, Sequence[object]], jars: Sequence[Jar]) -> None:
        stamps |= {str(jar.path): _stamp(jar, self.folder / jar.path) for jar in jars}
        partial = self.folder / "verified.json.partial"
        partial.write_text(json.dumps(stamps))
        partial.replace(self.folder / "verified.json")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.console.print("Another process is fetching the jars: waiting for it", highlight=False)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _stamp(jar: Jar, path: Path) -> list[object]:
    status = path.stat()
    return [jar.sha256, status.st_size, status.st_mtime_ns]


def _mismatch(jar: Jar, path: Path) -> str:
    """How a file differs from the locked jar; empty where it does not."""
    size = path.stat().st_size
    if size != jar.size:
        return f"{size} bytes instead of {jar.size}"
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if found == jar.sha256 else f"SHA-256 {found} instead of {jar.sha256}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)

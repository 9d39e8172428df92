"""Installs the wheel of a folder into an empty environment outside of the checkout, with the runtime lock, and uses it:
`python -m dev.release.use dist`. The newest golden archive is read by the shell, by Python and by Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from dev.release.build import extract
from offloader.errors import FatalError, OffloadError

REPOSITORY = Path(__file__).resolve().parents[2]
ARCHIVES = REPOSITORY / "tests" / "fixtures" / "archives"
TOPIC = "persistent://public/default/long"
CONFIG = "storage: {{root: '{root}'}}\n"

BY_PYTHON = """
import sys
import offloader
assert "site-packages" in offloader.__file__, offloader.__file__
with offloader.Archive(sys.argv[1]) as archive:
    print(sum(1 for _ in archive.topic(sys.argv[2]).messages()))
"""
BY_SPARK = """
import os, sys
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("pulsar-archive").load(sys.argv[1], topics=sys.argv[2]).count())
spark.stop()
"""


def use(dist: Path) -> None:
    """Raises FatalError where anything does not work."""
    wheels = sorted(dist.glob("*.whl"))
    if len(wheels) != 1:
        raise FatalError(f"{dist} has {len(wheels)} wheels: build one first, `python -m dev.release.build {dist}`")
    with tempfile.TemporaryDirectory(prefix="offloader-use-") as name:
        folder = Path(name)
        python = _installed(folder / "environment", wheels[0])
        root = _archive(folder / "archive")
        (folder / "offloader.yaml").write_text(CONFIG.format(root=root))
        configured = ["--config", "offloader.yaml"]
        shell = [str(python.with_name("offloader")), "topics", "cat", TOPIC, "--output", "json"]
        counts = {
            "shell": sum('"missing"' not in line for line in _run([*shell, *configured], folder).splitlines()),
            "Python": int(_run([str(python), "-c", BY_PYTHON, root, TOPIC], folder)),
            "Spark": int(_run([str(python), "-c", BY_SPARK, root, TOPIC], folder)),
        }
        _say(f"{TOPIC} {counts} messages, {_run([str(python.with_name('offloader')), '--version'], folder).strip()}")
        if len(set(counts.values())) != 1 or not counts["Python"]:
            raise FatalError(f"shell, Python and Spark do not read the same: {counts}")


def _installed(environment: Path, wheel: Path) -> Path:
    """The interpreter of an environment that has nothing but the lock and the wheel."""
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _say("installing what requirements-runtime.lock names")
    _run([*pip, "--require-hashes", "-r", str(REPOSITORY / "requirements-runtime.lock")], environment)
    _run([*pip, "--no-deps", "--no-index", str(wheel.resolve())], environment)
    return python


def _archive(folder: Path) -> str:
    newest = max(ARCHIVES.glob("*.tar.xz"), key=lambda path: int(path.name.partition(".")[0]))
    extract(newest, folder)
    return (folder / "root").as_uri()


def _run(command: Sequence[str], folder: Path) -> str:
    """Nothing of the checkout is in the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OFFLOADER"))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise FatalError(f"{' '.join(command[:4])} … failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 (a command)


def main() -> int:
    """The command line of this module."""
    try:
        use(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    except OffloadError as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A broker that drops messages on their way to consumers: an entry filter, compiled and packed as Pulsar loads it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from offloader.java import find_java

SOURCE = Path(__file__).with_name("DropFilter.java")
NAME = "drop"  # of the filter, and of the property that messages to be dropped have
_SERVICE = f"name: {NAME}\ndescription: drops messages\nentryFilterClass: DropFilter\n"


def drop_filter(folder: Path) -> Mapping[str, str]:
    """Build the filter into `folder`; what the broker's configuration must say."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as classes:
        jars = os.pathsep.join(str(jar) for jar in fetch_lock(PULSAR))
        compiler = str(find_java().executable.with_name("javac"))
        command = [compiler, "-proc:none", "-nowarn", "-cp", jars, "-d", classes, str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with zipfile.ZipFile(folder / f"{NAME}.nar", "w") as nar:
            nar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
            nar.writestr("META-INF/services/entry_filter.yml", _SERVICE)
            nar.writestr("META-INF/bundled-dependencies/", "")
            for file in Path(classes).iterdir():
                nar.write(file, file.name)
    return {
        "entryFilterNames": NAME,
        "entryFiltersDirectory": str(folder),
        "narExtractionDirectory": str(folder / "unpacked"),
    }

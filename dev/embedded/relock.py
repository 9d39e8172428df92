"""For maintainers: writes a lock list from what Maven resolved.

    mvn dependency:list -DincludeScope=runtime -DoutputFile=list.txt -Dmaven.repo.local=REPOSITORY
    python -m dev.embedded.relock list.txt REPOSITORY > dev/embedded/pulsar-4.0.7.lock

in a project whose only dependency is `org.apache.pulsar:pulsar-broker:4.0.7`. That of 3.0.7 also imports the dependency
management of `org.apache.pulsar:pulsar:3.0.7`, and is listed without what its brokers load for other metadata stores
only (-DexcludeGroupIds=org.rocksdb,io.grpc,com.google.api.grpc,org.jetbrains.kotlin,com.squareup.okhttp3,
com.squareup.okio). So is that of 4.2.4, also without io.kubernetes and other systems' native libraries. For the stock
offloader, list.txt is the one line `org.apache.pulsar:tiered-storage-jcloud:jar:4.0.8:compile`, and
`mvn dependency:get` fetches the jar. So it is with the command lines of 4.0.8: three such lines, since their other jars
are those of the broker. That of the client 2.11.4 is the list of `pulsar-client:2.11.4` and `gson:2.8.9`, that of
Hadoop the list of `hadoop-client-minicluster:3.4.2` and `jaxb-api:2.3.1`, without which its REST interface does not
start.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

from dev.embedded.lock import Jar
from offloader.errors import FatalError

_HEADER = """\
# group:artifact:version[:classifier] size sha256
# Written by dev/embedded/relock.py from `mvn dependency:list` (runtime scope); do not edit.
"""


def parse_dependency(line: str) -> tuple[str, str, str, str]:
    """Group, artifact, version, classifier of `group:artifact:jar[:classifier]:version:scope`, as Maven prints it."""
    fields = line.split(" -- ")[0].strip().split(":")
    if len(fields) not in (5, 6) or fields[2] != "jar":
        raise FatalError(f"not a jar in Maven's list: {line.strip()!r}")
    classifier = fields[3] if len(fields) == 6 else ""
    return fields[0], fields[1], fields[-2], classifier


def lock_jar(dependency: tuple[str, str, str, str], repository: Path) -> Jar:
    """The lock of one jar in a local Maven repository."""
    unlocked = Jar(*dependency, size=0, sha256="")
    content = (repository / unlocked.path).read_bytes()
    return Jar(*dependency, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def format_lock(jars: Iterable[Jar]) -> str:
    """The text of a lock list."""
    return _HEADER + "".join(f"{jar.coordinate} {jar.size} {jar.sha256}\n" for jar in sorted(jars))


def main(list_file: str, repository: str) -> None:
    """Print the lock list."""
    lines = [line for line in Path(list_file).read_text().splitlines() if ":" in line and not line.endswith(":")]
    jars = [lock_jar(parse_dependency(line), Path(repository)) for line in lines]
    sys.stdout.write(format_lock(jars))


if __name__ == "__main__":
    main(*sys.argv[1:])

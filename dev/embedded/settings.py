"""What the embedded Pulsar is told: its ports and its configuration files."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from offloader.errors import FatalError

_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
_FRAME_ROOM = 1024 * 1024
# Below the range from which the kernel takes the ports of outgoing connections (32768 and up on Linux): one of those
# could sit on our port while we restart.
_LOWEST_PORT, _HIGHEST_PORT = 15_000, 32_000

SMALL_LEDGERS: Mapping[str, str] = {"managedLedgerMaxEntriesPerLedger": "500"}
"""Ledgers roll after 500 entries: many of them in a short test."""

TRANSACTIONS: Mapping[str, str] = {"transactionCoordinatorEnabled": "true"}

BATCH_INDEX_ACKS: Mapping[str, str] = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
"""Brokers remember which messages of a batch were acknowledged."""

ENTRY_METADATA: Mapping[str, str] = {
    "brokerEntryMetadataInterceptors": (
        "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,"
        "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
    ),
}
"""The broker gives each entry its time and the index of its last message."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that one embedded Pulsar listens on, all of them on 127.0.0.1."""

    broker: int
    web: int
    bookie: int
    zookeeper: int


@dataclass(frozen=True, slots=True)
class OffloaderSettings:
    """The S3-compatible store of Pulsar's own, ledger-based offloader."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that Pulsar's offloader reads its credentials from."""
        return {"ACCESS_KEY_ID": self.access_key, "ACCESS_KEY_SECRET": self.secret_key}


def free_ports(count: int, choice: random.Random) -> list[int]:
    """Ports on 127.0.0.1 that nobody uses at this moment."""
    with ExitStack() as held:
        ports: list[int] = []
        for port in choice.sample(range(_LOWEST_PORT, _HIGHEST_PORT), 1000):
            if len(ports) == count:
                return ports
            taken = held.enter_context(socket.socket())
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    raise FatalError(f"no free port on 127.0.0.1 between {_LOWEST_PORT} and {_HIGHEST_PORT}")


def ports_of(directory: Path) -> Ports:
    """The ports of the Pulsar in `directory`, chosen once: a bookie is known by its port."""
    file = directory / "ports.json"
    if file.exists():
        return Ports(**json.loads(file.read_text()))
    ports = Ports(*free_ports(4, random.SystemRandom()))
    file.write_text(json.dumps(asdict(ports)))
    return ports


def standalone_configuration(
    ports: Ports, overrides: Mapping[str, str], offloader: OffloaderSettings | None
) -> dict[str, str]:
    """The settings of broker and bookie (Pulsar 4.0's standalone reads both from one file)."""
    settings = {
        "clusterName": "standalone",
        "brokerServicePort": str(ports.broker),
        "webServicePort": str(ports.web),
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "loadBalancerEnabled": "false",
        "systemTopicEnabled": "true",
        "topicLevelPoliciesEnabled": "true",
        "exposingBrokerEntryMetadataToClientEnabled": "true",
        "brokerDeleteInactiveTopicsEnabled": "false",
        # a quarter of it passes in any case once nobody is connected any more
        "brokerShutdownTimeoutMs": "6000",
        "maxMessageSize": str(_MAX_MESSAGE_SIZE),
        # the bookie: on the loopback interface only, and on the port it is told
        "listeningInterface": loopback_interface(),
        "allowLoopback": "true",
        "allowEphemeralPorts": "true",
        **(offloader_configuration(offloader) if offloader else {}),
        **overrides,
    }
    # An entry is larger than its message. With the bookie's own limit (5 MiB) the broker creates ledgers without end
    # once an entry exceeds it.
    settings.setdefault("nettyMaxFrameSizeBytes", str(int(settings["maxMessageSize"]) + _FRAME_ROOM))
    return settings


def loopback_interface() -> str:
    """Its name, which bookies want to know."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))


def offloader_configuration(offloader: OffloaderSettings) -> dict[str, str]:
    """What a broker is told of its offloader, whose jar is in the folder `offloaders`."""
    # driver S3, not aws-s3: that one asks s3.amazonaws.com for the bucket's location, whatever the end point is
    return {
        "managedLedgerOffloadDriver": "S3",
        "offloadersDirectory": "offloaders",
        "managedLedgerOffloadBucket": offloader.bucket,
        "managedLedgerOffloadRegion": offloader.region,
        "managedLedgerOffloadServiceEndpoint": offloader.endpoint,
    }


def properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file. Raises FatalError for a value of several lines."""
    for name, value in settings.items():
        if "\n" in f"{name}{value}":
            raise FatalError(f"Pulsar configuration {name!r}: a value must be one line")
    return "".join(f"{name}={value}\n" for name, value in settings.items())


LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="warn">
  <Appenders>
    <Console name="console"><PatternLayout pattern="%d{ISO8601} %-5p %c{1} - %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="org.eclipse.jetty" level="warn"/>
    <Root level="info"><AppenderRef ref="console"/></Root>
  </Loggers>
</Configuration>
"""

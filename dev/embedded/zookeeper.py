"""ZooKeeper on this machine: what it is told, and when it serves."""

from __future__ import annotations

import socket


def zookeeper_configuration(port: int) -> dict[str, str]:
    """ZooKeeper's settings. Short sessions: after a kill, a restart waits for the old ones to expire."""
    return {
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "dataDir": "data/zookeeper",
        "admin.enableServer": "false",
        "tickTime": "1000",
        "maxSessionTimeout": "8000",
        "4lw.commands.whitelist": "dump,cons",
    }


def zookeeper_is_ready(port: int) -> bool:
    """Whether it serves, and no session from before a kill is left.

    With those go the bookies' registrations and the broker's locks, and a bookie that finds its old registration ends
    again as soon as that expires.
    """
    try:
        return "Sessions with Ephemerals (0)" in ask_zookeeper(port, "dump")
    except OSError:
        return False


def ask_zookeeper(port: int, command: str) -> str:
    """What it answers to a command of four letters. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
        connection.sendall(command.encode())
        return connection.makefile("rb").read().decode()

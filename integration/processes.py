"""What tests look at of processes that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

HANGS = 600.0  # seconds after which what should have happened hangs, however busy the machine is
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
_LISTENING = "0A"


def suspend(child: int) -> None:
    """SIGSTOP to a process that we started. When this returns none of its threads runs any more; sent alone, the signal
    takes effect later, and a server still answers."""
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED)


def listeners(pid: int) -> dict[int, str]:
    """Port to address (hexadecimal, as Linux shows it) of the sockets that a process listens on."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [
        row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    addresses = [row[1].split(":") for row in rows if row[3] == _LISTENING and row[9] in inodes]
    return {int(port, 16): address for address, port in addresses}


def group_is_alive(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(group: int, seconds: float) -> bool:
    """Whether a group's processes have all ended within `seconds`."""
    deadline = time.monotonic() + seconds
    while group_is_alive(group) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not group_is_alive(group)

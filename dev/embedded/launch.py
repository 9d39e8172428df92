"""Run as a script: becomes the command in its arguments, which ends when the process that started it is gone.

Standard input is a pipe of which only that process holds the other end. A forked watchdog waits for its end, then ends
the command. (Linux's PR_SET_PDEATHSIG would be shorter, but fires when the *thread* that started the command ends.)
"""

from __future__ import annotations

import os
import select
import signal
import sys

_GRACE_SECONDS = 10
_CHECK_SECONDS = 1.0


def _watch(command: int) -> None:
    signals = [signal.SIGTERM] + [0] * _GRACE_SECONDS + [signal.SIGKILL]
    closed = False
    while os.getppid() == command:
        if not closed:
            closed = bool(select.select([0], [], [], _CHECK_SECONDS)[0])
            continue
        if signals:
            os.kill(command, signals.pop(0))
        select.select([], [], [], _CHECK_SECONDS)


def _main() -> None:
    command = os.getpid()
    if os.fork() == 0:
        _watch(command)
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606


if __name__ == "__main__":
    _main()

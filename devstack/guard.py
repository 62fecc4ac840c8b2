"""`python -m devstack.guard DEV_JSON PID STARTED`: waits for its supervisor's end, then ends what it left behind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from devstack.processes import end_leftovers
from devstack.state import load


def main(arguments: Sequence[str]) -> int:
    path, pid, started = arguments
    sys.stdin.buffer.read()  # ends when the supervisor does
    state = load(Path(path))
    supervisor = state.supervisor if state is not None else None
    # Another supervisor may have started meanwhile; it has dealt with the leftovers, and its own are not to be touched.
    if state is not None and supervisor is not None and (str(supervisor.pid), supervisor.started) == (pid, started):
        end_leftovers(state.processes, state.stack_id)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What ends a command of `./dev` with one sentence instead of a traceback.

DevFailed                 exit code 1
├── NotStarted            the stack did not come up, or cannot be stopped now
├── ports.NoFreePort      no port is free
└── CannotBeDone          exit code 2: nothing was tried
    └── preflight.BadSettings
"""

from __future__ import annotations


class DevFailed(Exception):
    """The message says what happened and what to do."""

    exit_code = 1


class NotStarted(DevFailed):
    """The stack did not come up; what it printed says why."""


class CannotBeDone(DevFailed):
    """Refused before anything was started or stopped."""

    exit_code = 2

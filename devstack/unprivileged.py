"""`python unprivileged.py COMMAND ...`: gives up root, then becomes COMMAND. Run as a script, by its path.

PostgreSQL refuses to run as root. On Linux the process keeps one capability, CAP_DAC_OVERRIDE, so that it still reaches
files in a checkout that only root may enter, such as one under /root. Nothing else of root is left.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

NOBODY = 65534
CAP_DAC_OVERRIDE = 1 << 1
# <linux/prctl.h>, <linux/securebits.h>, <linux/capability.h>
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
SECBIT_NO_SETUID_FIXUP = 1 << 2
CAPABILITY_VERSION_3 = 0x20080522


def become_nobody() -> None:
    """Raises OSError when the machine does not let root become another user."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def become_nobody_with_file_access() -> None:
    """Becomes nobody, keeping CAP_DAC_OVERRIDE across the coming exec. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Without this bit access(2) ignores the capability, and PostgreSQL's tools check their own path by access(2).
    # It takes CAP_SETPCAP; where that is missing, a checkout in a folder that others may enter still works.
    libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    _check(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
    become_nobody()
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    _check(libc.capset(header, struct.pack("6I", CAP_DAC_OVERRIDE, CAP_DAC_OVERRIDE, CAP_DAC_OVERRIDE, 0, 0, 0)))
    _check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 1, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main() -> None:
    try:
        if sys.platform == "linux":
            become_nobody_with_file_access()
        else:
            become_nobody()
    except OSError as error:
        sys.exit(
            f"PostgreSQL does not run as root, and root may not become another user here ({error.strerror}). "
            "Run ./dev as an ordinary user, or set DATABASE_URL to a PostgreSQL server."
        )
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606


if __name__ == "__main__":
    main()

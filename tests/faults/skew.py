"""A wrong wall clock for one process, where there is a C compiler. (The faketime library makes `time.sleep` of newer
Pythons wait for the whole difference.)"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SKEW_SECONDS: Final = 120  # less than S3 allows a signature's time to be off
SOURCE: Final = Path(__file__).with_name("skew.c")


def wrong_clock(folder: Path) -> dict[str, str]:
    """What a process must find in its environment to be SKEW_SECONDS ahead; empty where that cannot be had."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return {}
    library = folder / "skew.so"
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], capture_output=True
    )
    return {"LD_PRELOAD": str(library), "SKEW_SECONDS": str(SKEW_SECONDS)} if done.returncode == 0 else {}

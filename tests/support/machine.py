"""Whether this machine is ours alone: beside other people's work a stopwatch says nothing."""

import time
from pathlib import Path

_BUSY_SHARE = 0.2


def is_busy_with_others(seconds: float = 2.0) -> bool:
    """Looked at for a moment, of all cores together; a load average remembers what is over."""

    def ticks() -> tuple[int, int]:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = ticks()
    time.sleep(seconds)
    total_now, idle_now = ticks()
    return 1 - (idle_now - idle) / (total_now - total) > _BUSY_SHARE

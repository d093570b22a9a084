"""A node that dies by kill -9 on a commit's way to the bucket: `python -m tests.support.kill_points ARMED up ...`.

The file ARMED says where, and which time there: `written:5`. While there is one, every step of the ledger takes
its time, so that later commits overtake it. The node itself knows nothing of this.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.blob.store import BlobStore, Buffer, put_once
from headrace.cli.main import main as run
from headrace.tier import ledger
from headrace.tier.format import keys

COMMITTED: Final = "committed"
"""The metastore has the manifest, the bucket has not."""
WRITTEN: Final = "written"
"""Both have it, and the ledger does not know yet."""
FORGETTING: Final = "forgetting"
"""Both have a number of them; they are about to leave the metastore together."""
FORGOTTEN: Final = "forgotten"
"""They have left it; later ones must not have."""
_STEP_S: Final = 0.05


class KillPoints:
    def __init__(self, armed: Path) -> None:
        self._armed = armed
        self._seen = 0

    async def reach(self, place: str) -> None:
        try:
            wanted, _, count = self._armed.read_text().partition(":")
        except FileNotFoundError:
            return
        await asyncio.sleep(_STEP_S)
        if wanted == place:
            self._seen += 1
            if self._seen == int(count):
                os.kill(os.getpid(), signal.SIGKILL)


def install(points: KillPoints) -> None:
    forget_written = ledger.Ledger._forget_written

    async def put(store: BlobStore, key: str, chunks: Sequence[Buffer]) -> bool:
        if not key.startswith(keys.MANIFESTS):
            return await put_once(store, key, chunks)
        await points.reach(COMMITTED)
        is_new = await put_once(store, key, chunks)
        await points.reach(WRITTEN)
        return is_new

    async def forget(self: ledger.Ledger) -> None:
        if not self._written:
            return
        await points.reach(FORGETTING)
        await forget_written(self)
        await points.reach(FORGOTTEN)

    ledger.put_once = put  # type: ignore[attr-defined]
    ledger.Ledger._forget_written = forget  # type: ignore[method-assign]


def main() -> None:
    install(KillPoints(Path(sys.argv.pop(1))))
    run()


if __name__ == "__main__":
    main()

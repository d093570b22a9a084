"""A command that dies by kill -9 at one of its steps: `python -m tests.support.start_kills ARMED up ...`.

A step is anything that becomes durable, or is asked of the bucket, with a moment before it and one after. The file ARMED
says at which of them; without it the command runs as ever. The node itself knows nothing of this.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.blob.local import LocalBlobStore
from headrace.blob.remote import RemoteBlobStore
from headrace.cli.main import main as run
from headrace.config import identity
from headrace.control.embedded import EmbeddedMetastore
from headrace.log import store as log_store
from headrace.log.wal.file import RingFile
from headrace.log.wal.writer import WalWriter


class Steps:
    def __init__(self, armed: Path) -> None:
        self._last = int(armed.read_text()) if armed.exists() else None
        self._taken = 0

    def reach(self) -> None:
        self._taken += 1
        if self._taken == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:  # Any: a class or a module
        work: Callable[..., Any] = getattr(owner, name)  # Any: whatever it takes and gives

        def counted(*arguments: Any, **options: Any) -> Any:  # Any: as above
            self.reach()
            result = work(*arguments, **options)
            self.reach()
            return result

        setattr(owner, name, counted)

    def around_awaited(self, owner: type, name: str) -> None:
        work: Callable[..., Any] = getattr(owner, name)  # Any: as above

        async def counted(*arguments: Any, **options: Any) -> Any:  # Any: as above
            self.reach()
            result = await work(*arguments, **options)
            self.reach()
            return result

        setattr(owner, name, counted)


def install(steps: Steps) -> None:
    steps.around_awaited(EmbeddedMetastore, "txn")
    for store in (LocalBlobStore, RemoteBlobStore):
        steps.around_awaited(store, "put_if_absent")
        steps.around_awaited(store, "get")
    steps.around(WalWriter, "_hand_over")
    steps.around(WalWriter, "_flushed")
    steps.around(RingFile, "write_superblock")
    steps.around(log_store, "write_checkpoint")
    steps.around(identity, "_keep")


def main() -> None:
    install(Steps(Path(sys.argv.pop(1))))
    run()


if __name__ == "__main__":
    main()

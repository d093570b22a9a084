"""The pipeline beside the node: a process of its own, whose death never touches the broker."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.blob.settings import ObjectStoreSettings
from headrace.doors.settings import ListenerSettings
from headrace.errors import Conflict
from headrace.pipeline.process import NodePlace, PipelineProcess


class PipelineBeside:
    """Keeps the pipeline running until stopped. What keeps it from running is a problem to show, not a reason to fail."""

    def __init__(
        self,
        *,
        kafka: tuple[str, int] | None,
        store: ObjectStoreSettings,
        data_dir: Path,
        umask: int,
        client_config: str | None = None,
    ) -> None:
        self._client_config = client_config
        self._kafka = kafka
        self._store = store
        self._data_dir = data_dir
        self._umask = umask
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> str | None:
        """Start it, or say why it cannot run here."""
        try:
            process = PipelineProcess(self.place())
        except Conflict as error:
            return str(error)
        self._is_stopping = False
        self._task = asyncio.get_running_loop().create_task(process.run())
        return None

    def place(self) -> NodePlace:
        """Where a process with Spark finds this node; `Conflict` says what keeps one from running here."""
        if self._kafka is None:
            raise Conflict(
                "the pipeline beside the node cannot log in: give it a user (pipeline.client.config), or a listener of the Kafka door "
                "without sasl and TLS, on 127.0.0.1, and its principal the rights it needs; or run `headrace pipeline` elsewhere, or set pipeline.enable=false"
            )
        bucket = bucket_url(self._store)
        if bucket is None:
            raise Conflict(
                "the pipeline needs objects it can read: object_store.type=memory has none outside this process"
            )
        if shutil.which("java") is None:
            raise Conflict("the pipeline needs Java 17 and there is no java on the PATH")
        host, port = self._kafka
        return NodePlace(
            bootstrap=f"{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}",
            bucket=bucket,
            data_dir=self._data_dir,
            umask=self._umask,
            client_config=self._client_config,
        )

    async def stop(self) -> None:
        """Lets the batches that run finish. Whoever calls while it stops waits for the same end."""
        if self._task is None:
            return
        if not self._is_stopping:
            self._is_stopping = True
            self._task.cancel()
        await asyncio.wait([self._task])


def plain_address(
    listeners: Sequence[ListenerSettings], addresses: Mapping[str, tuple[str, int]]
) -> tuple[str, int] | None:
    """Of the first listener that asks for nothing; None where there is none."""
    for listener in listeners:
        if not listener.sasl and listener.tls_certificate is None:
            return addresses[listener.name]
    return None


def bucket_url(store: ObjectStoreSettings) -> str | None:
    """Where the pipeline finds the log's objects; None when they cannot be seen from another process."""
    match store.type:
        case "local":
            return str(Path(store.local_path).absolute())
        case "s3":
            return f"s3://{store.s3_bucket}/{store.s3_prefix}".rstrip("/")
        case "gcs":
            return f"gs://{store.gcs_bucket}/{store.gcs_prefix}".rstrip("/")
        case "memory":
            return None

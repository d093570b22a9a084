"""Load on an object store alone: what a broker would ask of it, asked by somebody else."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from headrace.bench.load.jobs import GetJob, Outcome
from headrace.bench.seaweedfs import BUCKET, CREDENTIALS, REGION

_UNDER_WAY_MAX: Final = 8
"""As many as a broker has, by default."""


def get(job: GetJob, begin: Callable[[], None]) -> Outcome:
    return asyncio.run(_get(job, begin))


async def _get(job: GetJob, begin: Callable[[], None]) -> Outcome:
    store = S3Store(
        BUCKET,
        config={
            "endpoint": f"http://{job.bootstrap}",
            "region": REGION,
            "access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        },
        client_options={"allow_http": True},
    )
    keys = [found["path"] for page in obstore.list(store) for found in page if found["size"] >= job.range_bytes]
    if not keys:
        return Outcome(count=0, bytes=0, seconds=0.0, problems=[f"no object of {job.range_bytes} bytes to read"])
    slots = asyncio.Semaphore(_UNDER_WAY_MAX)
    problems: list[str] = []

    async def get_one(key: str) -> None:
        try:
            await obstore.get_range_async(store, key, start=0, length=job.range_bytes)
        except FileNotFoundError:
            pass  # Of a topic that was deleted before this window.
        except BaseError as error:
            problems.append(str(error))
        finally:
            slots.release()

    begin()
    began = time.perf_counter()
    count = 0
    async with asyncio.TaskGroup() as gets:
        while (now := time.perf_counter() - began) < job.seconds:
            due = count * job.range_bytes / job.bytes_per_second
            await asyncio.sleep(max(0.0, due - now))
            await slots.acquire()
            gets.create_task(get_one(keys[count % len(keys)]))
            count += 1
    seconds = time.perf_counter() - began
    return Outcome(count=count, bytes=count * job.range_bytes, seconds=seconds, problems=problems[:5])

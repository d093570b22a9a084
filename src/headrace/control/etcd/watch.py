"""One watcher of an etcd: whole revisions, from a place that outlives the connection."""

import asyncio
from typing import Any, Final

import grpc.aio

from headrace.control.etcd import etcd_pb2 as pb
from headrace.control.etcd.connection import EtcdConnection, refusal_of
from headrace.control.etcd.messages import Names, event_of
from headrace.control.metastore import Changes, KeyRange, told
from headrace.errors import RevisionCompacted

PROGRESS_S: Final = 2.0
"""Between two questions how far a quiet watcher has come."""
_ASKED_MAX: Final = 3
"""Such questions without any word in return: that server is paused or cut off, and another one is asked."""
_AGAIN_S: Final = 0.2
_WATCH: Final = "/etcdserverpb.Watch/Watch"


class EtcdWatch:
    """An async iterator. A reader that was cancelled may come back; the stream is made anew where it had stopped.

    A watcher that has heard nothing asks how far it is, and turns to another server when it gets no answer for long. Servers before 3.4.25 and 3.5.8 may answer that just ahead of changes
    that they have not told yet, so an answer counts only when the next message has shown that nothing was missing.
    """

    def __init__(
        self,
        connection: EtcdConnection,
        names: Names,
        keys: KeyRange,
        from_revision: int,
        without: str,
        *,
        progress_s: float = PROGRESS_S,
    ) -> None:
        self._connection = connection
        self._names = names
        self._keys = keys
        self._without = without
        self._next_revision = from_revision
        self._progress_s = progress_s
        self._stream: Any = None  # grpc.aio's calls have no types
        self._asked_member = 0
        self._claimed = 0
        """How far the server said that it has told us, in the message before."""

    def __aiter__(self) -> "EtcdWatch":
        return self

    async def __anext__(self) -> Changes:
        while not self._connection.is_closed:
            member = self._connection.member
            try:
                if self._stream is None:
                    await self._begin()
                reply = await self._next()
                changes = self._take(reply) if reply is not None else None
            except grpc.aio.AioRpcError as error:
                self._stream = None
                if not self._connection.is_closed:
                    self._connection.note_failure(member)
                    refused = refusal_of(error, "watch")
                    if isinstance(refused, RevisionCompacted):
                        raise refused from error
                    await asyncio.sleep(_AGAIN_S)
                continue
            except asyncio.CancelledError:
                # The library ends the stream of a reader that is cancelled.
                self._stream = None
                raise
            if changes is not None:
                self._next_revision = changes.revision + 1
                return changes
        raise StopAsyncIteration

    async def _begin(self) -> None:
        self._claimed = 0
        self._asked_member = self._connection.member
        stream = self._connection.stream(_WATCH, pb.WatchRequest, pb.WatchResponse)
        start, end = self._names.bounds(self._keys)
        request = pb.WatchCreateRequest(
            key=start, range_end=end, start_revision=self._next_revision, without=self._without
        )
        await stream.write(pb.WatchRequest(create_request=request))
        self._stream = stream

    async def _next(self) -> pb.WatchResponse | None:
        """The server's next message, asked for if there is none for long; None when it has ended the stream."""
        reading = asyncio.ensure_future(self._stream.read())
        asked = 0
        try:
            while True:
                done, _ = await asyncio.wait({reading}, timeout=self._progress_s)
                if done:
                    break
                if asked == _ASKED_MAX:
                    self._leave_mute()
                    break
                asked += 1
                await self._stream.write(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        except BaseException:
            reading.cancel()
            raise
        if self._stream is None:
            reading.cancel()
            return None
        # A channel that is closed cancels the reads of its streams.
        if reading.cancelled() or (reply := reading.result()) is grpc.aio.EOF:
            self._stream = None
            return None
        response: pb.WatchResponse = reply
        return response

    def _leave_mute(self) -> None:
        self._stream.cancel()
        self._stream = None
        self._connection.note_failure(self._asked_member)

    def _take(self, reply: pb.WatchResponse) -> Changes | None:
        if reply.compact_revision:
            raise RevisionCompacted(f"etcd keeps changes after revision {reply.compact_revision - 1}")
        if reply.canceled:
            self._stream = None
            return None
        if reply.created:
            return None
        claimed, self._claimed = self._claimed, 0
        if reply.events:
            events = [event_of(self._names, each) for each in reply.events]
            return Changes(events[-1].revision, told(events, self._keys, self._without))
        self._claimed = reply.header.revision
        if claimed >= self._next_revision:
            return Changes(claimed, ())
        return None

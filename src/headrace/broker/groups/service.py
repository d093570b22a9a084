"""Consumer groups of both protocols: requests find their group here, offsets are committed and expire.

Groups that only commit offsets, without members, are classic ones that stay empty.

Until `load` is through, every request raises `CoordinatorLoading`, and no timer of a group or of its offsets runs.
"""

import asyncio
import functools
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.configs import GroupConfigs
from headrace.broker.groups.consumer import events as consumer
from headrace.broker.groups.consumer.driver import ConsumerDriver
from headrace.broker.groups.embedded import CONSUMER_PROTOCOL_TYPE
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.registry import Group, GroupRegistry, keep_latest
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.groups.subscribed import subscribed_topics
from headrace.broker.hosting import SteadyClock
from headrace.broker.internal_topic import InternalTopic
from headrace.broker.offset_records import CommittedOffset, GroupRecord
from headrace.broker.offsets import Offsets, Place
from headrace.broker.topics import Topic, Topics
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)

T = TypeVar("T")

EXPIRY_INTERVAL_S: Final = 600.0


class Committer(msgspec.Struct, frozen=True, kw_only=True):
    """Who commits. The default is a client outside of group management."""

    member_id: str = ""
    generation: int = -1
    """Generation of a classic member, member epoch of the other kind."""
    instance_id: str | None = None
    knows_epochs: bool = True
    """False for a request that is older than member epochs: a member of a KIP-848 group cannot mean what it says."""


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    kind: str
    """`classic` or `consumer`."""
    protocol_type: str
    state: str


class Groups:
    def __init__(
        self,
        log_topic: InternalTopic,
        offsets: Offsets,
        topics: Topics,
        clock: Clock,
        settings: GroupSettings,
        configs: GroupConfigs,
    ) -> None:
        self.settings = settings
        self.configs = configs
        self._log = log_topic
        self._offsets = offsets
        self._topics = topics
        self._clock = SteadyClock(clock)
        self._registry = GroupRegistry(log_topic, topics, self._clock, settings, configs)
        self._expiry: asyncio.TimerHandle | None = None
        topics.on_removed.append(self._topic_removed)

    @property
    def is_loaded(self) -> bool:
        return self._log.is_loaded

    # -- the classic protocol

    def join(self, group_id: str, event: classic.Join) -> Deferred[classic.JoinReply]:
        driver = self._registry.get(group_id)
        if not self.settings.session_timeout_ms_min <= event.session_timeout_ms <= self.settings.session_timeout_ms_max:
            refused = classic.JoinReply(error=GroupError.INVALID_SESSION_TIMEOUT, member_id=event.member_id)
            return Deferred.resolved(refused)
        if driver is None or (isinstance(driver, ConsumerDriver) and not driver.machine.members):
            if event.member_id:
                reply = classic.JoinReply(error=GroupError.UNKNOWN_MEMBER_ID, member_id=event.member_id)
                return Deferred.resolved(reply)
            driver = self._registry.start_classic(group_id)
        self._registry.refresh_topics()
        return driver.requests.join(event)

    def sync(self, group_id: str, event: classic.Sync) -> Deferred[classic.SyncReply]:
        driver = self._registry.get(group_id)
        if driver is None:
            return Deferred.resolved(classic.SyncReply(error=GroupError.UNKNOWN_MEMBER_ID))
        return driver.requests.sync(event)

    def heartbeat(self, group_id: str, event: classic.Heartbeat) -> Deferred[GroupError]:
        driver = self._registry.get(group_id)
        if driver is None:
            return Deferred.resolved(GroupError.UNKNOWN_MEMBER_ID)
        return driver.requests.heartbeat(event)

    def leave(self, group_id: str, event: classic.Leave) -> Deferred[tuple[classic.DepartureReply, ...]]:
        driver = self._registry.get(group_id)
        if driver is None:
            replies = tuple(
                classic.DepartureReply(
                    member_id=each.member_id,
                    instance_id=each.instance_id,
                    error=GroupError.UNKNOWN_MEMBER_ID,
                )
                for each in event.departures
            )
            return Deferred.resolved(replies)
        return driver.requests.leave(event)

    # -- the protocol of KIP-848

    def consumer_heartbeat(self, group_id: str, event: consumer.Heartbeat) -> Deferred[consumer.HeartbeatReply]:
        self._registry.refresh_topics()
        driver = self._registry.get(group_id)
        if isinstance(driver, ConsumerDriver):
            return driver.heartbeat(event)
        if event.member_epoch == 0:
            return self._registry.start_consumer(group_id, event)
        if driver is None:
            error, message = GroupError.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."
        else:
            # It was away for too long, and the others became a classic group. Told so it joins again; told that there
            # is no group, librdkafka gives up for good.
            error, message = GroupError.UNKNOWN_MEMBER_ID, f"no member {event.member_id}"
        return Deferred.resolved(consumer.HeartbeatReply(error=error, message=message))

    # -- offsets

    def commit(
        self, group_id: str, offsets: Mapping[Place, CommittedOffset], committer: Committer
    ) -> Deferred[GroupError]:
        """Errors of the group are the result; those of the log are raised."""
        error = self._check_commit(group_id, committer, in_transaction=False)
        if error is not GroupError.NONE:
            return Deferred.resolved(error)
        self._begin_with(group_id, offsets)
        return _then_none(self._offsets.commit(group_id, offsets))

    def commit_in_transaction(
        self,
        group_id: str,
        offsets: Mapping[Place, CommittedOffset],
        committer: Committer,
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> Deferred[GroupError]:
        error = self._check_commit(group_id, committer, in_transaction=True)
        if error is not GroupError.NONE:
            return Deferred.resolved(error)
        self._begin_with(group_id, offsets)
        return _then_none(
            self._offsets.commit_in_transaction(
                group_id, offsets, producer_id=producer_id, producer_epoch=producer_epoch
            )
        )

    def _begin_with(self, group_id: str, offsets: Mapping[Place, CommittedOffset]) -> None:
        """A group that only commits comes into being with its first offset."""
        if offsets and self._registry.get(group_id) is None:
            self._registry.start_classic(group_id)

    def _check_commit(self, group_id: str, committer: Committer, *, in_transaction: bool) -> GroupError:
        driver = self._registry.get(group_id)
        if driver is None:
            if committer.generation >= 0:
                # Members of KIP-848 groups join again when theirs is gone; older clients know generations only.
                is_known = committer.knows_epochs and not in_transaction
                return GroupError.GROUP_ID_NOT_FOUND if is_known else GroupError.ILLEGAL_GENERATION
            return GroupError.NONE
        if isinstance(driver, ConsumerDriver):
            return driver.machine.check_commit(
                member_id=committer.member_id,
                member_epoch=committer.generation,
                in_transaction=in_transaction,
                knows_epochs=committer.knows_epochs,
            )
        return driver.machine.check_commit(
            member_id=committer.member_id,
            instance_id=committer.instance_id,
            generation=committer.generation,
            in_transaction=in_transaction,
            now_ms=self._clock.now_ms(),
        )

    def check_reader(self, group_id: str, member_id: str | None, member_epoch: int) -> GroupError:
        """May this member ask for the group's offsets? Only members of KIP-848 groups say who they are."""
        driver = self._registry.get(group_id)
        if (member_id is None and member_epoch < 0) or not isinstance(driver, ConsumerDriver):
            return GroupError.NONE
        return driver.machine.check_reader(member_id=member_id or "", member_epoch=member_epoch)

    # -- looking at groups

    def find(self, group_id: str) -> Group | None:
        driver = self._registry.get(group_id)
        if driver is not None:
            return driver.machine
        return ClassicGroup() if self._offsets.all_of(group_id) else None

    def names(self) -> list[str]:
        """In no order; there may be tens of thousands."""
        return list({*self._registry, *self._offsets.groups()})

    def listing(self, group_id: str) -> GroupListing | None:
        group = self.find(group_id)
        return None if group is None else _listing(group_id, group)

    def listings(self) -> list[GroupListing]:
        return [found for name in sorted(self.names()) if (found := self.listing(name)) is not None]

    def topic_names(self) -> dict[bytes, str]:
        """The topics there are, id to name. Groups hear of those that came or went when a member next reports."""
        return {bytes(topic.id): str(topic.name) for topic in self._topics.all()}

    # -- deleting

    def delete(self, group_id: str) -> Deferred[GroupError]:
        """Forget an empty group and its offsets."""
        group = self.find(group_id)
        error = GroupError.GROUP_ID_NOT_FOUND if group is None else group.retire()
        if group is None or error is not GroupError.NONE:
            return Deferred.resolved(error)
        places = {*self._offsets.all_of(group_id), *self._offsets.undecided(group_id)}
        forgetting = self._offsets.forget(group_id, list(places))
        self._registry.remove(group_id)
        return _then_none(forgetting)

    def delete_offsets(self, group_id: str, places: list[Place]) -> Deferred[dict[Place, GroupError]]:
        """Forget single offsets; those of topics that members read right now stay."""
        group, error = self.find(group_id), self.check_deletion(group_id)
        if group is None or error is not GroupError.NONE:
            return Deferred.resolved(dict.fromkeys(places, error))
        in_use = subscribed_topics(group)
        results = {
            place: GroupError.GROUP_SUBSCRIBED_TO_TOPIC if place[0] in in_use else GroupError.NONE for place in places
        }
        free = [place for place, error in results.items() if error is GroupError.NONE]
        done: Deferred[dict[Place, GroupError]] = Deferred()
        self._offsets.forget(group_id, free).then(lambda forgotten: _pass(forgotten, done, results))
        return done

    def check_deletion(self, group_id: str) -> GroupError:
        """May offsets of this group be deleted, whichever they are?"""
        group = self.find(group_id)
        if group is None:
            return GroupError.GROUP_ID_NOT_FOUND
        if group.members and isinstance(group, ClassicGroup) and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return GroupError.NON_EMPTY_GROUP
        return GroupError.NONE

    def expire(self) -> None:
        """Offsets nobody has needed for `offsets_retention_minutes` go; so do empty groups that have none."""
        now_ms = self._clock.now_ms()
        before_ms = now_ms - self.settings.offsets_retention_minutes * 60_000
        for listing in self.listings():
            group = self.find(listing.group_id)
            assert group is not None
            kept = self._offsets.all_of(listing.group_id)
            held = self._offsets.undecided(listing.group_id)
            old = self._old_offsets(group, kept, held, before_ms)
            idle_ms = now_ms - group.since_ms
            if not group.members and not held and len(old) == len(kept) and idle_ms > EXPIRY_INTERVAL_S * 1000:
                log.info("group expired", group=listing.group_id, offsets=len(kept))
                self.delete(listing.group_id)
            elif old:
                log.info("offsets expired", group=listing.group_id, offsets=len(old))
                self._offsets.forget(listing.group_id, old)

    def _old_offsets(
        self,
        group: Group,
        kept: Mapping[Place, CommittedOffset],
        held: set[Place],
        before_ms: int,
    ) -> list[Place]:
        """Age counts from the commit, or from when the group lost its last member; what is being read never ages."""
        in_use = subscribed_topics(group)
        since_ms = 0 if group.members else group.since_ms
        return [
            place
            for place, committed in kept.items()
            if place[0] not in in_use and place not in held and max(committed.commit_ms, since_ms) < before_ms
        ]

    def leaders(self) -> frozenset[str]:
        """The brokers that look after groups, where there are several."""
        return self._log.leaders()

    def require_here(self, group_id: str) -> None:
        """Raise unless this broker coordinates the group, and knows all about it."""
        self._log.require_loaded(group_id)

    async def leader_of(self, group_id: str) -> str:
        """The broker that coordinates the group, where there are several."""
        return await self._log.leader_of(group_id)

    # -- starting and stopping

    async def load(self, index: int | None = None) -> None:
        """Replay that partition of the log of groups and offsets, or all of it; needs the topics loaded.

        May be tried again when it fails.
        """
        await self.configs.load()
        self._offsets.unload(index)
        found: dict[str, GroupRecord] = {}
        async for group in self._offsets.replay_all(self._log.replay(index)):
            keep_latest(found, group)
        # Nothing is awaited from here on: nobody can meet a part of it.
        self._log.note_loaded(index)
        self._registry.refresh_topics()
        for latest in found.values():
            # A record may parse and still describe no group: then the group begins anew, without members.
            self._log.read(f"group {latest.group}", functools.partial(self._registry.restore, latest))
        self._offsets.finish_replay(index)
        if self._expiry is None:
            self._schedule_expiry()
        if found:
            log.info("groups loaded", count=len(found))

    def unload(self, index: int) -> None:
        """Another broker leads that partition of the log: whoever waits here is sent there."""
        self._log.note_lost(index)
        self._registry.unload(index)
        self._offsets.unload(index)

    def _topic_removed(self, topic: Topic) -> None:
        # While the log is being read there is nothing to forget yet: at its end it is seen that the topic is gone.
        self._offsets.topic_removed(topic)

    def _schedule_expiry(self) -> None:
        def run() -> None:
            if self.is_loaded:
                self.expire()
            self._schedule_expiry()

        self._expiry = asyncio.get_running_loop().call_later(EXPIRY_INTERVAL_S, run)

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._registry.stop()
        await self._offsets.stop()


def _listing(group_id: str, group: Group) -> GroupListing:
    is_classic = isinstance(group, ClassicGroup)
    return GroupListing(
        group_id=group_id,
        kind="classic" if is_classic else "consumer",
        protocol_type=(group.protocol_type or "") if isinstance(group, ClassicGroup) else CONSUMER_PROTOCOL_TYPE,
        state=group.state.value,
    )


def _then_none(committing: Deferred[None]) -> Deferred[GroupError]:
    done: Deferred[GroupError] = Deferred()
    committing.then(lambda settled: _pass(settled, done, GroupError.NONE))
    return done


def _pass(settled: Deferred[None], done: Deferred[T], value: T) -> None:
    try:
        settled.result()
    except HeadraceError as error:
        done.reject(error)
    else:
        done.resolve(value)

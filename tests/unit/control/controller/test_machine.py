"""Sessions of brokers and who leads instead of those that are gone, with a clock that obeys."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.controller.machine import HANDED_OVER_AT_ONCE, Machine, State, Timing
from headrace.control.topics import LOST_RING, ClusterTopics
from headrace.ids import TopicId

OFFSETS = "__consumer_offsets"


class World:
    """A machine beside a store that does at once what it decides."""

    def __init__(self) -> None:
        self.machine = Machine(Timing())
        self.now_ms = 1_000
        self.epochs: dict[str, int] = {}
        self.states: dict[str, State] = {}

    def register(self, *names: str, state: State = State.STARTING) -> None:
        for name in names:
            self.epochs[name] = self.epochs.get(name, 0) + 1
            self._set(name, state)
            self.machine.heard(name, self.epochs[name], now_ms=self.now_ms)

    def hear(self, *names: str, is_ready: bool = False) -> list[bool | None]:
        return [self.machine.heard(name, self.epochs[name], now_ms=self.now_ms, is_ready=is_ready) for name in names]

    def tick(self) -> list[tuple[str, State]]:
        decided = self.machine.tick(now_ms=self.now_ms)
        for each in decided:
            assert each.broker_epoch == self.epochs[each.broker_id]
            self.epochs[each.broker_id] += each.state == State.FENCED
            self._set(each.broker_id, each.state)
        self.machine.check_invariants()
        return [(each.broker_id, each.state) for each in decided]

    def pass_ms(self, duration_ms: int, *heard: str) -> list[tuple[str, State]]:
        """Ticks every 100 ms, in which the brokers named are heard."""
        decided = []
        for _ in range(duration_ms // 100):
            self.now_ms += 100
            self.hear(*heard)
            decided += self.tick()
        return decided

    def moves(self, known: ClusterTopics) -> dict[tuple[str, int], str]:
        return self.machine.moves(known, now_ms=self.now_ms)

    def _set(self, name: str, state: State) -> None:
        self.states[name] = state
        self.machine.registered(name, self.epochs[name], state, now_ms=self.now_ms)


@pytest.fixture
def world() -> World:
    return World()


def topics(
    leaders: Mapping[str, list[str]], *, durability: str = "object", opened: Collection[str] = (), ring_id: bytes = b""
) -> ClusterTopics:
    """Brokers that are `opened` have said where the epochs begin that they were given. `ring_id` is the WAL that has their records."""
    known = ClusterTopics()
    for number, (name, led_by) in enumerate(leaders.items()):
        config = values.topic_config(
            TopicId(number.to_bytes(16)),
            partitions=len(led_by),
            overrides={"durability": durability} if durability else {},
            created_ms=0,
        )
        known.apply(keys.topic_config(name), values.encode(config), revision=5)
        for index, leader in enumerate(led_by):
            starts = [pb.EpochStart(leader_epoch=3, start_offset=9)] if leader in opened else []
            entry = pb.PartitionLeader(broker_id=leader, leader_epoch=3, epoch_starts=starts, ring_id=ring_id)
            value = values.encode(entry)
            known.apply(keys.leader(name, index), value, revision=5)
    return known


def test_a_broker_starts_and_is_active_once_it_says_that_it_is_ready(world: World) -> None:
    world.register("a")
    assert world.pass_ms(1_000, "a") == []
    world.hear("a", is_ready=True)
    assert world.tick() == [("a", State.ACTIVE)]
    assert world.pass_ms(5_000, "a") == []


def test_a_broker_that_is_silent_for_a_session_is_fenced(world: World) -> None:
    world.register("a", "b", state=State.ACTIVE)
    assert world.pass_ms(2_000, "b") == []
    assert world.pass_ms(100, "b") == [("a", State.FENCED)]
    assert world.machine.heard("a", 1, now_ms=world.now_ms) is False
    assert world.pass_ms(10_000, "b") == []


def test_one_that_comes_back_under_a_new_epoch_is_heard_again(world: World) -> None:
    world.register("a", state=State.ACTIVE)
    world.pass_ms(2_100)
    world.register("a")
    assert world.hear("a", is_ready=True) == [True]
    assert world.tick() == [("a", State.ACTIVE)]
    assert world.machine.heard("a", 1, now_ms=world.now_ms) is False, "the former life"


def test_a_heartbeat_of_a_former_life_keeps_nobody_alive(world: World) -> None:
    world.register("a", state=State.ACTIVE)
    world.register("a")
    for _ in range(21):
        world.now_ms += 100
        assert world.machine.heard("a", 1, now_ms=world.now_ms) is False
        decided = world.tick()
    assert decided == [("a", State.FENCED)]


def test_a_process_that_is_gone_is_fenced_at_once(world: World) -> None:
    world.register("a", "b", state=State.ACTIVE)
    world.pass_ms(400)
    assert list(world.machine.silent(now_ms=world.now_ms)) == []
    world.pass_ms(100, "b")
    assert list(world.machine.silent(now_ms=world.now_ms)) == [("a", 1)]
    world.machine.gone("a", 7)
    assert world.tick() == [], "another incarnation's end"
    world.machine.gone("a", 1)
    assert world.tick() == [("a", State.FENCED)]


def test_a_broker_nobody_ever_heard_has_longer(world: World) -> None:
    world.machine.registered("a", 4, State.ACTIVE, now_ms=world.now_ms)
    world.epochs["a"] = 4
    assert world.pass_ms(6_000) == []
    assert world.pass_ms(100) == [("a", State.FENCED)]


def test_time_in_which_the_controller_stood_still_counts_for_nobody(world: World) -> None:
    world.register("a", state=State.ACTIVE)
    world.pass_ms(1_000)
    world.now_ms += 60_000
    assert world.tick() == []
    assert world.pass_ms(900) == []
    assert world.pass_ms(300) == [("a", State.FENCED)]


def test_older_news_of_the_store_change_nothing(world: World) -> None:
    world.register("a", state=State.ACTIVE)
    world.register("a", state=State.ACTIVE)
    world.machine.registered("a", 1, State.FENCED, now_ms=world.now_ms)
    assert world.hear("a") == [True]


def test_of_a_broker_that_is_not_registered_nothing_is_said(world: World) -> None:
    assert world.machine.heard("x", 1, now_ms=0) is None
    world.register("a")
    assert world.machine.heard("a", 2, now_ms=0) is None, "the store has not told of that epoch yet"
    world.machine.removed("a")
    assert world.hear("a") == [None]


def test_leaders_of_a_fenced_broker_are_spread_over_the_active_ones(world: World) -> None:
    world.register("a", "b", "c", state=State.ACTIVE)
    world.register("d")
    known = topics({"t": ["a"] * 4 + ["b"] * 2, "u": ["a"]})
    assert world.moves(known) == {}
    world.pass_ms(2_100, "b", "c", "d")
    moves = world.moves(known)
    assert sorted(moves) == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)]
    assert sorted(moves.values()) == ["b", "b", "c", "c", "c"]


@pytest.mark.parametrize("durability", ["wal", ""])
def test_partitions_that_only_one_disk_has_wait_for_their_broker(world: World, durability: str) -> None:
    world.register("a", "b", state=State.ACTIVE)
    world.pass_ms(2_100, "b")
    assert world.moves(topics({"t": ["a"]}, durability=durability, ring_id=b"r" * 16)) == {}


@pytest.mark.parametrize("ring_id", [b"", LOST_RING])
def test_a_partition_of_a_wal_topic_moves_when_no_wal_has_records_of_it(world: World, ring_id: bytes) -> None:
    world.register("a", "b", state=State.ACTIVE)
    world.pass_ms(2_100, "b")
    assert world.moves(topics({"t": ["a"]}, durability="wal", ring_id=ring_id)) == {("t", 0): "b"}


def test_a_leaving_broker_waits_until_its_wal_is_handed_over(world: World) -> None:
    world.register("a", "b", state=State.ACTIVE)
    known = topics({"t": ["a"]}, durability="wal", ring_id=b"r" * 16, opened=["a"])
    assert world.machine.left_to_hand_over("a", known) == 1
    assert world.machine.left_to_hand_over("b", known) == 0


def test_without_an_active_broker_nothing_moves(world: World) -> None:
    world.register("a", state=State.ACTIVE)
    world.register("b")
    world.pass_ms(2_100, "b")
    assert world.moves(topics({"t": ["a"]})) == {}


def test_a_leaving_broker_gives_away_what_it_leads_and_is_fenced_only_when_it_is_silent(world: World) -> None:
    world.register("a", "b", state=State.ACTIVE)
    world.machine.leaves("a", 1)
    assert world.tick() == [("a", State.DRAINING)]
    assert world.moves(topics({"t": ["a"]})) == {("t", 0): "b"}
    assert world.pass_ms(5_000, "a", "b") == []
    assert world.pass_ms(2_100, "b") == [("a", State.FENCED)]


def test_a_leaving_broker_hands_over_a_few_partitions_at_a_time(world: World) -> None:
    """It serves the others meanwhile: each is without a leader for as long as it takes to open a few."""
    world.register("a", "b", "c", state=State.ACTIVE)
    world.machine.leaves("a", 1)
    world.tick()
    led = ["a"] * 100
    assert len(world.moves(topics({"t": led}))) == HANDED_OVER_AT_ONCE
    half_way = topics({"t": ["b"] * 32 + ["c"] * 32 + led[64:]}, opened="b")
    assert len(world.moves(half_way)) == 32, "as many as have been opened"
    assert world.machine.left_to_hand_over("a", half_way) == 36 + 32
    at_the_end = topics({"t": ["b"] * 50 + ["c"] * 50}, opened="bc")
    assert world.machine.left_to_hand_over("a", at_the_end) == 0


def test_partitions_of_a_dead_broker_do_not_wait_for_others_to_open(world: World) -> None:
    world.register("a", "b", state=State.ACTIVE)
    world.pass_ms(2_100, "b")
    assert len(world.moves(topics({"t": ["a"] * 100, "u": ["b"] * 100}))) == 100


def test_the_last_broker_of_all_has_nobody_to_wait_for(world: World) -> None:
    world.register("a", state=State.ACTIVE)
    world.machine.leaves("a", 1)
    world.tick()
    assert world.machine.left_to_hand_over("a", topics({"t": ["a"]})) == 0


def test_a_starting_broker_keeps_its_partitions_for_a_session(world: World) -> None:
    world.register("b", state=State.ACTIVE)
    world.register("a")
    known = topics({"t": ["a"]})
    world.pass_ms(2_000, "a", "b")
    assert world.moves(known) == {}
    world.pass_ms(100, "a", "b")
    assert world.moves(known) == {("t", 0): "b"}


def test_partitions_without_any_leader_get_one(world: World) -> None:
    world.register("b", state=State.ACTIVE)
    assert world.moves(topics({"t": ["", "never-registered"]})) == {("t", 0): "b", ("t", 1): "b"}


def test_partitions_of_a_coordinators_topic_are_spread_as_all_others(world: World) -> None:
    world.register("a", "b", "c", state=State.ACTIVE)
    world.pass_ms(2_100, "b", "c")
    moves = world.moves(topics({OFFSETS: ["a"] * 8}))
    assert sorted(moves.values()) == ["b"] * 4 + ["c"] * 4


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["heard", "ready", "register", "leaves", "gone", "wait"]))
    )
)
def test_whoever_is_decided_on_was_silent_ready_leaving_or_gone(events: list[tuple[str, str]]) -> None:
    world = World()
    heard: dict[str, int] = {}
    excused: set[tuple[str, State]] = set()
    for name, event in events:
        world.now_ms += 100
        if event == "register":
            world.register(name)
            heard[name] = world.now_ms
            excused -= {(name, State.ACTIVE), (name, State.DRAINING), (name, State.FENCED)}
        elif name in world.epochs and event == "wait":
            for _ in range(12):
                world.now_ms += 100
                check(world, heard, excused)
        elif name in world.epochs:
            epoch = world.epochs[name]
            if event in ("heard", "ready") and world.hear(name, is_ready=event == "ready") == [True]:
                heard[name] = world.now_ms
            if event == "leaves":
                world.machine.leaves(name, epoch)
            if event == "gone":
                world.machine.gone(name, epoch)
            excused.add((name, {"ready": State.ACTIVE, "leaves": State.DRAINING}.get(event, State.FENCED)))
            if event == "heard":
                excused.discard((name, State.FENCED))
        check(world, heard, excused)


def check(world: World, heard: dict[str, int], excused: set[tuple[str, State]]) -> None:
    for name, state in world.tick():
        assert (name, state) in excused or (state == State.FENCED and world.now_ms - heard[name] > 2_000)
    for name, state in world.states.items():
        if state != State.FENCED:
            assert world.now_ms - heard[name] <= 2_000

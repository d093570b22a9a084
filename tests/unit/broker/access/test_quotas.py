"""Limits and rates: which limit holds for whom, and for how long somebody over it has to stop."""

import pytest

from headrace.broker.access.quotas import DEFAULT, Entity, Limit, Quotas, check_limit, encode_limits
from headrace.broker.access.rates import Rate
from headrace.errors import Invalid


def quotas(**limits: tuple[Entity, float]) -> Quotas:
    made = Quotas()
    for entity, value in limits.values():
        made.apply(entity, encode_limits({Limit.PRODUCE: value}))
    return made


PRECEDENCE = [
    Entity("alice", "app"),
    Entity("alice", DEFAULT),
    Entity("alice"),
    Entity(DEFAULT, "app"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT),
    Entity(None, "app"),
    Entity(None, DEFAULT),
]
"""As Kafka orders them, the first that there is holds."""


def test_the_most_exact_limit_holds() -> None:
    made = Quotas()
    for number, entity in reversed(list(enumerate(PRECEDENCE, 1))):
        made.apply(entity, encode_limits({Limit.PRODUCE: number}))
        found = made.limit(Limit.PRODUCE, "alice", "app")
        assert found is not None
        assert found[0] == number
    assert made.limit(Limit.FETCH, "alice", "app") is None


def test_who_shares_a_limit_shares_its_rate() -> None:
    made = quotas(user=(Entity("alice"), 1_000.0), client=(Entity(None, "app"), 1_000.0))
    # Two clients of alice are one; clients of others are known by their id.
    assert made.record(Limit.PRODUCE, "alice", "one", 8_000, 0) == 0
    assert made.record(Limit.PRODUCE, "alice", "two", 8_000, 0) == 6_000
    assert made.record(Limit.PRODUCE, "bob", "app", 8_000, 0) == 0
    assert made.record(Limit.PRODUCE, "carol", "app", 8_000, 0) == 6_000
    assert made.record(Limit.PRODUCE, "bob", "other", 10**9, 0) == 0


def test_a_default_is_a_limit_for_each() -> None:
    made = quotas(user=(Entity(DEFAULT), 1_000.0))
    assert made.record(Limit.PRODUCE, "alice", "", 16_000, 0) == 6_000
    assert made.record(Limit.PRODUCE, "bob", "", 8_000, 0) == 0


def test_after_the_wait_the_rate_is_what_is_allowed() -> None:
    rate, now_ms, sent = Rate(), 0, 0
    while now_ms < 120_000:
        rate.record(50_000, now_ms)
        sent += 50_000
        now_ms += rate.throttle_ms(10_000, now_ms) + 1
    assert sent / (now_ms / 1000) == pytest.approx(10_000, rel=0.15)


def test_what_was_long_ago_does_not_count() -> None:
    rate = Rate()
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(1_000, 10_999) > 0
    assert rate.throttle_ms(1_000, 11_000) == 0
    assert rate.is_idle(11_000)


def test_connections_that_are_turned_away_do_not_count() -> None:
    made = Quotas()
    made.apply(Entity(ip=DEFAULT), encode_limits({Limit.CONNECTIONS: 1}))
    assert [bool(made.connect("10.0.0.1", 0)) for _ in range(12)] == [False] * 10 + [True] * 2
    assert made.connect("10.0.0.2", 0) == 0
    assert made.connect("10.0.0.1", 11_000) == 0


def test_rates_of_client_ids_that_are_made_up_do_not_fill_the_memory() -> None:
    made = quotas(client=(Entity(None, DEFAULT), 1_000.0))
    for number in range(30_000):
        made.record(Limit.PRODUCE, "alice", f"client-{number}", 1, number * 10)
    assert len(made._rates) < 12_000


def test_a_quota_concerns_those_it_may_limit() -> None:
    assert not quotas(a=(Entity("alice"), 1.0)).concerns("bob")
    assert quotas(a=(Entity("alice", "app"), 1.0)).concerns("alice")
    assert quotas(a=(Entity(None, "app"), 1.0)).concerns("bob")
    assert quotas(a=(Entity(DEFAULT), 1.0)).concerns("bob")
    assert not quotas(a=(Entity(ip="10.0.0.1"), 1.0)).concerns("bob")


@pytest.mark.parametrize(
    ("entity", "limit", "value"),
    [
        (Entity("alice"), Limit.CONNECTIONS, 1.0),
        (Entity(ip="10.0.0.1"), Limit.PRODUCE, 1.0),
        (Entity("alice"), Limit.PRODUCE, 0.0),
        (Entity("alice"), Limit.PRODUCE, -1.0),
        (Entity("alice"), Limit.PRODUCE, 1.5),
        (Entity("alice"), Limit.REQUESTS, float("nan")),
        (Entity("alice"), Limit.PRODUCE, float("inf")),
    ],
)
def test_what_is_no_limit_is_refused(entity: Entity, limit: Limit, value: float) -> None:
    with pytest.raises(Invalid):
        check_limit(entity, limit, value)

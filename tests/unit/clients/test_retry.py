"""Backoff doubles up to a limit; the breaker opens, tests the water, and closes again."""

import pytest

from headrace.clients.retry import BreakerState, CircuitBreaker, CircuitOpen, RetryPolicy


def test_backoff_doubles_up_to_its_limit() -> None:
    policy = RetryPolicy(backoff_first_ms=100, backoff_max_ms=1_000)
    assert [policy.backoff_ms(attempt, chance=1.0) for attempt in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
    assert policy.backoff_ms(1, chance=0.0) == 50
    assert policy.backoff_ms(10_000, chance=1.0) == 1_000


def test_the_breaker_opens_after_failures_in_a_row_only() -> None:
    breaker = CircuitBreaker(failures_to_open=3, open_ms=1_000)
    for _ in range(2):
        breaker.failed(now_ms=0)
    breaker.succeeded()
    for _ in range(2):
        breaker.failed(now_ms=0)
    breaker.admit(now_ms=0)
    breaker.failed(now_ms=10)
    assert breaker.state is BreakerState.OPEN
    with pytest.raises(CircuitOpen):
        breaker.admit(now_ms=1_009)


def test_an_open_breaker_lets_one_through_to_see() -> None:
    breaker = CircuitBreaker(failures_to_open=1, open_ms=1_000)
    breaker.failed(now_ms=0)
    breaker.admit(now_ms=1_000)
    with pytest.raises(CircuitOpen):
        breaker.admit(now_ms=1_000)
    breaker.failed(now_ms=1_001)
    with pytest.raises(CircuitOpen):
        breaker.admit(now_ms=2_000)
    breaker.admit(now_ms=2_001)
    breaker.succeeded()
    breaker.admit(now_ms=2_001)
    breaker.admit(now_ms=2_001)

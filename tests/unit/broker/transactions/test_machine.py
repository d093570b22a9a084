"""The transaction machine, by scripts: commands, and below each the trace it must leave."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.script import expected
from tests.support.transaction_script import ScriptedTransaction, run

from headrace.broker.transactions.events import TopicPartition, TransactionImage, TransactionState, WriteMarkers
from headrace.broker.transactions.machine import TransactionMachine, TransactionSettings
from headrace.broker.transactions.records import decode, encode
from headrace.records.record import Record


def test_commit_is_answered_once_prepared_and_completed_once_marked() -> None:
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 add t u
      > persist ONGOING 1/0 t u
    3 ok
      > add: done
    4 add t
      > add: done
    5 commit
      > persist PREPARE_COMMIT 1/0 t u
    6 ok
      > commit: done
      > mark commit 1/0 t u
    7 marked
      > persist COMPLETE_COMMIT 1/0
    8 ok
    9 commit
      > commit: done
    9 abort
      > abort: INVALID_TXN_STATE
    """
    assert run(script) == expected(script)


def test_next_transaction_waits_for_the_markers_of_the_last() -> None:
    """Sending the producer away would cost it a pause; the markers are written in less."""
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 add t
      > persist ONGOING 1/0 t
    3 ok
      > add: done
    4 abort
      > persist PREPARE_ABORT 1/0 t
    5 ok
      > abort: done
      > mark abort 1/0 t
    6 add u
      > waits
    7 marked
      > persist COMPLETE_ABORT 1/0
    8 ok
      > persist ONGOING 1/0 u
    9 ok
      > add: done
    """
    assert run(script) == expected(script)


def test_waiting_ends_when_markers_take_too_long() -> None:
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 add t
      > persist ONGOING 1/0 t
    3 ok
      > add: done
    4 commit
      > persist PREPARE_COMMIT 1/0 t
    5 ok
      > commit: done
      > mark commit 1/0 t
    10 add u
      > waits
    5009 tick
    5010 tick
      > add: CONCURRENT_TRANSACTIONS
    """
    assert run(script) == expected(script)


@pytest.mark.trap(31)
def test_newcomer_aborts_what_its_predecessor_left_open_and_fences_it() -> None:
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 add t
      > persist ONGOING 1/0 t
    3 ok
      > add: done
    4 init
      > persist PREPARE_ABORT 1/1 t
      > init: CONCURRENT_TRANSACTIONS
    5 init
      > init: CONCURRENT_TRANSACTIONS
    6 ok
      > mark abort 1/1 t
    7 init
      > init: CONCURRENT_TRANSACTIONS
    8 marked
      > persist COMPLETE_ABORT 1/1
    9 ok
    10 init
      > persist EMPTY 1/2
    11 ok
      > init: 1/2
    12 commit as=1/0
      > commit: PRODUCER_FENCED
    13 add t as=1/1
      > add: PRODUCER_FENCED
    14 add t as=9/2
      > add: INVALID_PRODUCER_ID_MAPPING
    """
    assert run(script) == expected(script)


@pytest.mark.trap(30)
def test_transaction_that_takes_too_long_is_aborted_under_a_higher_epoch() -> None:
    script = """
    0 init timeout=1000
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    10 add t
      > persist ONGOING 1/0 t
    11 ok
      > add: done
    1009 tick
    1010 tick
      > timed out 1/0
      > persist PREPARE_ABORT 1/1 t
    1011 ok
      > mark abort 1/1 t
    1012 marked
      > persist COMPLETE_ABORT 1/1
    1013 ok
    1014 commit as=1/0
      > commit: PRODUCER_FENCED
    """
    assert run(script) == expected(script)


@pytest.mark.trap(30)
def test_timeout_beyond_the_allowed_is_refused() -> None:
    script = """
    0 init timeout=900001
      > init: INVALID_TRANSACTION_TIMEOUT
    0 init timeout=0
      > init: INVALID_TRANSACTION_TIMEOUT
    """
    assert run(script) == expected(script)


def test_producer_that_recovers_says_who_it_was() -> None:
    """A repeat of an init whose answer was lost gives the same epoch; anybody older is fenced (KIP-360)."""
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 init was=1/0
      > persist EMPTY 1/1
    3 ok
      > init: 1/1
    4 init was=1/0
      > persist EMPTY 1/1
    5 ok
      > init: 1/1
    6 init was=1/1
      > persist EMPTY 1/2
    7 ok
      > init: 1/2
    8 init was=1/0
      > init: PRODUCER_FENCED
    9 init was=77/2
      > init: PRODUCER_FENCED
    """
    assert run(script) == expected(script)


def test_epochs_that_run_out_continue_under_a_new_producer_id() -> None:
    image = TransactionImage(producer_id=1, epoch=32_766, timeout_ms=60_000)
    script = """
    0 init was=1/32766
      > persist EMPTY 2/0
    1 ok
      > init: 2/0
    2 init was=1/32766
      > persist EMPTY 2/0
    3 ok
      > init: 2/0
    4 init was=1/4
      > init: PRODUCER_FENCED
    """
    machine = TransactionMachine(TransactionSettings(), image)
    assert run(script, ScriptedTransaction(machine=machine)) == expected(script)


def test_the_owner_of_an_epoch_that_was_fenced_may_come_back_before_anybody_else_does() -> None:
    """Whoever fenced it, a stranger here, has not come back yet. The owner of an epoch before that one is a zombie."""
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 init
      > persist EMPTY 1/1
    3 ok
      > init: 1/1
    4 add t
      > persist ONGOING 1/1 t
    5 ok
      > add: done
    6 init was=1/0
      > persist PREPARE_ABORT 1/2 t
      > init: CONCURRENT_TRANSACTIONS
    7 ok
      > mark abort 1/2 t
    8 marked
      > persist COMPLETE_ABORT 1/2
    9 ok
    10 init was=1/0
      > init: PRODUCER_FENCED
    11 init was=1/1
      > persist EMPTY 1/2
    12 ok
      > init: 1/2
    13 init
      > persist EMPTY 1/3
    14 ok
      > init: 1/3
    15 init was=1/1
      > init: PRODUCER_FENCED
    """
    assert run(script) == expected(script)


def test_the_last_epoch_fences_and_is_given_to_nobody() -> None:
    image = TransactionImage(producer_id=1, epoch=32_766, timeout_ms=60_000)
    script = """
    0 add t
      > persist ONGOING 1/32766 t
    1 ok
      > add: done
    2 init was=1/32766
      > persist PREPARE_ABORT 1/32767 t
      > init: CONCURRENT_TRANSACTIONS
    3 ok
      > mark abort 1/32767 t
    4 marked
      > persist COMPLETE_ABORT 1/32767
    5 ok
    6 init was=1/32766
      > persist EMPTY 3/0
    7 ok
      > init: 3/0
    """
    machine = TransactionMachine(TransactionSettings(), image)
    assert run(script, ScriptedTransaction(machine=machine)) == expected(script)


def test_fence_may_use_the_last_epoch() -> None:
    image = TransactionImage(producer_id=1, epoch=32_766, timeout_ms=60_000)
    script = """
    0 add t
      > persist ONGOING 1/32766 t
    1 ok
      > add: done
    2 init
      > persist PREPARE_ABORT 1/32767 t
      > init: CONCURRENT_TRANSACTIONS
    3 ok
      > mark abort 1/32767 t
    4 marked
      > persist COMPLETE_ABORT 1/32767
    5 ok
    6 init
      > persist EMPTY 3/0
    7 ok
      > init: 3/0
    """
    machine = TransactionMachine(TransactionSettings(), image)
    assert run(script, ScriptedTransaction(machine=machine)) == expected(script)


def test_end_of_a_transaction_in_which_nothing_happened_succeeds() -> None:
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 commit
      > commit: done
    3 abort
      > abort: done
    """
    assert run(script) == expected(script)


def test_failed_write_changes_nothing() -> None:
    script = """
    0 init
      > persist EMPTY 1/0
    1 lost
      > init: COORDINATOR_NOT_AVAILABLE
    2 init
      > persist EMPTY 1/0
    3 ok
      > init: 1/0
    4 add t
      > persist ONGOING 1/0 t
    5 commit
      > waits
    6 lost
      > add: COORDINATOR_NOT_AVAILABLE
      > commit: done
    7 add t
      > persist ONGOING 1/0 t
    8 ok
      > add: done
    9 commit
      > persist PREPARE_COMMIT 1/0 t
    10 ok
      > commit: done
      > mark commit 1/0 t
    11 marked
      > persist COMPLETE_COMMIT 1/0
    12 lost
      > mark commit 1/0 t
    13 marked
      > persist COMPLETE_COMMIT 1/0
    14 ok
    """
    assert run(script) == expected(script)


def test_unused_id_is_forgotten() -> None:
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    604799999 tick
    604800000 tick
      > forget
    604800001 ok
    604800002 add t
      > add: INVALID_PRODUCER_ID_MAPPING
    """
    assert run(script) == expected(script)


@pytest.mark.parametrize("state", list(TransactionState))
def test_restart_carries_out_what_was_decided(state: TransactionState) -> None:
    image = TransactionImage(producer_id=1, epoch=3, timeout_ms=1, state=state)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(image), type=TransactionImage)
    actions = TransactionMachine(TransactionSettings(), again).resume()
    is_decided = state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    assert [type(each) for each in actions] == ([WriteMarkers] if is_decided else [])


verbs = st.sampled_from(
    ["init", "init was=1/0", "init was=1/1", "add t", "add u", "commit", "abort", "commit as=1/0", "ok", "ok",
     "lost", "marked", "tick"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30_000), verbs), max_size=50))
def test_invariants_hold_and_every_request_is_answered_in_the_end(commands: list[tuple[int, str]]) -> None:
    scripted = ScriptedTransaction()
    now_ms = 0
    for wait_ms, verb in commands:
        now_ms += wait_ms
        before = scripted.machine.image.epoch, scripted.machine.image.producer_id
        scripted.play(f"{now_ms} {verb}")
        after = scripted.machine.image.epoch, scripted.machine.image.producer_id
        assert after >= before, "an epoch went back"
    for _ in range(WAITS):
        for verb in ("ok", "marked", "ok"):
            scripted.play(f"{now_ms} {verb}")
    assert set(scripted.answered) == set(scripted.names)


WAITS = 60


def test_each_end_raises_the_epoch_for_a_client_of_the_second_version() -> None:
    """KIP-890: the prepare has the next epoch, the markers carry it, the client is told it, and what is late is fenced."""
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 add t
      > persist ONGOING 1/0 t
    3 ok
      > add: done
    4 commit+
      > persist PREPARE_COMMIT 1/1 t
    5 ok
      > commit+: 1/1
      > mark commit 1/1 t
    6 add u as=1/1
      > waits
    7 marked
      > persist COMPLETE_COMMIT 1/1
    8 ok
      > persist ONGOING 1/1 u
    9 ok
      > add: done
    10 add t as=1/0
      > add: PRODUCER_FENCED
    11 commit+ as=1/0
      > commit+: PRODUCER_FENCED
    12 abort+
      > persist PREPARE_ABORT 1/2 u
    13 ok
      > abort+: 1/2
      > mark abort 1/2 u
    14 marked
      > persist COMPLETE_ABORT 1/2
    15 ok
    16 abort+ as=1/1
      > abort+: 1/2
    17 commit+ as=1/1
      > commit+: INVALID_TXN_STATE
    18 abort+ as=1/0
      > abort+: PRODUCER_FENCED
    """
    assert run(script) == expected(script)


def test_an_abort_of_nothing_raises_the_epoch_and_a_commit_of_nothing_is_refused() -> None:
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 commit+
      > commit+: INVALID_TXN_STATE
    3 abort+
      > persist COMPLETE_ABORT 1/1
    4 ok
      > abort+: 1/1
    5 abort+ as=1/0
      > abort+: 1/1
    6 abort+ as=1/1
      > persist COMPLETE_ABORT 1/2
    7 ok
      > abort+: 1/2
    8 commit+
      > commit+: INVALID_TXN_STATE
    """
    assert run(script) == expected(script)


def test_a_producer_may_abort_what_was_aborted_for_it_and_go_on() -> None:
    """As with Kafka: it hears of the raised epoch as if its own request had raised it. What it cannot do is commit."""
    script = """
    0 init timeout=1000
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    10 add t
      > persist ONGOING 1/0 t
    11 ok
      > add: done
    1010 tick
      > timed out 1/0
      > persist PREPARE_ABORT 1/1 t
    1011 ok
      > mark abort 1/1 t
    1012 marked
      > persist COMPLETE_ABORT 1/1
    1013 ok
    1014 abort as=1/0
      > abort: PRODUCER_FENCED
    1015 commit+ as=1/0
      > commit+: INVALID_TXN_STATE
    1016 abort+ as=1/0
      > abort+: 1/1
    1017 add t as=1/1
      > persist ONGOING 1/1 t
    1018 ok
      > add: done
    1019 abort+ as=1/0
      > abort+: PRODUCER_FENCED
    """
    assert run(script) == expected(script)


def test_whoever_was_fenced_by_a_newcomer_hears_of_no_epoch_that_the_newcomer_has() -> None:
    """The newcomer speaks the first version, whose ends leave the epoch alone: one less than it is not its own."""
    script = """
    0 init
      > persist EMPTY 1/0
    1 ok
      > init: 1/0
    2 add t
      > persist ONGOING 1/0 t
    3 ok
      > add: done
    4 init
      > persist PREPARE_ABORT 1/1 t
      > init: CONCURRENT_TRANSACTIONS
    5 ok
      > mark abort 1/1 t
    6 marked
      > persist COMPLETE_ABORT 1/1
    7 ok
    8 abort+ as=1/0
      > abort+: 1/1
    9 init
      > persist EMPTY 1/2
    10 ok
      > init: 1/2
    11 abort+ as=1/1
      > abort+: PRODUCER_FENCED
    12 add t as=1/2
      > persist ONGOING 1/2 t
    13 ok
      > add: done
    14 abort as=1/2
      > persist PREPARE_ABORT 1/2 t
    15 ok
      > abort: done
      > mark abort 1/2 t
    16 marked
      > persist COMPLETE_ABORT 1/2
    17 ok
    18 abort+ as=1/1
      > abort+: PRODUCER_FENCED
    """
    assert run(script) == expected(script)


def test_the_last_epoch_is_not_told_to_whoever_aborts_what_was_aborted() -> None:
    image = TransactionImage(producer_id=1, epoch=32_766, timeout_ms=60_000)
    script = """
    0 add t
      > persist ONGOING 1/32766 t
    1 ok
      > add: done
    2 init
      > persist PREPARE_ABORT 1/32767 t
      > init: CONCURRENT_TRANSACTIONS
    3 ok
      > mark abort 1/32767 t
    4 marked
      > persist COMPLETE_ABORT 1/32767
    5 ok
    6 abort+ as=1/32766
      > abort+: PRODUCER_FENCED
    """
    machine = TransactionMachine(TransactionSettings(), image)
    assert run(script, ScriptedTransaction(machine=machine)) == expected(script)


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    machine = at_epoch(32_766)
    script = """
    0 commit+ nospare
      > commit+: CONCURRENT_TRANSACTIONS
    1 commit+
      > persist PREPARE_COMMIT 1/32767 t
    2 ok
      > commit+: 3/0
      > mark commit 1/32767 t
    3 add u as=3/0
      > waits
    4 marked
      > persist COMPLETE_COMMIT 3/0
    5 ok
      > persist ONGOING 3/0 u
    6 ok
      > add: done
    7 add u as=1/32766
      > add: INVALID_PRODUCER_ID_MAPPING
    """
    assert run(script, machine) == expected(script)
    machine = at_epoch(32_766)
    script = """
    1 commit+
      > persist PREPARE_COMMIT 1/32767 t
    2 ok
      > commit+: 2/0
      > mark commit 1/32767 t
    4 marked
      > persist COMPLETE_COMMIT 2/0
    5 ok
    6 commit+ as=1/32766
      > commit+: 2/0
    7 init was=1/32766
      > persist EMPTY 2/0
    8 ok
      > init: 2/0
    """
    assert run(script, machine) == expected(script)


def at_epoch(epoch: int) -> ScriptedTransaction:
    image = TransactionImage(
        producer_id=1,
        epoch=epoch,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 0)}),
        started_ms=0,
    )
    return ScriptedTransaction(TransactionMachine(TransactionSettings(), image))


@pytest.mark.parametrize(
    "state", [TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.ONGOING]
)
def test_a_raised_epoch_is_remembered_by_the_log(state: TransactionState) -> None:
    """After a restart a repeated end is recognised, and the next producer id is not lost."""
    is_prepared = state is TransactionState.PREPARE_COMMIT
    image = TransactionImage(
        producer_id=1,
        epoch=32_767 if is_prepared else 5,
        previous_epoch=32_766 if is_prepared else 4,
        next_producer_id=9 if is_prepared else -1,
        is_bumped=True,
        timeout_ms=60_000,
        state=state,
        partitions=frozenset() if state is TransactionState.COMPLETE_ABORT else frozenset({TopicPartition("t", 0)}),
        started_ms=-1 if state is TransactionState.COMPLETE_ABORT else 3,
    )
    written = encode("x", image)
    found = decode(Record(offset=0, timestamp_ms=0, key=written.key, value=written.value, headers=()))
    assert found.image == image

import signal

import pytest

from headrace.cli.interruption import Terminated, brought_to_its_end, ended_in_order


@pytest.mark.usefixtures("plain_interrupt")
@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)], ids=["int", "term"]
)
def test_the_first_signal_waits_for_the_end_and_the_second_does_not(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    steps: list[str] = []

    def work(*, is_hurried: bool) -> None:
        with ended_in_order(), brought_to_its_end():
            signal.raise_signal(number)
            steps.append("first")
            if is_hurried:
                signal.raise_signal(number)
            steps.append("second")

    with pytest.raises(raised):
        work(is_hurried=False)
    assert steps == ["first", "second"]
    steps.clear()
    with pytest.raises(raised):
        work(is_hurried=True)
    assert steps == ["first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

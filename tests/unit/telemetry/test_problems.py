from headrace.telemetry.problems import Problems


def test_a_problem_stands_under_its_key_until_it_is_cleared() -> None:
    board = Problems()
    board.raise_problem("wal", "the WAL was replaced")
    board.raise_problem("upload", "uploads stuck for 10 s")
    board.raise_problem("upload", "uploads stuck for 20 s")
    assert board.standing() == ("the WAL was replaced", "uploads stuck for 20 s")
    board.clear("wal")
    board.clear("never raised")
    assert board.standing() == ("uploads stuck for 20 s",)

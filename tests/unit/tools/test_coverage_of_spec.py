import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "tools" / "coverage_of_spec.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_of_spec", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_line_of_the_acceptance_list_is_found(tool: ModuleType) -> None:
    assert len(tool.requirements()) == 453 + 34, "as the list's own table of counts says"


def test_a_line_is_proven_only_if_nothing_disproves_it(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    tool.report(
        {
            "passed": {"R0.1": ["a"], "R0.2": ["b"]},
            "failed": {"R0.2": ["c"]},
            "skipped": {"R0.3": ["d"]},
        },
        is_short=True,
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["R0.2", "FAILED"] in lines
    assert ["R0.3", "skipped"] in lines
    assert ["R0.4", "no", "test"] in lines
    assert not any(line[:1] == ["R0.1"] for line in lines)


def test_one_node_does_not_prove_what_several_are_asked_for(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = next(name for name, line in tool.requirements().items() if "1→3 brokers" in line)
    for test, is_proven in (("tests/bench/test_a.py::test_b", False), ("tests/chaos/cluster/test_a.py::test_b", True)):
        tool.report({"passed": {asked: [test]}, "failed": {}, "skipped": {}}, is_short=True)
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ([asked, "one", "node"] not in lines) is is_proven
        assert (["all:", "1", "of", "487", "proven"] in lines) is is_proven

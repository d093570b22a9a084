from pathlib import Path

from headrace.config.memory import memory_bytes


def test_a_container_limit_below_the_machines_memory_counts(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("104857600\n")
    assert memory_bytes((limit,)) == 104_857_600


def test_no_limit_means_all_of_it(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    assert memory_bytes((limit, tmp_path / "absent")) == memory_bytes(())

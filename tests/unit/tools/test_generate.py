import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

GENERATOR = """
from pathlib import Path
def outputs():
    return {Path("out/a.txt"): "first", Path("out/b.txt"): "second"}
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "generate.py").write_text((ROOT / "tools" / "generate.py").read_text())
    (tools / "gen_example.py").write_text(GENERATOR)
    return tools / "generate.py"


def run(tool: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(tool), *arguments], capture_output=True, text=True, check=False)


def test_writes_what_is_missing_and_leaves_the_rest_alone(tool: Path) -> None:
    assert run(tool).stdout.split() == ["wrote", "out/a.txt", "wrote", "out/b.txt"]
    assert (tool.parent.parent / "out" / "a.txt").read_text() == "first"
    assert run(tool).stdout == ""


def test_check_names_the_stale_files_and_writes_nothing(tool: Path) -> None:
    run(tool)
    edited = tool.parent.parent / "out" / "b.txt"
    edited.write_text("edited by hand")
    done = run(tool, "--check")
    assert done.returncode == 1
    assert done.stderr == "stale: out/b.txt (run `make gen`)\n"
    assert edited.read_text() == "edited by hand"
    run(tool)
    assert run(tool, "--check").returncode == 0

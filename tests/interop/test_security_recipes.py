"""The recipes of docs/operating/security.md do what they say: each is run as it stands, on other ports."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.node import eventually
from tests.support.ports import kept_port

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "security.md"
_BLOCK = re.compile(r"```(sh|toml)\n(.*?)```", re.DOTALL)
OTHERS = ("QUIC", "MLOG", "RUSTLOG", "ADMIN", "LOGJAM_ROUTER", "LOGJAM_PULL", "LOGJAM_PUB", "LOGJAM_LIVE")


def recipes() -> dict[str, list[tuple[str, str]]]:
    parts = re.split(r"^### Recipe: (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {
        title: [(found[1], found[2]) for found in _BLOCK.finditer(text.split("\n## ")[0])]
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_there_are_recipes() -> None:
    assert len(recipes()) >= 3


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("title", recipes())
def test_a_recipe_works_as_it_stands(title: str, tmp_path: Path) -> None:
    blocks = recipes()[title]
    kinds = [kind for kind, _ in blocks]
    assert kinds.count("toml") == 1
    at = kinds.index("toml")
    with kept_port() as inside, kept_port() as outside:
        places = {
            "/var/lib/headrace": str(tmp_path / "data"),
            ":9092": f":{inside}",
            ":9094": f":{outside}",
            '"0.0.0.0:': '"127.0.0.1:',
        }
        for _, text in blocks[:at]:
            run(moved(text, places), tmp_path)
        (tmp_path / "headrace.toml").write_text(moved(blocks[at][1], places))
        node = Started(tmp_path)
        try:
            for _, text in blocks[at + 1 :]:
                run(moved(text, places), tmp_path)
        finally:
            node.process.kill()
            node.process.wait()


class Started:
    def __init__(self, directory: Path) -> None:
        said = (directory / "headrace.toml").read_text()
        others = [each for each in OTHERS if f"listen.{each.lower().replace('_', '.')} " not in said]
        environment = {**os.environ, **{f"HEADRACE_LISTEN_{each}": "127.0.0.1:0" for each in others}}
        if "listen.kafka" not in said:
            environment["HEADRACE_LISTEN_KAFKA"] = "127.0.0.1:0"
        command = [sys.executable, "-m", "headrace", "up", "--config", "headrace.toml", "--no-pipeline"]
        command += ["--set", "wal.capacity.bytes=67108864"]
        with (directory / "node.log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
        eventually(
            (directory / "data" / "endpoints.json").exists,
            60,
            "the node did not come up",
            (directory / "node.log").read_text,
        )


def moved(text: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        text = text.replace(name, place)
    return text


def run(script: str, directory: Path) -> None:
    headrace = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{headrace}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"

"""The tutorial and the notebook do what they say: their code blocks are run here, in order."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket, records
from tests.support.pipelines import patiently

DOCS = Path(__file__).parents[2] / "docs" / "pipeline"
BLOCK_SECONDS_MAX = 600
"""The slowest starts Spark for two pipelines: half a minute, and four where eight others want the same core."""
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_block(kind: str, text: str, directory: Path) -> str:
    endpoints = directory / "data" / "endpoints.json"
    if endpoints.exists():
        text = text.replace("localhost:9092", json.loads(endpoints.read_text())["kafka"])
    # Other tests and other people's nodes may hold the usual ports.
    text = text.replace("headrace up", "headrace up --ephemeral --set wal.capacity.bytes=67108864")
    text = text.replace(
        "headrace topic create orders --partitions 3 --bootstrap localhost:9092",
        "headrace topic create orders --partitions 3 "
        "--bootstrap $(python -c \"import json; print(json.load(open('data/endpoints.json'))['kafka'])\")",
    )
    program = ["bash", "-e", "-c", text] if kind == "bash" else [sys.executable, "-c", text]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        program, cwd=directory, env=environment, capture_output=True, text=True, timeout=BLOCK_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tutorial_goes_from_nothing_to_a_plot(tmp_path: Path) -> None:
    blocks = BLOCK.findall((DOCS / "tutorial.md").read_text())
    assert len(blocks) >= 8
    try:
        said = "\n".join(run_block(kind, text, tmp_path) for kind, text in blocks)
    finally:
        if (tmp_path / "node.pid").exists():
            subprocess.run(
                ["kill", (tmp_path / "node.pid").read_text().strip()], check=False, stderr=subprocess.DEVNULL
            )
    assert "not JSON" in said
    assert (tmp_path / "revenue.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_notebook_runs(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.create_topic("orders", 2)
    bucket.append("orders", 0, records(50))
    monkeypatch.setenv("HEADRACE_NOTEBOOK_BUCKET", bucket.url)
    monkeypatch.setenv("HEADRACE_NOTEBOOK_DIR", str(tmp_path))
    notebook = json.loads((DOCS / "notebook.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            patiently(partial(exec, "".join(cell["source"]), names))
    assert names["landed"] == 50
    assert (tmp_path / "sizes.png").exists()

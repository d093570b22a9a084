"""Spark processes are measured as users run them."""

import subprocess
from typing import Any

import pytest

from headrace.bench.errors import LoadFailed
from headrace.bench.load.spark import ScanJob, run_spark


def test_a_spark_process_may_keep_what_it_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    environments: list[dict[str, str]] = []

    def refuse(*_: Any, env: dict[str, str], **__: Any) -> subprocess.CompletedProcess[str]:
        environments.append(env)
        return subprocess.CompletedProcess([], returncode=1)

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(LoadFailed, match="status 1"):
        run_spark(ScanJob(source="headrace", options={}))
    assert environments[0]["KEPT"] == "yes"
    assert "PYTHONDONTWRITEBYTECODE" not in environments[0]

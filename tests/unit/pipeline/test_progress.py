from pathlib import Path

import pytest

from headrace.pipeline.progress import read_progress
from headrace.pipeline.status import PipelineStatus, ProcessStatus, format_metrics, read_status, write_status

REPORT = {
    "batchId": 4,
    "numInputRows": 500,
    "durationMs": {"triggerExecution": 250},
    "sources": [
        {
            "endOffset": '{"orders": {"0": 10, "1": 5}, "@topicIds": {"orders": "x"}}',
            "latestOffset": {"orders": {"0": 30, "1": 5, "2": 3}, "@topicIds": {"orders": "x"}},
        }
    ],
}


def test_lag_is_what_waits_in_each_partition() -> None:
    progress = read_progress(REPORT)
    assert (progress.batch, progress.rows, progress.rows_per_second) == (4, 500, 2000.0)
    assert progress.lag == {"orders-0": 20, "orders-2": 3}


@pytest.mark.parametrize("latest", [None, "null"])
def test_a_repeated_batch_reports_no_latest_offset_and_so_no_lag(latest: str | None) -> None:
    assert (
        read_progress({**REPORT, "sources": [{"endOffset": '{"orders": {"0": 1}}', "latestOffset": latest}]}).lag == {}
    )


def test_status_survives_its_file_and_is_told_to_prometheus(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    pipeline = PipelineStatus(name="bronze", state="running", rows_total=7, lag_total=23, restart_count=1)
    status = ProcessStatus(process_id=1, started_ms=2, written_ms=3, state="running", pipelines=(pipeline,))
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status
    text = format_metrics(status)
    assert 'headrace_pipeline_up{pipeline="bronze"} 1\n' in text
    assert 'headrace_pipeline_lag_records{pipeline="bronze"} 23\n' in text

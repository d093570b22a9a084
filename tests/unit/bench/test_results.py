"""Medians, verdicts, pages and plots, from measurements written by hand."""

from pathlib import Path

import msgspec
import pytest

from headrace.bench.bars import judge
from headrace.bench.plot import draw
from headrace.bench.report import BEGIN_MARK, END_MARK, render, update_page
from headrace.bench.results import Failure, Machine, Measurement, Results, summarise
from headrace.bench.store import load_best, save
from headrace.bench.workloads import WORKLOADS

MACHINE = Machine(
    processor="abacus",
    cores=2,
    memory_gib=8,
    kernel="Linux",
    file_system="ext4",
    flush_ms=0.1,
    python="CPython",
    java="none",
    kafka="4",
    headrace="0",
)


def measured(rival: str, rate: float, round_index: int) -> Measurement:
    return Measurement(
        workload="w1",
        case="16 KiB batches",
        rival=rival,
        fsync="none",
        round=round_index,
        metrics={"produce_rate": rate, "produce_cpu": 2.0 if rival == "headrace" else 8.0},
    )


@pytest.fixture
def results() -> Results:
    rates = {"headrace": (90.0, 300.0, 200.0), "kafka": (100.0, 110.0, 90.0), "kafka durable": (120.0, 120.0, 120.0)}
    return Results(
        scale="quick",
        started_at="2026-01-01T00:00:00+00:00",
        machine=MACHINE,
        measurements=[
            measured(rival, rate, index) for rival, of in rates.items() for index, rate in enumerate(of, start=1)
        ],
        failures=[Failure(workload="w1", case="1 MiB batches", rival="kafka", fsync="none", reason="it | died\nlong")],
    )


def test_a_row_has_the_median_between_the_extremes(results: Results) -> None:
    spread = summarise(results.measurements)[0].spreads["produce_rate"]
    assert (spread.low, spread.median, spread.high, spread.rounds) == (90.0, 200.0, 300.0, 3)


def test_bars_compare_medians_in_the_right_direction(results: Results) -> None:
    verdicts = {
        (one.bar.metric, one.bar.rival): (one.found, one.is_met) for one in judge(summarise(results.measurements))
    }
    assert verdicts == {
        ("produce_rate", "kafka"): (2.0, True),
        ("produce_rate", "kafka durable"): (200 / 120, False),
        ("produce_cpu", "kafka"): (0.25, True),
    }


def test_the_page_shows_every_row_its_fsync_and_what_failed(results: Results) -> None:
    page = render([(WORKLOADS["w1"], results)], plot=None)
    assert "| 16 KiB batches | headrace | none | 200 (90 - 300) | 2.00 (2.00 - 2.00) |" in page
    assert "| 1 MiB batches | kafka | none | no figure: it / died |" in page


def test_the_page_keeps_what_people_wrote_around_it(results: Results, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Mine\n\nbefore\n\n{BEGIN_MARK}\nold\n{END_MARK}\n\nafter\n")
    for _ in range(2):
        update_page(page, [(WORKLOADS["w1"], results)], plot=None)
    text = page.read_text()
    assert text.startswith("# Mine\n\nbefore\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    assert text.count("## W1") == 1


def test_a_quick_look_does_not_replace_full_results(results: Results, tmp_path: Path) -> None:
    full = msgspec.structs.replace(results, scale="full")
    save(full, tmp_path)
    save(results, tmp_path)
    assert load_best(tmp_path, "w1") == full
    assert load_best(tmp_path, "w2") is None


def test_the_same_results_draw_the_same_plot(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = summarise(results.measurements)
    draw(rows, tmp_path / "one.svg")
    draw(rows, tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"Produce at full speed" in (tmp_path / "one.svg").read_bytes()


def test_what_was_published_before_stays_beside_what_is_measured_now(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    published = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"
    page.write_text(published.read_text())
    update_page(page, [], plot="benchmarks/overview.svg")
    assert sorted(page.read_text().split("\n")) == sorted(published.read_text().split("\n"))

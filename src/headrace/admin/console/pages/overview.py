"""The first page: is it well, what is it doing, what is at risk, what does it cost."""

from typing import Final

from headrace.admin.console.charts import chart
from headrace.admin.console.views import Asking, View

RANGES: Final = {"15": "15 min", "60": "1 h", "360": "6 h", "1440": "24 h"}


async def show(page: Asking) -> View:
    minutes = page.query.get("minutes", "60")
    minutes = minutes if minutes in RANGES else "60"
    found = await page.ask("ReadHistory", minutes=int(minutes), points=240)
    series = {each.name: each for each in found.series}
    to_ms = page.now_ms
    from_ms = to_ms - int(minutes) * 60_000

    def draw(title: str, *names: str, per_second: bool) -> str:
        return chart([series[name] for name in names], title=title, per_second=per_second, from_ms=from_ms, to_ms=to_ms)

    def latest(name: str) -> float:
        return next((value for value in reversed(series[name].values) if value is not None), 0.0)

    exposure = await page.ask("ListExposure", order_by="exposed_bytes desc", page_size=5)
    return View(
        "overview.html",
        title="Overview",
        ranges=RANGES,
        minutes=minutes,
        latest=latest,
        charts=[
            draw("Throughput", "bytes_in", "bytes_out", per_second=True),
            draw("Records", "records_in", "records_out", per_second=True),
            draw("Exposed: on this disk only", "exposed_bytes", per_second=False),
            draw("Latency: longest wait for the event loop", "late_ms", per_second=False),
        ],
        cluster=await page.ask("DescribeCluster"),
        storage=await page.ask("DescribeStorage"),
        pipelines=await page.ask("ListPipelines"),
        exposure=exposure,
        groups=await page.ask("ListGroups", order_by="lag desc", page_size=5),
    )

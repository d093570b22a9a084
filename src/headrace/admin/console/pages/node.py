"""What is not topics, groups or pipelines: transactions, storage, the cluster, operations."""

from urllib.parse import quote

from headrace.admin.console.charts import chart
from headrace.admin.console.views import Asking, View, go_to

_DAY_MINUTES = 1440


async def transactions(page: Asking) -> View:
    found = await page.ask("ListTransactions", open=page.query.get("open") == "on", **page.paging())
    return View("transactions.html", title="Transactions", found=found)


async def abort(page: Asking) -> View:
    done = await page.ask("AbortTransaction", transactional_id=page.names["transactional_id"])
    return go_to("transactions", done.message)


async def storage(page: Asking) -> View:
    names = "bucket_bytes,requests,request_dollars"
    found = await page.ask("ReadHistory", names=names, minutes=_DAY_MINUTES)
    to_ms = page.now_ms
    from_ms = to_ms - _DAY_MINUTES * 60_000
    size, requests, _ = found.series
    return View(
        "storage.html",
        title="Storage",
        state=await page.ask("DescribeStorage"),
        objects=await page.ask("ListObjects", **page.paging()),
        exposure=await page.ask("ListExposure", order_by="exposed_bytes desc", page_size=20),
        charts=[
            chart([size], title="In the bucket", per_second=False, from_ms=from_ms, to_ms=to_ms),
            chart([requests], title="Requests", per_second=True, from_ms=from_ms, to_ms=to_ms),
        ],
    )


async def verify(page: Asking) -> View:
    operation = await page.ask("VerifyStorage")
    return go_to(f"operations/{operation.id}", "Every live byte of the bucket is being read and checked.")


async def cluster(page: Asking) -> View:
    brokers = (await page.ask("ListBrokers")).brokers
    number = next(each.number for each in brokers if each.is_this)
    return View(
        "cluster.html",
        title="Cluster",
        cluster=await page.ask("DescribeCluster"),
        brokers=brokers,
        number=number,
        configs=(await page.ask("DescribeBrokerConfigs", broker=number)).configs,
        wanted=page.query.get("filter", ""),
    )


async def operations(page: Asking) -> View:
    return View("operations.html", title="Operations", found=await page.ask("ListOperations"))


async def operation(page: Asking) -> View:
    found = await page.ask("DescribeOperation", operation=page.names["operation"])
    topic = found.target.partition(":")[0] if found.kind == "search" else ""
    return View("operation.html", title=f"{found.kind} {found.target}", operation=found, topic=topic)


async def resume(page: Asking) -> View:
    name = page.names["operation"]
    await page.ask("ResumeOperation", operation=name)
    return go_to(f"operations/{quote(name, safe='')}", "It goes on where it was.")


async def cancel(page: Asking) -> View:
    name = page.names["operation"]
    await page.ask("CancelOperation", operation=name)
    return go_to(f"operations/{quote(name, safe='')}", "Cancelled.")

"""The workloads by name, in the order `all` runs them. Their numbers are those of the design's table.

W8 comes first: its many requests have a virtual machine compile what the others then measure.
"""

from typing import Final

from headrace.bench.workloads import coordination, idle, latency, partitions, requests, rustlog, throughput

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        requests.WORKLOAD,
        throughput.WORKLOAD,
        latency.WORKLOAD,
        coordination.WORKLOAD,
        rustlog.WORKLOAD,
        partitions.WORKLOAD,
        idle.WORKLOAD,
    )
}

"""The workloads by name, in the order `all` runs them. Their numbers are those of the design's table."""

from typing import Final

from headrace.bench.workloads import idle, latency, partitions, requests, throughput

WORKLOADS: Final = {
    workload.name: workload
    for workload in (throughput.WORKLOAD, latency.WORKLOAD, requests.WORKLOAD, partitions.WORKLOAD, idle.WORKLOAD)
}

"""The workloads by name, in the order `all` runs them. Their numbers are those of the design's table.

W8 comes first: its many requests have a virtual machine compile what the others then measure.
"""

from typing import Final

from headrace.bench.workloads import (
    catch_up,
    coordination,
    cost,
    freshness,
    idle,
    lake,
    latency,
    object_mode,
    partitions,
    requests,
    rustlog,
    tail_beside,
    throughput,
    transforms,
    uploading,
)

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        requests.WORKLOAD,
        throughput.WORKLOAD,
        latency.WORKLOAD,
        catch_up.WORKLOAD,
        tail_beside.WORKLOAD,
        coordination.WORKLOAD,
        uploading.WORKLOAD,
        object_mode.WORKLOAD,
        rustlog.WORKLOAD,
        partitions.WORKLOAD,
        cost.WORKLOAD,
        lake.WORKLOAD,
        freshness.WORKLOAD,
        idle.WORKLOAD,
        transforms.WORKLOAD,
    )
}

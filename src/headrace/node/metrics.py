"""The numbers of the pipeline beside this node, read from what its process writes. Its own file has them for other collectors too."""

from collections.abc import Callable, Iterator
from functools import partial

from headrace.pipeline.status import FAMILIES, PipelineFamily, ProcessStatus
from headrace.telemetry.metrics import Family, Metrics, Sample


def register_pipeline_metrics(metrics: Metrics, read: Callable[[], ProcessStatus | None]) -> None:
    for family in FAMILIES:
        metrics.register_family(
            Family(
                name=family.name,
                sentence=family.sentence,
                kind=family.kind,
                labels=("pipeline",),
                samples=partial(_samples, family, read),
            )
        )


def _samples(family: PipelineFamily, read: Callable[[], ProcessStatus | None]) -> Iterator[Sample]:
    status = read()
    for pipeline in status.pipelines if status is not None else ():
        yield (pipeline.name,), float(family.value(pipeline))

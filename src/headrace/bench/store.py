"""Results on disk: one JSON file per workload and scale, the newest run winning."""

from pathlib import Path
from typing import Final

import msgspec

from headrace.bench.results import Results
from headrace.bench.scale import CUSTOM, FULL, QUICK

_SCALES_BEST_FIRST: Final = (FULL.name, CUSTOM, QUICK.name)


def save(results: Results, directory: Path) -> list[Path]:
    """Write each workload's part; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys([one.workload for one in results.measurements] + [one.workload for one in results.failures])
    paths = []
    for name in names:
        part = msgspec.structs.replace(
            results,
            measurements=[one for one in results.measurements if one.workload == name],
            failures=[one for one in results.failures if one.workload == name],
        )
        path = directory / f"{name}-{results.scale}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(part)))
        paths.append(path)
    return paths


def load_best(directory: Path, workload: str) -> Results | None:
    """The workload's newest full results, or else the next best: a look never replaces a measurement."""
    for scale in _SCALES_BEST_FIRST:
        path = directory / f"{workload}-{scale}.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=Results)
    return None

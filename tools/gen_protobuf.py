"""Generate `*_pb2.py` and its typing stub for every `.proto` below src/headrace.

`outputs()` says what the files should hold and writes nothing; run as a script it writes them, or with `--check`
says which are out of date.
"""

import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


def outputs() -> dict[Path, str]:
    """Every generated file and its text."""
    protos = sorted((SOURCE / "headrace").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory)
        arguments = [
            "protoc",
            f"--proto_path={SOURCE}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={target}",
            f"--plugin=protoc-gen-mypy={Path(sys.executable).parent / 'protoc-gen-mypy'}",
            f"--mypy_out=quiet:{target}",
            *(str(proto) for proto in protos),
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed, see above")
        return dict(_generated(target))


def _generated(target: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(target.rglob("*_pb2.py*")):
        yield SOURCE / path.relative_to(target), path.read_text()


def main() -> int:
    stale = {path: text for path, text in outputs().items() if not path.exists() or path.read_text() != text}
    is_check = "--check" in sys.argv[1:]
    for path, text in stale.items():
        if not is_check:
            path.write_text(text)
        print(f"{'out of date' if is_check else 'wrote'}: {path.relative_to(ROOT)}")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

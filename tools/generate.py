"""Writes every generated file, or with --check names those that are not what their generator says.

A generator is a module `tools/gen_*.py` with `outputs() -> dict[Path, str]`: repository paths and their text.
Nothing else writes generated files, so that `make gen` is all there is to know.
"""

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    arguments = parser.parse_args()

    stale = {path: text for path, text in _all_outputs() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        name = path.relative_to(ROOT)
        if arguments.check:
            print(f"stale: {name} (run `make gen`)", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    return 1 if arguments.check and stale else 0


def _all_outputs() -> Iterator[tuple[Path, str]]:
    for source in sorted(TOOLS.glob("gen_*.py")):
        for path, text in _load(source).outputs().items():
            yield (ROOT / path).resolve(), text


def _load(source: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(source.stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[source.stem] = module  # before it runs: dataclasses look their module up
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())

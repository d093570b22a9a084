"""`headrace-python`: the same Python and the same pyspark, without compiling it first."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from headrace.pipeline.worker_python import without_archives

INSTALLED = Path(pyspark.__file__).parent.parent
SPARK_ARCHIVES = INSTALLED / "pyspark" / "python" / "lib"
MAIN = "from headrace.pipeline.worker_python import main; main()"


def test_archives_of_the_installed_pyspark_are_left_out() -> None:
    paths = ["/srv/modules", str(SPARK_ARCHIVES / "pyspark.zip"), str(SPARK_ARCHIVES / "py4j-src.zip"), "/srv/more"]
    assert without_archives(paths, installed=["/usr/lib", str(INSTALLED)]) == ["/srv/modules", "/srv/more"]


def test_another_spark_keeps_its_archives() -> None:
    paths = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-src.zip"]
    assert without_archives(paths, installed=[str(INSTALLED)]) == paths


def test_workers_import_the_compiled_pyspark() -> None:
    paths = os.pathsep.join([str(SPARK_ARCHIVES / "pyspark.zip"), "/srv/modules"])
    script = "import pyspark, sys; print(pyspark.__file__, sys.executable, sys.argv[1], '/srv/modules' in sys.path)"
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "-c", script, "argument"],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [pyspark.__file__, sys.executable, "argument", "True"]

"""Classes of a Spark session kept in an archive, so that the next JVM maps them instead of loading them: half of its start.

`python -m tests.support.spark_archive FILE` runs a little of everything and leaves FILE behind. Tests that start Spark a
hundred times make it once.
"""

import subprocess
import sys
from pathlib import Path

import msgspec
from tests.support.spark import ONE_CORE

from headrace.pipeline.session import open_session

JVM_OPTIONS = "JAVA_TOOL_OPTIONS"
"""What every JVM reads from its environment. One that the archive does not fit says so, and goes on without it."""
SECONDS_MAX = 300


def make_archive(directory: Path) -> dict[str, str]:
    """The environment in which JVMs use a new archive in `directory`."""
    path = directory / "spark.jsa"
    subprocess.run(
        [sys.executable, "-m", "tests.support.spark_archive", str(path)],
        check=True,
        capture_output=True,
        timeout=SECONDS_MAX,
    )
    assert path.exists(), "the JVM left no archive behind"
    # Silent: Spark reads what its launcher, which the archive does not fit, writes to standard output.
    return {JVM_OPTIONS: f"-XX:SharedArchiveFile={path} -Xlog:disable"}


def main() -> None:
    options = f"{ONE_CORE.conf['spark.driver.extraJavaOptions']} -XX:ArchiveClassesAtExit={sys.argv[1]}"
    conf = {**ONE_CORE.conf, "spark.driver.extraJavaOptions": options}
    spark = open_session(msgspec.structs.replace(ONE_CORE, conf=conf))
    rows = spark.range(10).mapInArrow(lambda batches: batches, "id bigint")
    rows.persist().selectExpr("to_json(struct(*)) AS text").where("length(text) > 1").groupBy("text").count().collect()
    stream = spark.readStream.format("rate").load()
    query = stream.writeStream.foreachBatch(lambda frame, batch: None).trigger(availableNow=True).start()
    query.awaitTermination(60)
    spark.stop()


if __name__ == "__main__":
    main()

"""The process that runs an administrator's queries beside the node: `python -m headrace.pipeline.sql.worker`.

It takes orders from its standard input and answers each on its standard output. Between two it keeps Spark, for some minutes. It never
outlives the node: when its input ends, because the node closed it or is gone, it kills all that it has started and itself. All its files
are in one directory, which is deleted with it.
"""

import argparse
import os
import queue
import select
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from headrace.errors import HeadraceError
from headrace.pipeline.explain import brief
from headrace.pipeline.java import require_java
from headrace.pipeline.main import add_arguments, config_of
from headrace.pipeline.session import keep_stacks_to_themselves, open_session
from headrace.pipeline.settings import PipelineConfig, SparkSettings
from headrace.pipeline.sql.messages import Answer, Answered, Column, Failed, QueryOrder, QueryRows, Refused
from headrace.pipeline.sql.permitted import LOCKED, Gatehouse, Java
from headrace.pipeline.sql.results import CELL_MAX, fit
from headrace.pipeline.sql.sessions import end_session
from headrace.pipeline.views import create_view, plain_rows

IDLE_S: Final = 300.0
"""How long Spark waits for the next query: it starts in ten seconds, and holds some hundred megabytes."""
_NICE: Final = 15
_LOOK_S: Final = 1.0
_SCRATCH_BYTES_MAX: Final = 8 * 1024**3
"""What a query may put on the disk for its joins and sorts."""
_PIECE: Final = 64 * 1024


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="headrace.pipeline.sql")
    add_arguments(parser)
    parser.add_argument("--scratch", type=Path, required=True, help="directory of this process alone, deleted with it")
    given = parser.parse_args(arguments)
    os.nice(_NICE)
    # What the JVM prints goes to the log, and not between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _move_into(given.scratch)
    orders: queue.Queue[QueryOrder] = queue.Queue(maxsize=1)
    watch = Watch(orders, given.scratch, tell=lambda answer: _tell(answers, answer))
    threading.Thread(target=watch.run, daemon=True).start()
    try:
        require_java()
        config = config_of(given)
        _serve(config, given.scratch, orders, answers)
    except HeadraceError as error:
        _tell(answers, Failed(reason=str(error)))
    except (PySparkException, Py4JError, RuntimeError) as error:
        # A JVM that does not start is a RuntimeError of pyspark's.
        _tell(answers, Failed(reason=f"Spark: {brief(error)}"))
    watch.end(status=0)


def _move_into(scratch: Path) -> None:
    """Whatever Java, Spark and its Python workers put beside themselves without being asked."""
    os.chdir(scratch)
    options = f'{os.environ.get("JDK_JAVA_OPTIONS", "")} "-Djava.io.tmpdir={scratch}"'
    os.environ.update(TMPDIR=str(scratch), SPARK_LOCAL_DIRS=str(scratch), JDK_JAVA_OPTIONS=options)


class Watch:
    """Takes orders in, and ends the process when the node is gone or the disk has enough of it."""

    def __init__(
        self, orders: "queue.Queue[QueryOrder]", scratch: Path, *, tell: Callable[[Failed], None], source: int = 0
    ) -> None:
        self._orders = orders
        self._scratch = scratch
        self._tell = tell
        self._source = source

    def run(self) -> None:
        unread = b""
        while True:
            ready, _, _ = select.select([self._source], [], [], _LOOK_S)
            if ready:
                piece = os.read(self._source, _PIECE)
                if not piece:
                    self.end(status=1)
                *lines, unread = (unread + piece).split(b"\n")
                for line in lines:
                    self._orders.put(msgspec.json.decode(line, type=QueryOrder))
            if size_below(self._scratch) > _SCRATCH_BYTES_MAX:
                self._tell(Failed(reason=f"the query wanted more than {_SCRATCH_BYTES_MAX} bytes of the disk"))
                self.end(status=1)

    def end(self, *, status: int) -> NoReturn:
        own = os.getpid()
        if os.getsid(own) == own:  # Started by hand it would take the terminal's other programs along.
            end_session(own, spared=own)
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(status)


def size_below(directory: Path) -> int:
    """Files come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(Path(folder, name)).st_size
            except OSError:
                continue
    return total


def _serve(config: PipelineConfig, scratch: Path, orders: "queue.Queue[QueryOrder]", answers: BinaryIO) -> None:
    keep_stacks_to_themselves()
    spark = open_session(confined(config.spark, scratch), application="headrace sql")
    desk = Desk(spark, config)
    while True:
        try:
            order = orders.get(timeout=IDLE_S)
        except queue.Empty:
            return
        _tell(answers, desk.answer(order))


def confined(settings: SparkSettings, scratch: Path) -> SparkSettings:
    """Spark in this process alone, whatever the pipelines use: a cluster would be out of reach for whoever cancels."""
    places = {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    conf = {**settings.conf, **LOCKED, **places, "spark.ui.enabled": "false"}
    return msgspec.structs.replace(settings, master="local[*]", remote=None, conf=conf)


class Desk:
    """Answers queries, one after the other."""

    def __init__(self, spark: SparkSession, config: PipelineConfig) -> None:
        self._spark = spark
        self._config = config
        self._gatehouse = Gatehouse(spark)

    def answer(self, order: QueryOrder) -> Answer:
        try:
            found = self._run(order)
        except HeadraceError as error:
            return Refused(reason=str(error))
        except PySparkException as error:
            return Refused(reason=brief(error))
        except Py4JJavaError as error:
            return self._judge(error.java_exception)
        return Answered(row_count=len(found.rows), result=msgspec.Raw(msgspec.json.encode(found)))

    def _judge(self, thrown: Java) -> Refused | Failed:
        """After what Spark did not foresee, having no memory or no stack left, nobody knows what is left of the session."""
        reason = brief(RuntimeError(str(thrown.toString())))
        is_foreseen = is_instance_of(self._spark.sparkContext._gateway, thrown, "org.apache.spark.SparkThrowable")
        return Refused(reason=reason) if is_foreseen else Failed(reason=f"Spark: {reason}")

    def _run(self, order: QueryOrder) -> QueryRows:
        plan = self._gatehouse.parse(order.query)
        for name in self._gatehouse.examine(plan):
            create_view(self._spark, self._config, name)
        frame = DataFrame(self._gatehouse.analyze(plan), self._spark)
        columns = [Column(name=each.name, type=each.dataType.simpleString()) for each in frame.schema.fields]
        shown = _shortened(frame)
        rows = plain_rows(shown.limit(order.rows_max + 1).collect(), shown.schema)
        return fit(columns, (list(row.values()) for row in rows), order)


def _shortened(frame: DataFrame) -> DataFrame:
    """Columns by number, for two may have one name; of long texts only what is shown leaves Spark, and one character more."""
    numbered = frame.toDF(*(str(number) for number in range(len(frame.columns))))
    return numbered.select(
        *(
            F.substring(each.name, 1, CELL_MAX + 1).alias(each.name)
            if isinstance(each.dataType, StringType | BinaryType)
            else F.col(each.name)
            for each in numbered.schema.fields
        )
    )


def _tell(answers: BinaryIO, answer: Answer) -> None:
    answers.write(msgspec.json.encode(answer) + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()

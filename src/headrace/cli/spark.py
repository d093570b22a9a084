"""A Spark session for one command: said before it starts, because it takes a while, and stopped in the end.

What Spark raises comes out as ours, with the line that explains it instead of two stacks.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from headrace.cli.output import note
from headrace.errors import Invalid, Unavailable
from headrace.pipeline.explain import brief
from headrace.pipeline.java import require_java
from headrace.pipeline.session import keep_stacks_to_themselves, open_session
from headrace.pipeline.settings import SparkSettings


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    require_java()
    keep_stacks_to_themselves()
    note("starting Spark (3 to 15 seconds)")
    began = time.monotonic()
    spark = open_session(settings)
    note(f"Spark is ready after {time.monotonic() - began:.1f} s")
    try:
        yield spark
    except (AnalysisException, ParseException) as error:
        raise Invalid(brief(error)) from error
    except (PySparkException, Py4JError) as error:
        raise Unavailable(brief(error)) from error
    finally:
        spark.stop()

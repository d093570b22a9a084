"""What makes `format("headrace")` known to Spark: it looks for `DefaultSource` in modules named `pyspark_*`."""

from headrace.pipeline.source.spark import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]

"""`format("headrace")` with the option `table`: rows of a table for Spark, as a batch and as a stream.

`options` checks what is asked for, `planning` decides what is read, `readers` speaks Spark's language.
"""

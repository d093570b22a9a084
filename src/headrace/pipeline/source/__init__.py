"""The source `headrace` for Spark: what to read, where it lies, and reading it.

`options` says what the user asked for, `log` what there is, `planning` which bytes that makes, `reading` turns those into
Arrow on an executor. All of that is plain Python; `spark` holds the adapters that Spark calls.
"""

"""Tables that pipelines write: one small port, Iceberg behind it.

`port` says what a table can do, `coverage` which offsets a table already holds, `committing` how a batch lands exactly
once. `iceberg`, `writer` and `maintenance` fulfil the port with pyiceberg; only `writer` touches its undocumented classes.
"""

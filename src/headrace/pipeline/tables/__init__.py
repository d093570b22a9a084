"""Tables that pipelines write: one small port, Iceberg behind it.

`port` says what a table can do, `coverage` which offsets a table already holds, `committing` how a batch lands exactly
once. `iceberg` fulfils the port with pyiceberg: `writer` makes files, `scanning` reads them, `rewrites` makes others of them,
`evolution` changes columns, `maintenance` forgets what is old. These five and `projection` use its undocumented classes.
"""

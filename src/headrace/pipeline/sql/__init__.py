"""SQL for an administrator: a process beside the node that runs one query at a time and lets none reach outside.

`worker` is the process, `permitted` says what a query may be made of, `results` keeps its rows within bounds, `messages` is what
the node and the process say to each other, `sessions` ends all that the process has started.
"""

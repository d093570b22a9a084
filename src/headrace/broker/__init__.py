"""The verbs every door calls: produce, fetch, topics, groups, offsets, transactions."""

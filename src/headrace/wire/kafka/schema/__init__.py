"""What Kafka's messages look like: tables of facts, read by the generator and the tests only.

Nothing at run time imports this package; `tools/gen_kafka_messages.py` turns it into `messages/`.
"""

from headrace.wire.kafka.schema import cluster, data, groups, internal, security, topics, transactions
from headrace.wire.kafka.schema.parse import MessageSchema, parse_table


def all_messages() -> list[MessageSchema]:
    """Every message this codec speaks, in the order of the tables."""
    areas = (data, cluster, topics, groups, transactions, security, internal)
    return [message for area in areas for message in parse_table(area.TABLE)]

"""Every route of the administrative API, once: REST, OpenAPI, the reference page, the console and rights come from here.

A route without a right cannot be written down. A request is one struct: names in the path fill fields of the same name, `dry_run`
comes from the query, and everything else from the query of a GET or DELETE and from the body of a POST or PATCH.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from headrace.admin.api import (
    cluster,
    configs,
    groups,
    history,
    logins,
    pipelines,
    querying,
    quotas,
    records,
    running,
    searching,
    security,
    storage,
    topics,
    tracing,
    transactions,
    wasm,
)
from headrace.admin.api.calls import Call, PipelinesState, PipelineState, StorageState
from headrace.admin.api.operations import OperationView
from headrace.admin.rights import Operation, Resource, Right
from headrace.admin.session import Health
from headrace.broker.access.intents import Verdict

PREFIX: Final = "/api/v1"
_NAME_IN_PATH: Final = re.compile(r"{(\w+)}")

Handler = Callable[[Any, Call], Awaitable[Any]]  # Any: each handler has request and response types of its own


class Route(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """What gRPC and OpenAPI call it."""
    method: str
    path: str
    """Below the prefix."""
    right: Right
    handler: Handler
    request: Any  # Any: a struct type
    response: Any  # Any: a struct type
    sentence: str
    example: dict[str, Any] = {}  # Any: a request as JSON has it

    @property
    def is_change(self) -> bool:
        return self.method != "GET"

    @property
    def names_in_path(self) -> list[str]:
        return _NAME_IN_PATH.findall(self.path)

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PATCH")


def _cluster(operation: Operation) -> Right:
    return Right(operation, Resource.CLUSTER)


def _topic(operation: Operation, field: str | None = "name") -> Right:
    return Right(operation, Resource.TOPIC, field)


def _group(operation: Operation, field: str | None = "group") -> Right:
    return Right(operation, Resource.GROUP, field)


def _route(
    method: str,
    path: str,
    right: Right,
    handler: Handler,
    *,
    gives: Any,  # Any: a struct type
    sentence: str,
    example: dict[str, Any] | None = None,  # Any: as above
) -> Route:
    """The name and the request's type are those of the handler."""
    name = "".join(word.capitalize() for word in handler.__name__.split("_"))
    return Route(
        name=name,
        method=method,
        path=path,
        right=right,
        handler=handler,
        request=handler.__annotations__["request"],
        response=gives,
        sentence=sentence,
        example=example or {},
    )


_DESCRIBE: Final = Operation.DESCRIBE
_ID: Final = "transactional_id"

ROUTES: Final[tuple[Route, ...]] = (
    # -- cluster
    _route("GET", "/cluster", _cluster(_DESCRIBE), cluster.describe_cluster, gives=cluster.ClusterDetail,
           sentence="The cluster: who controls it, and how much there is."),
    _route("POST", "/cluster/rebalance", _cluster(Operation.ALTER), cluster.trigger_rebalance, gives=cluster.ClusterDetail,
           sentence="Spread partitions over brokers. Not available yet."),
    _route("GET", "/health", _cluster(_DESCRIBE), cluster.describe_health, gives=Health,
           sentence="Whether the node is ready, its doors, and what an operator should look at."),
    _route("GET", "/brokers", _cluster(_DESCRIBE), cluster.list_brokers, gives=cluster.BrokerList,
           sentence="Brokers, where they listen, and whether they are online."),
    _route("GET", "/brokers/{broker}/configs", _cluster(Operation.DESCRIBE_CONFIGS), configs.describe_broker_configs,
           gives=configs.BrokerConfigs, sentence="A broker's settings; secrets are left out."),
    _route("POST", "/brokers/{broker}/drain", _cluster(Operation.ALTER), cluster.drain_broker, gives=cluster.ClusterDetail,
           sentence="Move everything off a broker. Not available yet."),
    # -- topics
    _route("GET", "/topics", _topic(_DESCRIBE, None), topics.list_topics, gives=topics.TopicList,
           sentence="Topics with their sizes."),
    _route("POST", "/topics", _topic(Operation.CREATE), topics.create_topic, gives=topics.TopicDetail,
           sentence="Create a topic.",
           example={"name": "orders", "partitions": 3, "config": {"retention.ms": "86400000"}}),
    _route("GET", "/topics/{name}", _topic(_DESCRIBE), topics.describe_topic, gives=topics.TopicDetail,
           sentence="One topic."),
    _route("DELETE", "/topics/{name}", _topic(Operation.DELETE), topics.delete_topic, gives=topics.Done,
           sentence="Delete a topic, its records and the offsets committed for it."),
    _route("GET", "/topics/{name}/configs", _topic(Operation.DESCRIBE_CONFIGS), configs.describe_topic_configs,
           gives=configs.TopicConfigs, sentence="Every config with its default, its source and a sentence."),
    _route("PATCH", "/topics/{name}/configs", _topic(Operation.ALTER_CONFIGS), configs.update_topic_config,
           gives=configs.TopicConfigs, sentence="Set or unset configs; in force at once.",
           example={"set": {"retention.ms": "3600000"}, "unset": ["max.message.bytes"]}),
    _route("GET", "/topics/{name}/partitions", _topic(_DESCRIBE), topics.list_partitions, gives=topics.PartitionList,
           sentence="Partitions with their offsets and sizes."),
    _route("POST", "/topics/{name}/partitions", _topic(Operation.ALTER), topics.grow_topic, gives=topics.TopicDetail,
           sentence="Add partitions; topics never shrink.", example={"count": 6}),
    _route("GET", "/topics/{name}/partitions/{partition}/producers", _topic(Operation.READ), topics.list_producers,
           gives=topics.ProducerList, sentence="Who writes to a partition with idempotence or transactions."),
    _route("POST", "/topics/{name}/partitions/{partition}/delete-records", _topic(Operation.DELETE), topics.delete_records,
           gives=topics.RecordsDeleted, sentence="Delete records below an offset, for good.", example={"before": 100}),
    # -- records
    _route("GET", "/topics/{name}/records", _topic(Operation.READ), records.read_records, gives=records.RecordList,
           sentence="Read records: newest, oldest, from an offset or a time, filtered."),
    _route("POST", "/topics/{name}/records", _topic(Operation.WRITE), records.produce_record, gives=records.Produced,
           sentence="Produce one record; answered when it is durable.",
           example={"key": {"data": "alice"}, "value": {"data": "coffee"}}),
    _route("GET", "/topics/{name}/partitions/{partition}/records/{offset}", _topic(Operation.READ), records.describe_record,
           gives=records.RecordView, sentence="One record, whole."),
    _route("POST", "/topics/{name}/search", _topic(Operation.READ), searching.search_topic, gives=OperationView,
           sentence="Look through every record of a topic; an operation whose result is the newest matches and their count.",
           example={"filter": 'json.user == "alice"'}),
    _route("GET", "/topics/{name}/partitions/{partition}/records/{offset}/trace", _topic(Operation.READ), tracing.trace_record,
           gives=tracing.Trace, sentence="One record from its batch to the WAL, its object, pipelines and groups."),
    _route("GET", "/topics/{name}/segments", _topic(_DESCRIBE), storage.list_segments, gives=storage.SegmentList,
           sentence="Which objects hold which offsets."),
    # -- groups
    _route("GET", "/groups", _group(_DESCRIBE, None), groups.list_groups, gives=groups.GroupList,
           sentence="Consumer groups with their lag."),
    _route("GET", "/groups/{group}", _group(_DESCRIBE), groups.describe_group, gives=groups.GroupDetail,
           sentence="Members, and the lag of every partition in records and in time."),
    _route("DELETE", "/groups/{group}", _group(Operation.DELETE), groups.delete_group, gives=topics.Done,
           sentence="Delete a group without members, and its offsets."),
    _route("POST", "/groups/{group}/reset", _group(Operation.READ), groups.reset_offset, gives=groups.ResetPlan,
           sentence="Move the offsets of a group without members; `dry_run` shows where to.",
           example={"target": "earliest", "topics": ["orders"]}),
    _route("DELETE", "/groups/{group}/offsets/{topic}/{partition}", _group(Operation.DELETE), groups.delete_offset,
           gives=topics.Done, sentence="Forget one committed offset."),
    # -- transactions
    _route("GET", "/transactions", Right(_DESCRIBE, Resource.TRANSACTIONAL_ID), transactions.list_transactions,
           gives=transactions.TransactionList, sentence="Transactional ids and the state of their last transaction."),
    _route("GET", "/transactions/{transactional_id}", Right(_DESCRIBE, Resource.TRANSACTIONAL_ID, _ID),
           transactions.describe_transaction, gives=transactions.TransactionRow, sentence="One transactional id."),
    _route("POST", "/transactions/{transactional_id}/abort", Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, _ID),
           transactions.abort_transaction, gives=topics.Done,
           sentence="Abort the open transaction of an id and fence its producer."),
    # -- storage
    _route("GET", "/tier", _cluster(_DESCRIBE), storage.describe_storage, gives=StorageState,
           sentence="The object store: what it holds, what was asked of it, what that costs."),
    _route("GET", "/tier/objects", _cluster(_DESCRIBE), storage.list_objects, gives=storage.ObjectList,
           sentence="Objects that hold records."),
    _route("GET", "/tier/exposure", _topic(_DESCRIBE, None), storage.list_exposure, gives=storage.ExposureList,
           sentence="Records that only this disk has."),
    _route("POST", "/tier/verify", _cluster(Operation.ALTER), storage.verify_storage, gives=OperationView,
           sentence="Read every live byte of the bucket and check it; an operation."),
    # -- pipelines
    _route("GET", "/pipelines", _cluster(_DESCRIBE), pipelines.list_pipelines, gives=PipelinesState,
           sentence="Pipelines beside this node: state, lag, batches."),
    _route("GET", "/pipelines/{pipeline}", _cluster(_DESCRIBE), pipelines.describe_pipeline, gives=PipelineState,
           sentence="One pipeline."),
    _route("GET", "/pipelines/{pipeline}/tables", _cluster(_DESCRIBE), pipelines.describe_tables,
           gives=pipelines.PipelineTables, sentence="Its tables: rows, freshness, commits, dead letters with reasons; takes a second or two."),
    _route("POST", "/pipelines/{pipeline}/replay", _cluster(Operation.ALTER), pipelines.replay_dead_letters,
           gives=OperationView, sentence="Judge dead letters again, after the schema was fixed; an operation."),
    _route("POST", "/pipelines/{pipeline}/backfill", _cluster(Operation.ALTER), pipelines.backfill_pipeline,
           gives=OperationView, sentence="Land a range of the log that the table does not hold yet; an operation.",
           example={"from_ms": 1767225600000}),
    _route("POST", "/pipelines/start", _cluster(Operation.ALTER), pipelines.start_pipelines, gives=topics.Done,
           sentence="Start the pipeline process beside this node."),
    _route("POST", "/pipelines/stop", _cluster(Operation.ALTER), pipelines.stop_pipelines, gives=topics.Done,
           sentence="Stop it, once the batches that run have landed."),
    _route("POST", "/sql", _cluster(Operation.ALTER), querying.run_sql, gives=OperationView,
           sentence="Query topics and tables with SQL; an operation whose result is columns, rows as text, and what was cut.",
           example={"query": "select partition, count(*) from `topic.orders` group by all"}),
    _route("GET", "/metrics/history", _cluster(_DESCRIBE), history.read_history, gives=history.HistoryList,
           sentence="The last day of throughput, exposure, lateness and cost, for charts."),
    # -- security
    _route("GET", "/users", _cluster(_DESCRIBE), security.list_users, gives=security.UserList,
           sentence="Users, and how they can log in."),
    _route("POST", "/users", _cluster(Operation.ALTER), security.create_user, gives=topics.Done,
           sentence="Make a user with a password.", example={"user": "alice", "password": "a long one"}),
    _route("GET", "/users/{user}", _cluster(_DESCRIBE), security.describe_user, gives=security.UserDetail,
           sentence="One user, and the access rules that name them."),
    _route("DELETE", "/users/{user}", _cluster(Operation.ALTER), security.delete_user, gives=topics.Done,
           sentence="Delete a user; their connections are closed, access rules stay."),
    _route("POST", "/users/{user}/password", _cluster(Operation.ALTER), security.set_password, gives=topics.Done,
           sentence="Set another password; connections that used the old one are closed.",
           example={"password": "a longer one"}),
    _route("GET", "/users/{user}/tokens", _cluster(_DESCRIBE), logins.list_tokens, gives=logins.TokenList,
           sentence="Tokens of a user, without what makes them good."),
    _route("POST", "/users/{user}/tokens", _cluster(Operation.ALTER), logins.create_token, gives=logins.TokenMade,
           sentence="Make a token for a program of this user; it is shown once.", example={"days": 90, "note": "backup"}),
    _route("DELETE", "/users/{user}/tokens/{token}", _cluster(Operation.ALTER), logins.revoke_token, gives=topics.Done,
           sentence="Revoke a token; it opens nothing any more, on any broker within a second."),
    _route("GET", "/sessions", _cluster(_DESCRIBE), logins.list_sessions, gives=logins.SessionList,
           sentence="Who is logged in to this broker's console."),
    _route("DELETE", "/sessions/{session}", _cluster(Operation.ALTER), logins.end_session, gives=topics.Done,
           sentence="End a session; who has it has to log in again."),
    _route("GET", "/acls", _cluster(_DESCRIBE), security.list_acls, gives=security.AclList,
           sentence="Access rules, all or those that concern somebody or something."),
    _route("POST", "/acls", _cluster(Operation.ALTER), security.create_acl, gives=security.AclChanged,
           sentence="Allow or deny somebody something; in force within a second, on open connections too.",
           example={"principal": "alice", "operation": "read", "name": "orders-", "pattern": "prefixed"}),
    _route("DELETE", "/acls", _cluster(Operation.ALTER), security.delete_acl, gives=security.AclChanged,
           sentence="Take one access rule back."),
    _route("GET", "/acls/check", _cluster(_DESCRIBE), security.check_access, gives=Verdict,
           sentence="Whether somebody may do something, and why."),
    _route("GET", "/quotas", _cluster(Operation.DESCRIBE_CONFIGS), quotas.list_quotas, gives=quotas.QuotaList,
           sentence="How much users, client ids and addresses may do in a second."),
    _route("POST", "/quotas", _cluster(Operation.ALTER_CONFIGS), quotas.set_quota, gives=quotas.QuotaChanged,
           sentence="Limit a user, a client id, both, or an address; in force at once.",
           example={"user": "alice", "produce_bytes": 1000000}),
    _route("DELETE", "/quotas", _cluster(Operation.ALTER_CONFIGS), quotas.delete_quota, gives=quotas.QuotaChanged,
           sentence="Take all limits of somebody back."),
    # -- wasm
    _route("GET", "/wasm/modules", _cluster(_DESCRIBE), wasm.list_wasm_modules, gives=wasm.ModuleList,
           sentence="Wasm modules, every version, and the topics that have them."),
    _route("POST", "/wasm/modules", _cluster(Operation.ALTER), wasm.upload_wasm_module, gives=wasm.ModuleUploaded,
           sentence="Upload a module: it is compiled, checked and kept as the next version of its name.",
           example={"name": "scrub", "content": "AGFzbQEAAAA="}),
    _route("GET", "/wasm/modules/{module}", _cluster(_DESCRIBE), wasm.describe_wasm_module, gives=wasm.ModuleDetail,
           sentence="One module; its bytes too where they are asked for."),
    _route("DELETE", "/wasm/modules/{module}", _cluster(Operation.ALTER), wasm.remove_wasm_module, gives=topics.Done,
           sentence="Remove a module that no topic has."),
    _route("POST", "/topics/{name}/wasm", _topic(Operation.ALTER_CONFIGS), wasm.assign_wasm_to_topic, gives=wasm.Assigned,
           sentence="Give a topic a module, another one, or none; in force for the next batch.",
           example={"module": "scrub_v1", "dead_letter_topic": "orders-dead"}),
    # -- operations
    _route("GET", "/operations", _cluster(_DESCRIBE), running.list_operations, gives=running.OperationList,
           sentence="Long work: what runs, and what has run since the node started."),
    _route("GET", "/operations/{operation}", _cluster(_DESCRIBE), running.describe_operation, gives=OperationView,
           sentence="One operation with its progress and its result."),
    _route("POST", "/operations/{operation}/cancel", _cluster(Operation.ALTER), running.cancel_operation,
           gives=OperationView, sentence="Cancel an operation; answered when it has ended."),
    _route("POST", "/operations/{operation}/resume", _cluster(Operation.ALTER), running.resume_operation,
           gives=OperationView, sentence="Let a cancelled search go on where it was."),
)  # fmt: skip

BY_NAME: Final = {route.name: route for route in ROUTES}

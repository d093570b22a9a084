"""What a query may be made of. Fails closed: what is not named here is refused, also what a later Spark brings.

Spark SQL can read any file, run programs, call Java by name and change its own settings. So a query is parsed by Spark's own parser,
and every node of what comes out is looked at: its class must be one of those below, a relation must be one of our views, a function one
of those that compute something from their arguments and nothing else. All other functions are taken out of the session as well, and what
the analyzer makes of the query is looked at once more. Only the plan that was looked at is run; the text is not parsed again.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from py4j.java_gateway import is_instance_of
from pyspark.sql import SparkSession

from headrace.errors import Invalid, NotFound, TooLarge

LOCKED: Final = {
    "spark.sql.runSQLOnFiles": "false",
    # ${env:...} and ${system:...} in a query would be replaced by what they name, before it is parsed.
    "spark.sql.variable.substitute": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # The parser would compute what stands in VALUES before anybody has looked at it.
    "spark.sql.parser.eagerEvalOfUnresolvedInlineTable": "false",
}
"""Settings of the session; they win over those of the pipeline's configuration."""

_PLANS: Final = """
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit Offset OneRowRelation Pivot
    Project Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith WithWindowDefinition
"""
_EXPRESSIONS: Final = """
    Add AggregateExpression Alias And AnyValue AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce
    Collate Concat CreateNamedStruct Cube CurrentDate CurrentRow$ CurrentTime CurrentTimestamp Divide EqualNullSafe EqualTo Exists
    First GreaterThan GreaterThanOrEqual GroupingSets ILike In InSubquery IntegralDivide IsNotNull IsNull LambdaFunction Last
    LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny ListQuery Literal Lower MultiAlias Multiply
    NamedArgumentExpression Not NotLikeAll NotLikeAny Or Overlay PipeExpression PipeOperator RLike Remainder Rollup ScalarSubquery
    SemiStructuredExtract ShiftLeft ShiftRight ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim
    StringTrimLeft StringTrimRight Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$
    UnboundedPreceding$ UnresolvedAlias UnresolvedAttribute UnresolvedCollation UnresolvedExtractValue UnresolvedFunction
    UnresolvedGenerator UnresolvedNamedLambdaVariable UnresolvedOrdinal UnresolvedPipeAggregateOrdinal UnresolvedRegex
    UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedWindowExpression UnspecifiedFrame$ WindowExpression WindowSpecDefinition
"""
PARSED: Final = frozenset((_PLANS + _EXPRESSIONS).split())
"""Classes of Spark's that a parsed query may have. None of them reads or does anything by itself."""

SOURCES: Final = frozenset(
    {
        "CTERelationRef",
        "DataSourceV2Relation",
        "LocalRelation",
        "LogicalRDD",
        "OneRowRelation",
        "Range",
        "UnionLoopRef",
    }
)
"""Classes that rows may come from, once names have been looked up: our own source, `range`, and what is written out."""
_OF_THIS_MACHINE: Final = frozenset({"CurrentUser", "CurrentCatalog", "CurrentDatabase", "CurrentPath"})
"""Spark takes `select current_user` for a call where there is no such column."""

_GROUPS: Final = """
    agg_funcs array_funcs bitwise_funcs collection_funcs conditional_funcs conversion_funcs csv_funcs datetime_funcs generator_funcs
    hash_funcs json_funcs lambda_funcs map_funcs math_funcs predicate_funcs sketch_funcs string_funcs struct_funcs url_funcs
    variant_funcs vector_funcs window_funcs
"""
_ALLOWED_GROUPS: Final = frozenset(_GROUPS.split())
"""Groups of Spark's functions that compute something from their arguments. Not among them: avro_funcs and protobuf_funcs (which read files),
xml_funcs (whose parser follows references), misc_funcs (reflection, file names, the session's user)."""
_OF_MIXED_GROUPS: Final = frozenset({"monotonically_increasing_id", "range", "typeof", "uuid"})
_OF_NO_USE: Final = frozenset({"collations", "sql_keywords"})
"""Functions that Spark counts among the generators."""

_VIEW: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*\.[A-Za-z0-9_.\-]+")
_NODES_MAX: Final = 5_000
_TREE: Final = "org.apache.spark.sql.catalyst.trees.TreeNode"
_ITERABLE: Final = "scala.collection.Iterable"
_PRODUCT: Final = "scala.Product"

Java: TypeAlias = Any  # Any: an object of the JVM


class Node(NamedTuple):
    """A plan or an expression inside a query."""

    kind: str
    """Its class, without the package."""
    java: Java


class Gatehouse:
    """The checks of one session, whose functions it has thinned out."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = spark.sparkContext._gateway
        self._sql = spark._jvm.org.apache.spark.sql.classic
        self._session = spark._jsparkSession
        state = self._session.sessionState()
        self._parser = state.sqlParser()
        self._kinds: dict[str, str] = {}
        self._functions = _thin_out(state.functionRegistry())
        self._table_functions = _thin_out(state.tableFunctionRegistry())

    def parse(self, query: str) -> Java:
        # The parser goes by the settings of whichever session is active.
        self._sql.SparkSession.setActiveSession(self._session)
        return self._parser.parsePlan(query)

    def examine(self, plan: Java) -> list[str]:
        """The views that a parsed query reads. `Invalid` for one that does anything else than read them."""
        nodes = list(self._nodes(plan))
        for node in nodes:
            if node.kind not in PARSED:
                raise Invalid(f"a query can only read topics and tables: {node.kind} is not allowed")
            self._check_names(node)
        withs = [node.java for node in nodes if node.kind == "UnresolvedWith"]
        own = {str(each.productElement(0)).lower() for java in withs for each in _each(java.cteRelations())}
        named = {_relation(node.java) for node in nodes if node.kind == "UnresolvedRelation"}
        views = sorted(name for name in named if name.lower() not in own)
        for name in views:
            if not _VIEW.fullmatch(name):
                raise NotFound(
                    f"there is no {name[:100]}: a topic is `topic.orders`, a table `silver.orders`, in backticks"
                )
        return views

    def analyze(self, plan: Java) -> Java:
        """The rows of an examined query, as a Dataset of Java's, once its names are looked up."""
        found = self._sql.Dataset.ofRows(self._session, plan)
        for node in self._nodes(found.queryExecution().analyzed()):
            is_source = is_instance_of(self._gateway, node.java, "org.apache.spark.sql.catalyst.plans.logical.LeafNode")
            if node.kind in _OF_THIS_MACHINE or (is_source and node.kind not in SOURCES):
                raise Invalid(f"a query can only read topics and tables: {node.kind} is not allowed")
        return found

    def _check_names(self, node: Node) -> None:
        match node.kind:
            case "UnresolvedFunction":
                _require(list(_each(node.java.nameParts())), self._functions)
            case "UnresolvedTableValuedFunction":
                _require(list(_each(node.java.name())), self._table_functions)
            case "UnresolvedGenerator":
                _require(node.java.name().unquotedString().split("."), self._functions)
            case "UnresolvedRelation" if not node.java.options().isEmpty() or node.java.isStreaming():
                raise Invalid("a view takes no options, and is read as it stands now")

    def _nodes(self, root: Java) -> Iterator[Node]:
        """Every plan and every expression, wherever in another it is kept: in lists, pairs and maps too, which Spark's own way
        through a tree passes over (windows that have a name, for one)."""
        waiting, count = [root], 0
        while waiting:
            java = waiting.pop()
            if not hasattr(java, "getClass"):
                continue  # Text and numbers are Python's already.
            name = java.getClass().getName()
            kind = self._kind_of(name, java)
            if kind == _TREE:
                count += 1
                if count > _NODES_MAX:
                    raise TooLarge(f"a query of more than {_NODES_MAX} parts")
                yield Node(name.rpartition(".")[2], java)
            waiting += _inside(java, kind)

    def _kind_of(self, name: str, java: Java) -> str:
        if name not in self._kinds:
            kinds = (_TREE, _ITERABLE, _PRODUCT)
            self._kinds[name] = next((each for each in kinds if is_instance_of(self._gateway, java, each)), "")
        return self._kinds[name]


def _inside(java: Java, kind: str) -> list[Java]:
    if kind == _ITERABLE:
        return list(_each(java))
    return [java.productElement(place) for place in range(java.productArity())] if kind else []


def _each(iterable: Java) -> Iterator[Java]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _relation(java: Java) -> str:
    parts = list(_each(java.multipartIdentifier()))
    if len(parts) > 1:
        raise NotFound(f"there is no {'.'.join(parts)[:100]}: a name with a dot stands in backticks, `topic.orders`")
    return str(parts[0])


def _require(parts: list[str], known: frozenset[str]) -> None:
    if len(parts) != 1 or parts[0].lower() not in known:
        raise Invalid(f"the function {'.'.join(parts)[:100]} is not there, or not allowed")


def _thin_out(registry: Java) -> frozenset[str]:
    """Take every function out that is not allowed; the names of the others."""
    kept = set()
    for identifier in list(_each(registry.listFunction())):
        name = identifier.funcName()
        group = registry.lookupFunction(identifier).get().getGroup()
        if (group in _ALLOWED_GROUPS or name in _OF_MIXED_GROUPS) and name not in _OF_NO_USE:
            kept.add(name.lower())
        else:
            registry.dropFunction(identifier)
    return frozenset(kept)

"""Our errors in Kafka's numbers. The nearest mapped ancestor wins; what nobody foresaw is UNKNOWN_SERVER_ERROR."""

from collections.abc import Mapping
from typing import Final

from headrace import errors
from headrace.doors.error_maps import nearest
from headrace.wire.kafka.error_codes import ErrorCode

_CODES: Final[Mapping[type[BaseException], ErrorCode]] = {
    BaseException: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.Rejected: ErrorCode.INVALID_REQUEST,
    errors.Invalid: ErrorCode.INVALID_REQUEST,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.InvalidRecords: ErrorCode.INVALID_RECORD,
    errors.TooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.UnsupportedOperation: ErrorCode.UNSUPPORTED_VERSION,
    errors.TopicNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicIdNotFound: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.PartitionNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.ResourceNotFound: ErrorCode.RESOURCE_NOT_FOUND,
    errors.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.TransactionNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.Conflict: ErrorCode.INVALID_REQUEST,
    errors.AlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.ResourceExists: ErrorCode.DUPLICATE_RESOURCE,
    errors.NotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    errors.TransactionNotOpen: ErrorCode.INVALID_TXN_STATE,
    errors.AgainstPolicy: ErrorCode.POLICY_VIOLATION,
    errors.StaleEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.Denied: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.TopicDenied: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.Unauthenticated: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.TransactionDenied: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.Unavailable: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.NotReady: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.Overloaded: ErrorCode.REQUEST_TIMED_OUT,
    errors.TimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.UnknownEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.Concurrent: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.Corrupted: ErrorCode.KAFKA_STORAGE_ERROR,
    # Java's consumer raises this one, and librdkafka hands it to the application. Both retry KAFKA_STORAGE_ERROR without a
    # word, and Java only logs UNKNOWN_SERVER_ERROR: a reader would stand still and nobody would know why.
    errors.DamagedRecords: ErrorCode.CORRUPT_MESSAGE,
    errors.Fault: ErrorCode.KAFKA_STORAGE_ERROR,
}


def code_of(error: BaseException) -> ErrorCode:
    return nearest(_CODES, error)

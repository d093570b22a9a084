"""What groups and coordinators write inside opaque bytes and internal topics; the version travels in front.

The grammar of these tables is in `parse.py`.
"""

TABLE = """\
ConsumerProtocolSubscription  versions=0-3
  topics                                     []string
  user_data                                  bytes                               nullable
  owned_partitions                           []TopicPartition             1+
    topic                                    string
    partitions                               []int32
  generation_id                              int32                        2+     default=-1
  rack_id                                    string                       3+     nullable

ConsumerProtocolAssignment  versions=0-3
  assigned_partitions                        []TopicPartition
    topic                                    string
    partitions                               []int32
  user_data                                  bytes                               nullable

OffsetCommitKey  versions=0-1
  group                                      string
  topic                                      string
  partition                                  int32

OffsetCommitValue  versions=0-4  flexible=4
  offset                                     int64
  leader_epoch                               int32                        3+     default=-1
  metadata                                   string
  commit_timestamp                           int64
  expire_timestamp                           int64                        1      default=-1
  topic_id                                   uuid                         4+     tag=0

GroupMetadataKey  versions=2-2
  group                                      string

GroupMetadataValue  versions=0-4  flexible=4
  protocol_type                              string
  generation                                 int32
  protocol                                   string                              nullable
  leader                                     string                              nullable
  current_state_timestamp                    int64                        2+     default=-1
  members                                    []MemberMetadata
    member_id                                string
    group_instance_id                        string                       3+     nullable
    client_id                                string
    client_host                              string
    rebalance_timeout                        int32                        1+
    session_timeout                          int32
    subscription                             bytes
    assignment                               bytes

TransactionLogKey  versions=0-0
  transactional_id                           string

TransactionLogValue  versions=0-1  flexible=1
  producer_id                                int64
  previous_producer_id                       int64                        1+     tag=0 default=-1
  next_producer_id                           int64                        1+     tag=1 default=-1
  producer_epoch                             int16
  next_producer_epoch                        int16                        1+     tag=3 default=-1
  transaction_timeout_ms                     int32
  transaction_status                         int8
  transaction_partitions                     []PartitionsSchema                  nullable
    topic                                    string
    partition_ids                            []int32
  transaction_last_update_timestamp_ms       int64
  transaction_start_timestamp_ms             int64
  client_transaction_version                 int16                        1+     tag=2
"""

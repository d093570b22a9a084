"""Consumer groups, classic and next generation, and their committed offsets.

The grammar of these tables is in `parse.py`.
"""

TABLE = """\
OffsetCommitRequest  key=8  versions=2-10  flexible=8
  group_id                                   string
  generation_id_or_member_epoch              int32                               default=-1
  member_id                                  string
  group_instance_id                          string                       7+     nullable
  retention_time_ms                          int64                        2-4    default=-1
  topics                                     []OffsetCommitRequestTopic
    name                                     string                       2-9
    topic_id                                 uuid                         10+
    partitions                               []OffsetCommitRequestPartition
      partition_index                        int32
      committed_offset                       int64
      committed_leader_epoch                 int32                        6+     default=-1
      committed_metadata                     string                              nullable

OffsetCommitResponse  key=8  versions=2-10  flexible=8
  throttle_time_ms                           int32                        3+
  topics                                     []OffsetCommitResponseTopic
    name                                     string                       2-9
    topic_id                                 uuid                         10+
    partitions                               []OffsetCommitResponsePartition
      partition_index                        int32
      error_code                             int16

OffsetFetchRequest  key=9  versions=1-10  flexible=6
  group_id                                   string                       1-7
  topics                                     []OffsetFetchRequestTopic    1-7    nullable=2+
    name                                     string
    partition_indexes                        []int32
  groups                                     []OffsetFetchRequestGroup    8+
    group_id                                 string
    member_id                                string                       9+     nullable
    member_epoch                             int32                        9+     default=-1
    topics                                   []OffsetFetchRequestTopics          nullable
      name                                   string                       8-9
      topic_id                               uuid                         10+
      partition_indexes                      []int32
  require_stable                             bool                         7+

OffsetFetchResponse  key=9  versions=1-10  flexible=6
  throttle_time_ms                           int32                        3+
  topics                                     []OffsetFetchResponseTopic   1-7
    name                                     string
    partitions                               []OffsetFetchResponsePartition
      partition_index                        int32
      committed_offset                       int64
      committed_leader_epoch                 int32                        5+     default=-1
      metadata                               string                              nullable
      error_code                             int16
  error_code                                 int16                        2-7
  groups                                     []OffsetFetchResponseGroup   8+
    group_id                                 string
    topics                                   []OffsetFetchResponseTopics
      name                                   string                       8-9
      topic_id                               uuid                         10+
      partitions                             []OffsetFetchResponsePartitions
        partition_index                      int32
        committed_offset                     int64
        committed_leader_epoch               int32                               default=-1
        metadata                             string                              nullable
        error_code                           int16
    error_code                               int16

FindCoordinatorRequest  key=10  versions=0-6  flexible=3
  key                                        string                       0-3
  key_type                                   int8                         1+
  coordinator_keys                           []string                     4+

FindCoordinatorResponse  key=10  versions=0-6  flexible=3
  throttle_time_ms                           int32                        1+
  error_code                                 int16                        0-3
  error_message                              string                       1-3    nullable
  node_id                                    int32                        0-3
  host                                       string                       0-3
  port                                       int32                        0-3
  coordinators                               []Coordinator                4+
    key                                      string
    node_id                                  int32
    host                                     string
    port                                     int32
    error_code                               int16
    error_message                            string                              nullable

JoinGroupRequest  key=11  versions=0-9  flexible=6
  group_id                                   string
  session_timeout_ms                         int32
  rebalance_timeout_ms                       int32                        1+     default=-1
  member_id                                  string
  group_instance_id                          string                       5+     nullable
  protocol_type                              string
  protocols                                  []JoinGroupRequestProtocol
    name                                     string
    metadata                                 bytes
  reason                                     string                       8+     nullable

JoinGroupResponse  key=11  versions=0-9  flexible=6
  throttle_time_ms                           int32                        2+
  error_code                                 int16
  generation_id                              int32                               default=-1
  protocol_type                              string                       7+     nullable
  protocol_name                              string                              nullable=7+
  leader                                     string
  skip_assignment                            bool                         9+
  member_id                                  string
  members                                    []JoinGroupResponseMember
    member_id                                string
    group_instance_id                        string                       5+     nullable
    metadata                                 bytes

HeartbeatRequest  key=12  versions=0-4  flexible=4
  group_id                                   string
  generation_id                              int32
  member_id                                  string
  group_instance_id                          string                       3+     nullable

HeartbeatResponse  key=12  versions=0-4  flexible=4
  throttle_time_ms                           int32                        1+
  error_code                                 int16

LeaveGroupRequest  key=13  versions=0-5  flexible=4
  group_id                                   string
  member_id                                  string                       0-2
  members                                    []MemberIdentity             3+
    member_id                                string
    group_instance_id                        string                              nullable
    reason                                   string                       5+     nullable

LeaveGroupResponse  key=13  versions=0-5  flexible=4
  throttle_time_ms                           int32                        1+
  error_code                                 int16
  members                                    []MemberResponse             3+
    member_id                                string
    group_instance_id                        string                              nullable
    error_code                               int16

SyncGroupRequest  key=14  versions=0-5  flexible=4
  group_id                                   string
  generation_id                              int32
  member_id                                  string
  group_instance_id                          string                       3+     nullable
  protocol_type                              string                       5+     nullable
  protocol_name                              string                       5+     nullable
  assignments                                []SyncGroupRequestAssignment
    member_id                                string
    assignment                               bytes

SyncGroupResponse  key=14  versions=0-5  flexible=4
  throttle_time_ms                           int32                        1+
  error_code                                 int16
  protocol_type                              string                       5+     nullable
  protocol_name                              string                       5+     nullable
  assignment                                 bytes

DescribeGroupsRequest  key=15  versions=0-6  flexible=5
  groups                                     []string
  include_authorized_operations              bool                         3+

DescribeGroupsResponse  key=15  versions=0-6  flexible=5
  throttle_time_ms                           int32                        1+
  groups                                     []DescribedGroup
    error_code                               int16
    error_message                            string                       6+     nullable
    group_id                                 string
    group_state                              string
    protocol_type                            string
    protocol_data                            string
    members                                  []DescribedGroupMember
      member_id                              string
      group_instance_id                      string                       4+     nullable
      client_id                              string
      client_host                            string
      member_metadata                        bytes
      member_assignment                      bytes
    authorized_operations                    int32                        3+     default=-2147483648

ListGroupsRequest  key=16  versions=0-5  flexible=3
  states_filter                              []string                     4+
  types_filter                               []string                     5+

ListGroupsResponse  key=16  versions=0-5  flexible=3
  throttle_time_ms                           int32                        1+
  error_code                                 int16
  groups                                     []ListedGroup
    group_id                                 string
    protocol_type                            string
    group_state                              string                       4+
    group_type                               string                       5+

DeleteGroupsRequest  key=42  versions=0-2  flexible=2
  groups_names                               []string

DeleteGroupsResponse  key=42  versions=0-2  flexible=2
  throttle_time_ms                           int32
  results                                    []DeletableGroupResult
    group_id                                 string
    error_code                               int16

OffsetDeleteRequest  key=47  versions=0-0
  group_id                                   string
  topics                                     []OffsetDeleteRequestTopic
    name                                     string
    partitions                               []OffsetDeleteRequestPartition
      partition_index                        int32

OffsetDeleteResponse  key=47  versions=0-0
  error_code                                 int16
  throttle_time_ms                           int32
  topics                                     []OffsetDeleteResponseTopic
    name                                     string
    partitions                               []OffsetDeleteResponsePartition
      partition_index                        int32
      error_code                             int16

ConsumerGroupHeartbeatRequest  key=68  versions=0-1  flexible=0
  group_id                                   string
  member_id                                  string
  member_epoch                               int32
  instance_id                                string                              nullable
  rack_id                                    string                              nullable
  rebalance_timeout_ms                       int32                               default=-1
  subscribed_topic_names                     []string                            nullable
  subscribed_topic_regex                     string                       1+     nullable
  server_assignor                            string                              nullable
  topic_partitions                           []TopicPartitions                   nullable
    topic_id                                 uuid
    partitions                               []int32

ConsumerGroupHeartbeatResponse  key=68  versions=0-1  flexible=0
  throttle_time_ms                           int32
  error_code                                 int16
  error_message                              string                              nullable
  member_id                                  string                              nullable
  member_epoch                               int32
  heartbeat_interval_ms                      int32
  assignment                                 Assignment                          nullable
    topic_partitions                         []TopicPartitions
      topic_id                               uuid
      partitions                             []int32

ConsumerGroupDescribeRequest  key=69  versions=0-1  flexible=0
  group_ids                                  []string
  include_authorized_operations              bool

ConsumerGroupDescribeResponse  key=69  versions=0-1  flexible=0
  throttle_time_ms                           int32
  groups                                     []DescribedGroup
    error_code                               int16
    error_message                            string                              nullable
    group_id                                 string
    group_state                              string
    group_epoch                              int32
    assignment_epoch                         int32
    assignor_name                            string
    members                                  []Member
      member_id                              string
      instance_id                            string                              nullable
      rack_id                                string                              nullable
      member_epoch                           int32
      client_id                              string
      client_host                            string
      subscribed_topic_names                 []string
      subscribed_topic_regex                 string                              nullable
      assignment                             Assignment
        topic_partitions                     []TopicPartitions
          topic_id                           uuid
          topic_name                         string
          partitions                         []int32
      target_assignment                      Assignment
      member_type                            int8                         1+     default=-1
    authorized_operations                    int32                               default=-2147483648
"""

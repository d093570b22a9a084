"""Who is there, what they serve, and where partitions live.

The grammar of these tables is in `parse.py`.
"""

TABLE = """\
MetadataRequest  key=3  versions=0-13  flexible=9
  topics                                     []MetadataRequestTopic              nullable=1+
    topic_id                                 uuid                         10+
    name                                     string                              nullable=10+
  allow_auto_topic_creation                  bool                         4+     default=true
  include_cluster_authorized_operations      bool                         8-10
  include_topic_authorized_operations        bool                         8+

MetadataResponse  key=3  versions=0-13  flexible=9
  throttle_time_ms                           int32                        3+
  brokers                                    []MetadataResponseBroker
    node_id                                  int32
    host                                     string
    port                                     int32
    rack                                     string                       1+     nullable
  cluster_id                                 string                       2+     nullable
  controller_id                              int32                        1+     default=-1
  topics                                     []MetadataResponseTopic
    error_code                               int16
    name                                     string                              nullable=12+
    topic_id                                 uuid                         10+
    is_internal                              bool                         1+
    partitions                               []MetadataResponsePartition
      error_code                             int16
      partition_index                        int32
      leader_id                              int32
      leader_epoch                           int32                        7+     default=-1
      replica_nodes                          []int32
      isr_nodes                              []int32
      offline_replicas                       []int32                      5+
    topic_authorized_operations              int32                        8+     default=-2147483648
  cluster_authorized_operations              int32                        8-10   default=-2147483648
  error_code                                 int16                        13+

ApiVersionsRequest  key=18  versions=0-4  flexible=3
  client_software_name                       string                       3+
  client_software_version                    string                       3+

ApiVersionsResponse  key=18  versions=0-4  flexible=3
  error_code                                 int16
  api_keys                                   []ApiVersion
    api_key                                  int16
    min_version                              int16
    max_version                              int16
  throttle_time_ms                           int32                        1+
  supported_features                         []SupportedFeatureKey        3+     tag=0
    name                                     string
    min_version                              int16
    max_version                              int16
  finalized_features_epoch                   int64                        3+     tag=1 default=-1
  finalized_features                         []FinalizedFeatureKey        3+     tag=2
    name                                     string
    max_version_level                        int16
    min_version_level                        int16
  zk_migration_ready                         bool                         3+     tag=3

AlterReplicaLogDirsRequest  key=34  versions=1-2  flexible=2
  dirs                                       []AlterReplicaLogDir
    path                                     string
    topics                                   []AlterReplicaLogDirTopic
      name                                   string
      partitions                             []int32

AlterReplicaLogDirsResponse  key=34  versions=1-2  flexible=2
  throttle_time_ms                           int32
  results                                    []AlterReplicaLogDirTopicResult
    topic_name                               string
    partitions                               []AlterReplicaLogDirPartitionResult
      partition_index                        int32
      error_code                             int16

DescribeLogDirsRequest  key=35  versions=1-4  flexible=2
  topics                                     []DescribableLogDirTopic            nullable
    topic                                    string
    partitions                               []int32

DescribeLogDirsResponse  key=35  versions=1-4  flexible=2
  throttle_time_ms                           int32
  error_code                                 int16                        3+
  results                                    []DescribeLogDirsResult
    error_code                               int16
    log_dir                                  string
    topics                                   []DescribeLogDirsTopic
      name                                   string
      partitions                             []DescribeLogDirsPartition
        partition_index                      int32
        partition_size                       int64
        offset_lag                           int64
        is_future_key                        bool
    total_bytes                              int64                        4+     default=-1
    usable_bytes                             int64                        4+     default=-1

ElectLeadersRequest  key=43  versions=0-2  flexible=2
  election_type                              int8                         1+
  topic_partitions                           []TopicPartitions                   nullable
    topic                                    string
    partitions                               []int32
  timeout_ms                                 int32                               default=60000

ElectLeadersResponse  key=43  versions=0-2  flexible=2
  throttle_time_ms                           int32
  error_code                                 int16                        1+
  replica_election_results                   []ReplicaElectionResult
    topic                                    string
    partition_result                         []PartitionResult
      partition_id                           int32
      error_code                             int16
      error_message                          string                              nullable

AlterPartitionReassignmentsRequest  key=45  versions=0-1  flexible=0
  timeout_ms                                 int32                               default=60000
  allow_replication_factor_change            bool                         1+     default=true
  topics                                     []ReassignableTopic
    name                                     string
    partitions                               []ReassignablePartition
      partition_index                        int32
      replicas                               []int32                             nullable

AlterPartitionReassignmentsResponse  key=45  versions=0-1  flexible=0
  throttle_time_ms                           int32
  allow_replication_factor_change            bool                         1+     default=true
  error_code                                 int16
  error_message                              string                              nullable
  responses                                  []ReassignableTopicResponse
    name                                     string
    partitions                               []ReassignablePartitionResponse
      partition_index                        int32
      error_code                             int16
      error_message                          string                              nullable

ListPartitionReassignmentsRequest  key=46  versions=0-0  flexible=0
  timeout_ms                                 int32                               default=60000
  topics                                     []ListPartitionReassignmentsTopics              nullable
    name                                     string
    partition_indexes                        []int32

ListPartitionReassignmentsResponse  key=46  versions=0-0  flexible=0
  throttle_time_ms                           int32
  error_code                                 int16
  error_message                              string                              nullable
  topics                                     []OngoingTopicReassignment
    name                                     string
    partitions                               []OngoingPartitionReassignment
      partition_index                        int32
      replicas                               []int32
      adding_replicas                        []int32
      removing_replicas                      []int32

DescribeClusterRequest  key=60  versions=0-2  flexible=0
  include_cluster_authorized_operations      bool
  endpoint_type                              int8                         1+     default=1
  include_fenced_brokers                     bool                         2+

DescribeClusterResponse  key=60  versions=0-2  flexible=0
  throttle_time_ms                           int32
  error_code                                 int16
  error_message                              string                              nullable
  endpoint_type                              int8                         1+     default=1
  cluster_id                                 string
  controller_id                              int32                               default=-1
  brokers                                    []DescribeClusterBroker
    broker_id                                int32
    host                                     string
    port                                     int32
    rack                                     string                              nullable
    is_fenced                                bool                         2+
  cluster_authorized_operations              int32                               default=-2147483648

DescribeTopicPartitionsRequest  key=75  versions=0-0  flexible=0
  topics                                     []TopicRequest
    name                                     string
  response_partition_limit                   int32                               default=2000
  cursor                                     Cursor                              nullable
    topic_name                               string
    partition_index                          int32

DescribeTopicPartitionsResponse  key=75  versions=0-0  flexible=0
  throttle_time_ms                           int32
  topics                                     []DescribeTopicPartitionsResponseTopic
    error_code                               int16
    name                                     string                              nullable
    topic_id                                 uuid
    is_internal                              bool
    partitions                               []DescribeTopicPartitionsResponsePartition
      error_code                             int16
      partition_index                        int32
      leader_id                              int32
      leader_epoch                           int32                               default=-1
      replica_nodes                          []int32
      isr_nodes                              []int32
      eligible_leader_replicas               []int32                             nullable
      last_known_elr                         []int32                             nullable
      offline_replicas                       []int32
    topic_authorized_operations              int32                               default=-2147483648
  next_cursor                                Cursor                              nullable
    topic_name                               string
    partition_index                          int32
"""

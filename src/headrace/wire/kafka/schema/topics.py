"""Topics and their settings.

The grammar of these tables is in `parse.py`.
"""

TABLE = """\
CreateTopicsRequest  key=19  versions=2-7  flexible=5
  topics                                     []CreatableTopic
    name                                     string
    num_partitions                           int32
    replication_factor                       int16
    assignments                              []CreatableReplicaAssignment
      partition_index                        int32
      broker_ids                             []int32
    configs                                  []CreatableTopicConfig
      name                                   string
      value                                  string                              nullable
  timeout_ms                                 int32                               default=60000
  validate_only                              bool

CreateTopicsResponse  key=19  versions=2-7  flexible=5
  throttle_time_ms                           int32
  topics                                     []CreatableTopicResult
    name                                     string
    topic_id                                 uuid                         7+
    error_code                               int16
    error_message                            string                              nullable
    topic_config_error_code                  int16                        5+     tag=0
    num_partitions                           int32                        5+     default=-1
    replication_factor                       int16                        5+     default=-1
    configs                                  []CreatableTopicConfigs      5+     nullable
      name                                   string
      value                                  string                              nullable
      read_only                              bool
      config_source                          int8                                default=-1
      is_sensitive                           bool

DeleteTopicsRequest  key=20  versions=1-6  flexible=4
  topics                                     []DeleteTopicState           6+
    name                                     string                              nullable
    topic_id                                 uuid
  topic_names                                []string                     1-5
  timeout_ms                                 int32

DeleteTopicsResponse  key=20  versions=1-6  flexible=4
  throttle_time_ms                           int32
  responses                                  []DeletableTopicResult
    name                                     string                              nullable=6+
    topic_id                                 uuid                         6+
    error_code                               int16
    error_message                            string                       5+     nullable

DescribeConfigsRequest  key=32  versions=1-4  flexible=4
  resources                                  []DescribeConfigsResource
    resource_type                            int8
    resource_name                            string
    configuration_keys                       []string                            nullable
  include_synonyms                           bool
  include_documentation                      bool                         3+

DescribeConfigsResponse  key=32  versions=1-4  flexible=4
  throttle_time_ms                           int32
  results                                    []DescribeConfigsResult
    error_code                               int16
    error_message                            string                              nullable
    resource_type                            int8
    resource_name                            string
    configs                                  []DescribeConfigsResourceResult
      name                                   string
      value                                  string                              nullable
      read_only                              bool
      config_source                          int8                                default=-1
      is_sensitive                           bool
      synonyms                               []DescribeConfigsSynonym
        name                                 string
        value                                string                              nullable
        source                               int8
      config_type                            int8                         3+
      documentation                          string                       3+     nullable

AlterConfigsRequest  key=33  versions=0-2  flexible=2
  resources                                  []AlterConfigsResource
    resource_type                            int8
    resource_name                            string
    configs                                  []AlterableConfig
      name                                   string
      value                                  string                              nullable
  validate_only                              bool

AlterConfigsResponse  key=33  versions=0-2  flexible=2
  throttle_time_ms                           int32
  responses                                  []AlterConfigsResourceResponse
    error_code                               int16
    error_message                            string                              nullable
    resource_type                            int8
    resource_name                            string

CreatePartitionsRequest  key=37  versions=0-3  flexible=2
  topics                                     []CreatePartitionsTopic
    name                                     string
    count                                    int32
    assignments                              []CreatePartitionsAssignment        nullable
      broker_ids                             []int32
  timeout_ms                                 int32
  validate_only                              bool

CreatePartitionsResponse  key=37  versions=0-3  flexible=2
  throttle_time_ms                           int32
  results                                    []CreatePartitionsTopicResult
    name                                     string
    error_code                               int16
    error_message                            string                              nullable

IncrementalAlterConfigsRequest  key=44  versions=0-1  flexible=1
  resources                                  []AlterConfigsResource
    resource_type                            int8
    resource_name                            string
    configs                                  []AlterableConfig
      name                                   string
      config_operation                       int8
      value                                  string                              nullable
  validate_only                              bool

IncrementalAlterConfigsResponse  key=44  versions=0-1  flexible=1
  throttle_time_ms                           int32
  responses                                  []AlterConfigsResourceResponse
    error_code                               int16
    error_message                            string                              nullable
    resource_type                            int8
    resource_name                            string
"""

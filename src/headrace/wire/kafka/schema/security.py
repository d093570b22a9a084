"""Who may do what, and how much of it: SASL, ACLs, quotas, SCRAM credentials.

The grammar of these tables is in `parse.py`.
"""

TABLE = """\
SaslHandshakeRequest  key=17  versions=0-1
  mechanism                                  string

SaslHandshakeResponse  key=17  versions=0-1
  error_code                                 int16
  mechanisms                                 []string

DescribeAclsRequest  key=29  versions=1-3  flexible=2
  resource_type_filter                       int8
  resource_name_filter                       string                              nullable
  pattern_type_filter                        int8                                default=3
  principal_filter                           string                              nullable
  host_filter                                string                              nullable
  operation                                  int8
  permission_type                            int8

DescribeAclsResponse  key=29  versions=1-3  flexible=2
  throttle_time_ms                           int32
  error_code                                 int16
  error_message                              string                              nullable
  resources                                  []DescribeAclsResource
    resource_type                            int8
    resource_name                            string
    pattern_type                             int8                                default=3
    acls                                     []AclDescription
      principal                              string
      host                                   string
      operation                              int8
      permission_type                        int8

CreateAclsRequest  key=30  versions=1-3  flexible=2
  creations                                  []AclCreation
    resource_type                            int8
    resource_name                            string
    resource_pattern_type                    int8                                default=3
    principal                                string
    host                                     string
    operation                                int8
    permission_type                          int8

CreateAclsResponse  key=30  versions=1-3  flexible=2
  throttle_time_ms                           int32
  results                                    []AclCreationResult
    error_code                               int16
    error_message                            string                              nullable

DeleteAclsRequest  key=31  versions=1-3  flexible=2
  filters                                    []DeleteAclsFilter
    resource_type_filter                     int8
    resource_name_filter                     string                              nullable
    pattern_type_filter                      int8                                default=3
    principal_filter                         string                              nullable
    host_filter                              string                              nullable
    operation                                int8
    permission_type                          int8

DeleteAclsResponse  key=31  versions=1-3  flexible=2
  throttle_time_ms                           int32
  filter_results                             []DeleteAclsFilterResult
    error_code                               int16
    error_message                            string                              nullable
    matching_acls                            []DeleteAclsMatchingAcl
      error_code                             int16
      error_message                          string                              nullable
      resource_type                          int8
      resource_name                          string
      pattern_type                           int8                                default=3
      principal                              string
      host                                   string
      operation                              int8
      permission_type                        int8

SaslAuthenticateRequest  key=36  versions=0-2  flexible=2
  auth_bytes                                 bytes

SaslAuthenticateResponse  key=36  versions=0-2  flexible=2
  error_code                                 int16
  error_message                              string                              nullable
  auth_bytes                                 bytes
  session_lifetime_ms                        int64                        1+

DescribeClientQuotasRequest  key=48  versions=0-1  flexible=1
  components                                 []ComponentData
    entity_type                              string
    match_type                               int8
    match                                    string                              nullable
  strict                                     bool

DescribeClientQuotasResponse  key=48  versions=0-1  flexible=1
  throttle_time_ms                           int32
  error_code                                 int16
  error_message                              string                              nullable
  entries                                    []EntryData                         nullable
    entity                                   []EntityData
      entity_type                            string
      entity_name                            string                              nullable
    values                                   []ValueData
      key                                    string
      value                                  float64

AlterClientQuotasRequest  key=49  versions=0-1  flexible=1
  entries                                    []EntryData
    entity                                   []EntityData
      entity_type                            string
      entity_name                            string                              nullable
    ops                                      []OpData
      key                                    string
      value                                  float64
      remove                                 bool
  validate_only                              bool

AlterClientQuotasResponse  key=49  versions=0-1  flexible=1
  throttle_time_ms                           int32
  entries                                    []EntryData
    error_code                               int16
    error_message                            string                              nullable
    entity                                   []EntityData
      entity_type                            string
      entity_name                            string                              nullable

DescribeUserScramCredentialsRequest  key=50  versions=0-0  flexible=0
  users                                      []UserName                          nullable
    name                                     string

DescribeUserScramCredentialsResponse  key=50  versions=0-0  flexible=0
  throttle_time_ms                           int32
  error_code                                 int16
  error_message                              string                              nullable
  results                                    []DescribeUserScramCredentialsResult
    user                                     string
    error_code                               int16
    error_message                            string                              nullable
    credential_infos                         []CredentialInfo
      mechanism                              int8
      iterations                             int32

AlterUserScramCredentialsRequest  key=51  versions=0-0  flexible=0
  deletions                                  []ScramCredentialDeletion
    name                                     string
    mechanism                                int8
  upsertions                                 []ScramCredentialUpsertion
    name                                     string
    mechanism                                int8
    iterations                               int32
    salt                                     bytes
    salted_password                          bytes

AlterUserScramCredentialsResponse  key=51  versions=0-0  flexible=0
  throttle_time_ms                           int32
  results                                    []AlterUserScramCredentialsResult
    user                                     string
    error_code                               int16
    error_message                            string                              nullable
"""

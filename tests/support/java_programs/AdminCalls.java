import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Apache Kafka's AdminClient for tests in other languages. Each line of the input is a JSON array: bootstrap servers, a verb, its
 * arguments. Each is answered by one line: {"answer": ...}, or {"error": the exception's class, "message": ...}.
 */
public final class AdminCalls {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map<String, Admin> admins = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        AdminCalls calls = new AdminCalls();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = JSON.readValue(line, String[].class);
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("answer", calls.call(words));
            } catch (ExecutionException | RuntimeException error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.put("error", cause.getClass().getSimpleName());
                answer.put("message", String.valueOf(cause.getMessage()));
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private Object call(String[] words) throws Exception {
        Admin admin = admins.computeIfAbsent(words[0], AdminCalls::open);
        String name = words.length > 2 ? words[2] : "";
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        switch (words[1]) {
            case "cluster":
                return cluster(admin.describeCluster());
            case "create":
                NewTopic wanted = new NewTopic(name, Optional.of(Integer.parseInt(words[3])), Optional.empty());
                return admin.createTopics(List.of(wanted.configs(Map.of(words[4], words[5])))).topicId(name).get().toString();
            case "add-partitions":
                return admin.createPartitions(Map.of(name, NewPartitions.increaseTo(Integer.parseInt(words[3])))).all().get();
            case "delete":
                return admin.deleteTopics(List.of(name)).all().get();
            case "topics":
                return new ArrayList<>(admin.listTopics().names().get());
            case "topic":
                return topic(admin.describeTopics(List.of(name)).allTopicNames().get().get(name));
            case "alter-config":
                AlterConfigOp set = new AlterConfigOp(new ConfigEntry(words[3], words[4]), AlterConfigOp.OpType.SET);
                return admin.incrementalAlterConfigs(Map.of(topic, List.of(set))).all().get();
            case "config":
                Config config = admin.describeConfigs(List.of(topic)).all().get().get(topic);
                return config.get(words[3]).value();
            case "offset":
                return offset(admin, place(words), words[4].equals("earliest") ? OffsetSpec.earliest() : OffsetSpec.latest());
            case "delete-records":
                TopicPartition cut = place(words);
                RecordsToDelete before = RecordsToDelete.beforeOffset(Long.parseLong(words[4]));
                return admin.deleteRecords(Map.of(cut, before)).lowWatermarks().get(cut).get().lowWatermark();
            default:
                return callOfCoordinators(admin, words, name);
        }
    }

    private static Object callOfCoordinators(Admin admin, String[] words, String name) throws Exception {
        switch (words[1]) {
            case "groups":
                List<String> groups = new ArrayList<>();
                admin.listConsumerGroups().all().get().forEach(each -> groups.add(each.groupId()));
                return groups;
            case "group":
                return group(admin.describeConsumerGroups(List.of(name)).all().get().get(name));
            case "delete-group":
                return admin.deleteConsumerGroups(List.of(name)).all().get();
            case "commit":
                TopicPartition place = new TopicPartition(words[3], Integer.parseInt(words[4]));
                OffsetAndMetadata offset = new OffsetAndMetadata(Long.parseLong(words[5]));
                return admin.alterConsumerGroupOffsets(name, Map.of(place, offset)).all().get();
            case "committed":
                Map<String, Object> committed = new TreeMap<>();
                admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get()
                    .forEach((where, found) -> committed.put(where.toString(), found.offset()));
                return committed;
            case "transactions":
                Map<String, Object> states = new TreeMap<>();
                for (TransactionListing each : admin.listTransactions().all().get()) {
                    states.put(each.transactionalId(), each.state().toString());
                }
                return states;
            case "transaction":
                return transaction(admin.describeTransactions(List.of(name)).all().get().get(name));
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private static Admin open(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "60000");
        settings.put("default.api.timeout.ms", "120000");
        return Admin.create(settings);
    }

    private static TopicPartition place(String[] words) {
        return new TopicPartition(words[2], Integer.parseInt(words[3]));
    }

    private static Object cluster(DescribeClusterResult found) throws Exception {
        List<Object> nodes = new ArrayList<>();
        for (Node each : found.nodes().get()) {
            Map<String, Object> node = new HashMap<>();
            node.put("id", each.id());
            node.put("address", each.host() + ":" + each.port());
            node.put("rack", each.rack());
            nodes.add(node);
        }
        return Map.of("id", found.clusterId().get(), "controller", found.controller().get().id(), "nodes", nodes);
    }

    private static Object topic(TopicDescription found) {
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo each : found.partitions()) {
            Map<String, Object> partition = new HashMap<>();
            partition.put("leader", each.leader() == null ? -1 : each.leader().id());
            partition.put("replicas", each.replicas().stream().map(Node::id).toList());
            partition.put("isr", each.isr().stream().map(Node::id).toList());
            partitions.add(partition);
        }
        return Map.of("id", found.topicId().toString(), "partitions", partitions);
    }

    private static Object offset(Admin admin, TopicPartition place, OffsetSpec wanted) throws Exception {
        return admin.listOffsets(Map.of(place, wanted)).partitionResult(place).get().offset();
    }

    private static Object group(ConsumerGroupDescription found) {
        return Map.of(
            "state", found.groupState().toString(), "coordinator", found.coordinator().id(), "members", found.members().size());
    }

    private static Object transaction(TransactionDescription found) {
        List<String> partitions = found.topicPartitions().stream().map(TopicPartition::toString).sorted().toList();
        return Map.of("state", found.state().toString(), "coordinator", found.coordinatorId(), "partitions", partitions);
    }
}

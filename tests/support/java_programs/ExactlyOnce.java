import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A consume-transform-produce loop: bootstrap servers, source, target, group, transactional id. Each value is passed on with `!` behind
 * it; the offsets read are part of the transaction that writes. Whoever watches over it starts it again when it ends.
 */
public final class ExactlyOnce {
    private static final int BATCH = 20;

    public static void main(String[] arguments) {
        Properties shared = new Properties();
        shared.put("bootstrap.servers", arguments[0]);
        shared.put("reconnect.backoff.max.ms", "500");
        Properties writing = (Properties) shared.clone();
        writing.put("transactional.id", arguments[4]);
        writing.put("transaction.timeout.ms", "10000");
        writing.put("key.serializer", StringSerializer.class.getName());
        writing.put("value.serializer", StringSerializer.class.getName());
        Properties reading = (Properties) shared.clone();
        reading.put("group.id", arguments[3]);
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        reading.put("session.timeout.ms", "6000");
        reading.put("max.poll.records", String.valueOf(BATCH));
        reading.put("key.deserializer", StringDeserializer.class.getName());
        reading.put("value.deserializer", StringDeserializer.class.getName());
        KafkaProducer<String, String> producer = new KafkaProducer<>(writing);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading);
        try {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                passOn(producer, consumer, arguments[2]);
            }
        } catch (KafkaException | InterruptedException error) {
            // Fenced, or a transaction that failed: what was read is read again from where the last commit left off.
            System.err.println(error);
            Runtime.getRuntime().halt(1);
        }
    }

    private static void passOn(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, String target)
            throws InterruptedException {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.key(), record.value() + "!"));
            ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        Thread.sleep(20); // Leaves a window in which a kill hits an open transaction.
        producer.commitTransaction();
    }
}

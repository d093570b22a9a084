import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads topics by a pattern that the broker resolves (KIP-848): bootstrap servers, pattern, number of records. */
public final class ReadByPattern {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", "by-pattern");
        settings.put("group.protocol", "consumer");
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        int wanted = Integer.parseInt(arguments[2]);
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        int found = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(new SubscriptionPattern(arguments[1]));
            while (found < wanted && System.nanoTime() < deadline) {
                found += consumer.poll(Duration.ofMillis(200)).count();
            }
        }
        System.out.println("read " + found);
    }
}

import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Counts words of "lines" into "counts", exactly once, until its input ends. */
public class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "word-count");
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "200");
        settings.put("session.timeout.ms", "6000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        System.in.read();
        streams.close();
    }
}

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.requests.WriteTxnMarkersRequest;
import org.apache.kafka.common.requests.WriteTxnMarkersResponse;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Crc32C;

/**
 * A client that does what lines say: one line in, one line out, which begins with `ok` or `refused`.
 *
 *   topic NAME PARTITIONS [CONFIG=VALUE ...]     made, and led
 *   config NAME CONFIG=VALUE ...                 an empty value takes the config away
 *   partitions NAME COUNT | delete NAME | truncate NAME BEFORE
 *   batch TOPIC OPTION=VALUE ...                 one Produce request with one batch: offsets=FIRST..LAST
 *       n=1 size=20 key=null|PREFIX:FROM:MODULUS ts=0 step=0 tomb=0 (every such value null) seed=0
 *       codec=none kind=text|random headers=0 pid=-1 epoch=-1 seq=-1 txn flag (LogAppendTime) maxts=
 *   marker TOPIC PID EPOCH COORDINATOR-EPOCH commit|abort
 *   open NAME TRANSACTIONAL-ID | begin NAME | commit NAME | abort NAME
 *   send NAME TOPIC OPTION=VALUE ...             by a KafkaProducer, and flushed
 *   offsets NAME GROUP TOPIC OFFSET              into its transaction
 */
public class Client {
    private static String host;
    private static int port;
    private static Admin admin;
    private static int correlation;
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        host = "127.0.0.1";
        port = Integer.parseInt(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + obey(line.split(" "));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer = "refused code=" + Errors.forException(cause).code() + " " + cause;
            }
            System.out.println(answer.replace('\n', ' '));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "topic": return topic(words);
            case "config": return config(words);
            case "partitions":
                admin().createPartitions(Map.of(words[1], NewPartitions.increaseTo(number(words[2])))).all().get();
                return ready(words[1], number(words[2]));
            case "delete": admin().deleteTopics(List.of(words[1])).all().get(); return "";
            case "truncate":
                TopicPartition place = new TopicPartition(words[1], 0);
                var before = RecordsToDelete.beforeOffset(Long.parseLong(words[2]));
                return "" + admin().deleteRecords(Map.of(place, before)).lowWatermarks().get(place).get().lowWatermark();
            case "batch": return batch(words[1], options(words, 2));
            case "marker": return marker(words);
            case "open": return open(words[1], words[2]);
            case "begin": PRODUCERS.get(words[1]).beginTransaction(); return "";
            case "commit": PRODUCERS.get(words[1]).commitTransaction(); return "";
            case "abort": PRODUCERS.get(words[1]).abortTransaction(); return "";
            case "send": return send(PRODUCERS.get(words[1]), words[2], options(words, 3));
            case "offsets":
                PRODUCERS.get(words[1]).sendOffsetsToTransaction(
                    Map.of(new TopicPartition(words[3], 0), new OffsetAndMetadata(Long.parseLong(words[4]))),
                    new ConsumerGroupMetadata(words[2]));
                return "";
            default: throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private static int number(String text) {
        return Integer.parseInt(text);
    }

    private static Map<String, String> options(String[] words, int from) {
        Map<String, String> found = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            found.put(pair[0], pair.length == 2 ? pair[1] : "");
        }
        return found;
    }

    private static Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", host + ":" + port));
        }
        return admin;
    }

    private static String topic(String[] words) throws Exception {
        NewTopic topic = new NewTopic(words[1], number(words[2]), (short) 1).configs(options(words, 3));
        admin().createTopics(List.of(topic)).all().get();
        return ready(words[1], number(words[2]));
    }

    private static String ready(String topic, int partitions) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                var found = admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
                if (found.size() == partitions && found.stream().allMatch(it -> it.leader() != null)) {
                    return "";
                }
            } catch (ExecutionException error) {
                if (tries > 1000) throw error;
            }
            Thread.sleep(20);
        }
    }

    private static String config(String[] words) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        options(words, 2).forEach((name, value) -> changes.add(new AlterConfigOp(new ConfigEntry(name, value),
            value.isEmpty() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, words[1]);
        admin().incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return "";
    }

    // What records hold.

    private static byte[] key(Map<String, String> options, int i) {
        String[] parts = options.getOrDefault("key", "null").split(":");
        if (parts.length < 3) {
            return null;
        }
        return (parts[0] + (number(parts[1]) + i) % number(parts[2])).getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] value(Map<String, String> options, int i) {
        int tomb = number(options.getOrDefault("tomb", "0"));
        if (tomb > 0 && i % tomb == tomb - 1) {
            return null;
        }
        Random random = new Random(Long.parseLong(options.getOrDefault("seed", "0")) * 1_000_003 + i);
        byte[] bytes = new byte[number(options.getOrDefault("size", "20"))];
        if (options.getOrDefault("kind", "text").equals("random")) {
            random.nextBytes(bytes);
            return bytes;
        }
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) (random.nextInt(4) == 0 ? ' ' : 'a' + random.nextInt(at % 8 + 3));
        }
        return bytes;
    }

    private static Header[] headers(Map<String, String> options, int i) {
        Header[] headers = new Header[number(options.getOrDefault("headers", "0"))];
        for (int h = 0; h < headers.length; h++) {
            headers[h] = new RecordHeader("h" + h, h == 1 ? null : ("header " + i).getBytes(StandardCharsets.UTF_8));
        }
        return headers;
    }

    private static long time(Map<String, String> options, int i) {
        return Long.parseLong(options.getOrDefault("ts", "0")) + i * Long.parseLong(options.getOrDefault("step", "0"));
    }

    // Batches.

    private static String batch(String topic, Map<String, String> options) throws Exception {
        boolean isStamped = options.containsKey("flag"), isTransactional = options.containsKey("txn");
        int count = number(options.getOrDefault("n", "1"));
        var builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), (byte) 2,
            Compression.of(options.getOrDefault("codec", "none")).build(),
            isStamped ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME, 0,
            isStamped ? System.currentTimeMillis() : -1, Long.parseLong(options.getOrDefault("pid", "-1")),
            Short.parseShort(options.getOrDefault("epoch", "-1")), number(options.getOrDefault("seq", "-1")),
            isTransactional, -1);
        for (int i = 0; i < count; i++) {
            builder.append((Long) time(options, i), key(options, i), value(options, i), headers(options, i));
        }
        MemoryRecords records = builder.build();
        if (options.containsKey("maxts")) {
            ByteBuffer bytes = records.buffer();
            bytes.putLong(bytes.position() + 35, Long.parseLong(options.get("maxts")));
            bytes.putInt(bytes.position() + 17, (int) Crc32C.compute(bytes, 21, bytes.remaining() - 21));
        }
        ProduceRequestData data = new ProduceRequestData().setAcks((short) -1).setTimeoutMs(30000);
        data.setTransactionalId(isTransactional ? "raw-" + options.get("pid") : null);
        data.topicData().add(new ProduceRequestData.TopicProduceData().setName(topic).setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records))));
        // In version 12 a transactional batch would add its partition by itself.
        short version = 11;
        var answer = (ProduceResponse) exchange(ProduceRequest.builder(data).build(version), ApiKeys.PRODUCE, version);
        var partition = answer.data().responses().iterator().next().partitionResponses().get(0);
        if (partition.errorCode() != 0) {
            throw Errors.forCode(partition.errorCode()).exception(partition.errorMessage());
        }
        return "offsets=" + partition.baseOffset() + ".." + (partition.baseOffset() + count - 1);
    }

    private static String marker(String[] words) throws Exception {
        TransactionResult result = words[5].equals("commit") ? TransactionResult.COMMIT : TransactionResult.ABORT;
        var marker = new WriteTxnMarkersRequest.TxnMarkerEntry(Long.parseLong(words[2]), Short.parseShort(words[3]),
            number(words[4]), result, List.of(new TopicPartition(words[1], 0)), (short) 0);
        var request = new WriteTxnMarkersRequest.Builder(List.of(marker)).build((short) 1);
        var answer = (WriteTxnMarkersResponse) exchange(request, ApiKeys.WRITE_TXN_MARKERS, (short) 1);
        for (var errors : answer.errorsByProducerId().values()) {
            for (Errors error : errors.values()) {
                error.maybeThrow();
            }
        }
        return "";
    }

    private static AbstractResponse exchange(AbstractRequest request, ApiKeys api, short version) throws Exception {
        RequestHeader header = new RequestHeader(api, version, "regenerate", correlation++);
        ByteBuffer bytes = request.serializeWithHeader(header);
        try (Socket socket = new Socket(host, port)) {
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            out.writeInt(bytes.remaining());
            out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
        }
    }

    // Transactions.

    private static String open(String name, String id) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", host + ":" + port);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", 600000);
        config.put("linger.ms", 10000);
        config.put("batch.size", 1 << 21);
        config.put("max.request.size", 1 << 22);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        PRODUCERS.put(name, producer);
        return "";
    }

    private static String send(KafkaProducer<byte[], byte[]> producer, String topic, Map<String, String> options)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < number(options.getOrDefault("n", "1")); i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, 0, time(options, i), key(options, i), value(options, i))));
        }
        producer.flush();
        return "offsets=" + sent.get(0).get().offset() + ".." + sent.get(sent.size() - 1).get().offset();
    }
}

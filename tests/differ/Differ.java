import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * Sends the same requests to Apache Kafka and to uringlog and compares the answers, for every key
 * and version that Kafka's broker advertises. Requests are JSON, as are answers: Kafka's own
 * converters read and write both, so that nothing of ours takes part in the comparison.
 *
 * <p>Usage: Differ KAFKA_PORT URINGLOG_PORT PROGRAM.json OUT.jsonl. A line of OUT is
 * {"api", "key", "version", "case", "kafka", "uringlog", "differences": [{"path", "kafka", "uringlog"}]}.
 *
 * <p>The program is a list of cases: {"case", "before": [step], "test": step, "after": [step]}, a
 * step {"api", "request", "save": {variable: pointer}, "version"?}. The test is sent at all versions,
 * each time after its own "before" at the highest ones. In requests "$name" stands for a saved value
 * and "{n}" for the number of the run. Beside the program each key is asked with an empty request at
 * each version, and at one version too many.
 */
public class Differ {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int ANSWER_MS = 12_000;
    /** Some empty requests have no answer: Produce asks for none, with acks=0. */
    static final int ANSWER_TO_NOTHING_MS = 4_000;
    /** What passes by itself: metadata, coordinators and endings that are still under way. */
    static final Set<Integer> PASSING = Set.of(3, 5, 6, 14, 15, 51, 100);
    /** How often is asked again, and how often for a topic, which may really not be there. */
    static final int TRIES = 40;
    static final int TRIES_OF_TOPICS = 5;
    static final int PAUSE_MS = 100;
    /** How often is Kafka asked again for what it may not have heard of yet, and the pause before. */
    static final int LATER = 3;
    static final int LATER_MS = 400;
    /** Keys that are not offered on purpose: share groups, delegation tokens, telemetry. */
    static final Set<Integer> LEFT_OUT = new TreeSet<>();
    /** What differs between any two clusters, or between two moments. */
    static final Set<String> VOLATILE = Set.of("throttleTimeMs", "clusterId", "topicId", "host", "port",
        "memberId", "leader", "producerId", "sessionId", "logDir", "totalBytes", "usableBytes",
        "lastFetchTimestamp", "lastCaughtUpTimestamp", "replicaDirectoryId", "voterDirectoryId",
        "brokerEpoch", "logAppendTimeMs", "incarnationId", "transactionStartTimeMs", "lastTimestamp",
        "clientHost", "finalizedFeaturesEpoch");

    static {
        for (int key = 38; key <= 41; key++) LEFT_OUT.add(key);
        for (int key = 76; key <= 81; key++) LEFT_OUT.add(key);
        for (int key = 83; key <= 92; key++) LEFT_OUT.add(key);
    }

    /** One of the two brokers. */
    static final class Side {
        final String name;
        final int port;
        final Map<String, JsonNode> saved = new HashMap<>();
        Socket socket;
        int correlation;

        Side(String name, int port) {
            this.name = name;
            this.port = port;
        }

        void connect() throws IOException {
            close();
            socket = new Socket("127.0.0.1", port);
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(ANSWER_MS);
        }

        void close() throws IOException {
            if (socket != null) socket.close();
            socket = null;
        }

        /** The answer as JSON, or how the connection ended. */
        JsonNode ask(ApiKeys api, short version, ByteBuffer body) throws IOException {
            if (socket == null) connect();
            RequestHeaderData header = new RequestHeaderData().setRequestApiKey(api.id)
                .setRequestApiVersion(version).setCorrelationId(++correlation).setClientId("differ");
            boolean isKnown = api.isVersionEnabled(version, true);
            short headerVersion = isKnown ? api.requestHeaderVersion(version) : api.requestHeaderVersion(api.latestVersion());
            ByteBuffer head = MessageUtil.toByteBufferAccessor(header, headerVersion).buffer();
            ByteBuffer frame = ByteBuffer.allocate(4 + head.remaining() + body.remaining());
            frame.putInt(head.remaining() + body.remaining()).put(head).put(body.duplicate());
            try {
                socket.getOutputStream().write(frame.array());
                DataInputStream in = new DataInputStream(socket.getInputStream());
                byte[] answer = new byte[in.readInt()];
                in.readFully(answer);
                return decode(api, version, ByteBuffer.wrap(answer));
            } catch (EOFException | java.net.SocketException closed) {
                close();
                return TextNode.valueOf("connection closed");
            } catch (SocketTimeoutException silent) {
                close();
                return TextNode.valueOf("no answer");
            }
        }

        JsonNode decode(ApiKeys api, short version, ByteBuffer answer) {
            // A broker that doesn't know the version answers ApiVersions with version 0.
            boolean isOdd = api == ApiKeys.API_VERSIONS && !api.isVersionEnabled(version, true);
            short read = isOdd ? 0 : version;
            try {
                ByteBufferAccessor bytes = new ByteBufferAccessor(answer);
                ResponseHeaderData header = new ResponseHeaderData(bytes, api.responseHeaderVersion(read));
                if (header.correlationId() != correlation) return TextNode.valueOf("correlation id " + header.correlationId());
                ApiMessage message = api.messageType.newResponse();
                message.read(bytes, read);
                JsonNode json = toJson(api, message, read);
                return answer.hasRemaining() ? TextNode.valueOf(answer.remaining() + " bytes too many behind " + json) : json;
            } catch (RuntimeException unreadable) {
                return TextNode.valueOf("unreadable: " + unreadable);
            }
        }
    }

    static JsonNode toJson(ApiKeys api, ApiMessage message, short version) {
        try {
            Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
            if (api == ApiKeys.FETCH) {
                return (JsonNode) converter.getMethod("write", message.getClass(), short.class, boolean.class)
                    .invoke(null, message, version, false);
            }
            return (JsonNode) converter.getMethod("write", message.getClass(), short.class).invoke(null, message, version);
        } catch (ReflectiveOperationException broken) {
            throw new IllegalStateException(broken);
        }
    }

    /** Without the fields that the version doesn't have: the converters take some of them ill. */
    static JsonNode pruned(JsonNode json, Schema schema) {
        if (!json.isObject()) return json;
        Map<String, Type> known = new HashMap<>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                tagged.fields().values().forEach(it -> known.put(plain(it.name), it.type));
            } else {
                known.put(plain(field.def.name), field.def.type);
            }
        }
        ObjectNode kept = JSON.createObjectNode();
        json.properties().forEach(it -> {
            Type type = known.get(plain(it.getKey()));
            if (type != null) kept.set(it.getKey(), prunedValue(it.getValue(), type));
        });
        return kept;
    }

    static JsonNode prunedValue(JsonNode json, Type type) {
        if (type instanceof Schema schema) return pruned(json, schema);
        if (type.isArray() && json.isArray()) {
            ArrayNode kept = JSON.createArrayNode();
            Type element = type.arrayElementType().get();
            json.forEach(it -> kept.add(prunedValue(it, element)));
            return kept;
        }
        return json;
    }

    static String plain(String name) {
        return name.replace("_", "").toLowerCase(java.util.Locale.ROOT);
    }

    static ApiMessage fromJson(ApiKeys api, JsonNode whole, short version) {
        JsonNode json = pruned(whole, api.messageType.requestSchemas()[version]);
        try {
            String name = api.messageType.newRequest().getClass().getName();
            return (ApiMessage) Class.forName(name + "JsonConverter").getMethod("read", JsonNode.class, short.class)
                .invoke(null, json, version);
        } catch (ReflectiveOperationException broken) {
            throw new IllegalStateException(api + " " + version + ": " + broken.getCause(), broken);
        }
    }

    final Side kafka;
    final Side uringlog;
    final PrintStream out;
    int runs;

    Differ(Side kafka, Side uringlog, PrintStream out) {
        this.kafka = kafka;
        this.uringlog = uringlog;
        this.out = out;
    }

    /** "$name" becomes what this side answered before, "{n}" the number of the run. */
    JsonNode filled(JsonNode template, Side side) {
        if (template.isTextual()) {
            String text = template.asText();
            if (text.startsWith("$records:")) return TextNode.valueOf(records(text.substring(9), side));
            if (text.startsWith("$")) {
                JsonNode known = side.saved.get(text.substring(1));
                return known == null ? TextNode.valueOf("") : known;
            }
            return TextNode.valueOf(text.replace("{n}", Integer.toString(runs)));
        }
        if (template.isObject()) {
            ObjectNode filled = JSON.createObjectNode();
            template.properties().forEach(it -> filled.set(it.getKey(), filled(it.getValue(), side)));
            return filled;
        }
        if (template.isArray()) {
            ArrayNode filled = JSON.createArrayNode();
            template.forEach(it -> filled.add(filled(it, side)));
            return filled;
        }
        return template;
    }

    /** "COUNT", or "COUNT,producerId,epoch,sequence[,txn]" with saved values by name. */
    String records(String what, Side side) {
        String[] words = what.split(",");
        SimpleRecord[] records = new SimpleRecord[Integer.parseInt(words[0])];
        for (int at = 0; at < records.length; at++) {
            records[at] = new SimpleRecord(1_700_000_000_000L + at, ("k" + at).getBytes(), ("value " + at).getBytes());
        }
        MemoryRecords batch;
        if (words.length < 4) {
            batch = MemoryRecords.withRecords(Compression.NONE, records);
        } else {
            long id = side.saved.get(words[1]).asLong();
            short epoch = (short) side.saved.get(words[2]).asInt();
            int sequence = Integer.parseInt(words[3]);
            batch = words.length < 5
                ? MemoryRecords.withIdempotentRecords(Compression.NONE, id, epoch, sequence, records)
                : MemoryRecords.withTransactionalRecords(RecordBatch.CURRENT_MAGIC_VALUE, 0, Compression.NONE, id, epoch, sequence, 0, records);
        }
        byte[] bytes = new byte[batch.buffer().remaining()];
        batch.buffer().duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    JsonNode step(JsonNode step, short version, Side side) throws IOException {
        ApiKeys api = ApiKeys.valueOf(step.get("api").asText());
        JsonNode request = filled(step.get("request"), side);
        ByteBuffer body = MessageUtil.toByteBufferAccessor(fromJson(api, request, version), version).buffer();
        JsonNode answer = side.ask(api, version, body);
        for (int tries = 1; tries < TRIES && isPassing(answer, tries); tries++) {
            pause(PAUSE_MS);
            answer = side.ask(api, version, body);
        }
        // Kafka's parts hear of a topic one after the other, some after the answer.
        if (api == ApiKeys.CREATE_TOPICS) pause(PAUSE_MS);
        JsonNode known = answer;
        JsonNode save = step.get("save");
        if (save != null) {
            save.properties().forEach(it -> side.saved.put(it.getKey(), known.at(it.getValue().asText())));
        }
        return answer;
    }

    static boolean isPassing(JsonNode answer, int tries) {
        for (JsonNode code : answer.findValues("errorCode")) {
            boolean isOfTopics = code.asInt() == 3 || code.asInt() == 100;
            if (PASSING.contains(code.asInt()) && (!isOfTopics || tries < TRIES_OF_TOPICS)) return true;
        }
        return false;
    }

    static void pause(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException stopped) {
            throw new IllegalStateException(stopped);
        }
    }

    static short versionOf(JsonNode step) {
        ApiKeys api = ApiKeys.valueOf(step.get("api").asText());
        return step.has("version") ? (short) step.get("version").asInt() : api.latestVersion();
    }

    void runCase(JsonNode test, Map<Integer, short[]> advertised) throws IOException {
        JsonNode asked = test.get("test");
        ApiKeys api = ApiKeys.valueOf(asked.get("api").asText());
        short[] range = advertised.get((int) api.id);
        if (range == null) throw new IllegalStateException(api + " is not advertised by Kafka");
        int lowest = Math.max(range[0], asked.path("from").asInt(0));
        int highest = Math.min(range[1], asked.path("to").asInt(Short.MAX_VALUE));
        for (int version = lowest; version <= highest; version++) {
            if (!api.isVersionEnabled((short) version, true)) continue;
            runs++;
            JsonNode[] answers = new JsonNode[2];
            for (int side = 0; side < 2; side++) {
                Side of = side == 0 ? kafka : uringlog;
                of.connect();
                for (JsonNode before : test.path("before")) step(before, versionOf(before), of);
                answers[side] = step(asked, (short) version, of);
            }
            for (int later = 0; later < LATER && isRead(asked) && differ(answers); later++) {
                pause(LATER_MS);
                answers[0] = step(asked, (short) version, kafka);
            }
            for (Side of : List.of(kafka, uringlog)) {
                for (JsonNode after : test.path("after")) step(after, versionOf(after), of);
                of.close();
            }
            report(api, version, test.get("case").asText(), answers);
        }
    }

    /**
     * Whether a request may be sent again. Kafka's parts hear of topics, settings and ends of
     * transactions one after the other: an answer is of the state of one of them.
     */
    static boolean isRead(JsonNode asked) {
        String api = asked.get("api").asText();
        boolean isOfSession = asked.get("request").path("sessionEpoch").asInt(-1) != -1;
        return !isOfSession && (api.equals("FETCH") || api.contains("DESCRIBE"));
    }

    static boolean differ(JsonNode[] answers) {
        ArrayNode differences = JSON.createArrayNode();
        compare("", answers[0], answers[1], differences);
        return !differences.isEmpty();
    }

    void runEmpty(ApiKeys api, short[] range) throws IOException {
        for (int version = range[0]; version <= range[1] + 1; version++) {
            boolean isKnown = api.isVersionEnabled((short) version, true);
            short written = (short) (isKnown ? version : api.latestVersion());
            ByteBuffer body;
            try {
                body = MessageUtil.toByteBufferAccessor(api.messageType.newRequest(), written).buffer();
            } catch (RuntimeException mandatory) {
                continue;
            }
            JsonNode[] answers = new JsonNode[2];
            for (int side = 0; side < 2; side++) {
                Side of = side == 0 ? kafka : uringlog;
                of.connect();
                of.socket.setSoTimeout(ANSWER_TO_NOTHING_MS);
                answers[side] = of.ask(api, (short) version, body);
                of.close();
            }
            report(api, version, isKnown ? "empty request" : "a version too many", answers);
        }
    }

    void report(ApiKeys api, int version, String name, JsonNode[] answers) {
        ObjectNode line = JSON.createObjectNode();
        line.put("api", api.name).put("key", api.id).put("version", version).put("case", name);
        ArrayNode differences = line.putArray("differences");
        compare("", answers[0], answers[1], differences);
        line.set("kafka", answers[0]);
        line.set("uringlog", answers[1]);
        out.println(line);
    }

    static void compare(String path, JsonNode kafka, JsonNode ours, ArrayNode differences) {
        String field = path.replaceAll(".*/", "");
        if (VOLATILE.contains(field) && isPresent(kafka) == isPresent(ours)) return;
        if (kafka.isObject() && ours.isObject()) {
            Set<String> names = new TreeSet<>();
            Iterator<String> both = kafka.fieldNames();
            while (both.hasNext()) names.add(both.next());
            both = ours.fieldNames();
            while (both.hasNext()) names.add(both.next());
            for (String name : names) compare(path + "/" + name, kafka.path(name), ours.path(name), differences);
        } else if (kafka.isArray() && ours.isArray()) {
            compareLists(path, kafka, ours, differences);
        } else if (!kafka.equals(ours)) {
            differences.addObject().put("path", path).put("kafka", kafka.toString()).put("uringlog", ours.toString());
        }
    }

    /**
     * Elements that all have a name of their own are compared name by name, and the name stands in
     * the path; one that a side lacks is an empty text there. Others are compared in order.
     */
    static void compareLists(String path, JsonNode kafka, JsonNode ours, ArrayNode differences) {
        Map<String, JsonNode> left = byName(kafka);
        Map<String, JsonNode> right = byName(ours);
        if (left.size() == kafka.size() && right.size() == ours.size()) {
            Set<String> names = new TreeSet<>(left.keySet());
            names.addAll(right.keySet());
            for (String name : names) {
                compare(path + "/" + name, left.getOrDefault(name, MissingNode.getInstance()),
                    right.getOrDefault(name, MissingNode.getInstance()), differences);
            }
        } else if (kafka.size() == ours.size()) {
            for (int at = 0; at < kafka.size(); at++) compare(path + "/" + at, kafka.get(at), ours.get(at), differences);
        } else {
            differences.addObject().put("path", path).put("kafka", kafka.toString()).put("uringlog", ours.toString());
        }
    }

    /** Without the elements that have no name, and with one of those that share one. */
    static Map<String, JsonNode> byName(JsonNode array) {
        Map<String, JsonNode> named = new HashMap<>();
        array.forEach(it -> {
            String name = nameOf(it);
            if (!name.isEmpty()) named.put(name, it);
        });
        return named;
    }

    /** What tells an element from its neighbours; Kafka's hash maps have no order. */
    static String nameOf(JsonNode element) {
        if (element.isTextual()) return element.asText();
        List<String> words = new ArrayList<>();
        for (String key : List.of("name", "topic", "topicName", "apiKey", "partitionIndex", "partition", "groupId",
            "resourceName", "resourceType", "configName", "transactionalId", "nodeId", "source")) {
            JsonNode value = element.path(key);
            if (value.isIntegralNumber() || value.isTextual()) words.add(value.asText());
        }
        return String.join(",", words);
    }

    static boolean isPresent(JsonNode value) {
        if (value.isIntegralNumber()) return value.asLong() > 0;
        if (value.isTextual()) return !value.asText().isEmpty() && !value.asText().equals("AAAAAAAAAAAAAAAAAAAAAA");
        return !value.isNull() && !value.isMissingNode();
    }

    public static void main(String[] arguments) throws IOException {
        Side kafka = new Side("kafka", Integer.parseInt(arguments[0]));
        Side uringlog = new Side("uringlog", Integer.parseInt(arguments[1]));
        try (PrintStream out = new PrintStream(arguments[3])) {
            Differ differ = new Differ(kafka, uringlog, out);
            ByteBuffer body = MessageUtil.toByteBufferAccessor(ApiKeys.API_VERSIONS.messageType.newRequest(), (short) 0).buffer();
            kafka.connect();
            JsonNode table = kafka.ask(ApiKeys.API_VERSIONS, (short) 0, body);
            Map<Integer, short[]> advertised = new HashMap<>();
            for (JsonNode api : table.get("apiKeys")) {
                int key = api.get("apiKey").asInt();
                if (LEFT_OUT.contains(key)) continue;
                advertised.put(key, new short[] {(short) api.get("minVersion").asInt(), (short) api.get("maxVersion").asInt()});
            }
            for (int key : new TreeSet<>(advertised.keySet())) differ.runEmpty(ApiKeys.forId(key), advertised.get(key));
            for (JsonNode test : JSON.readTree(new File(arguments[2]))) differ.runCase(test, advertised);
        }
    }
}

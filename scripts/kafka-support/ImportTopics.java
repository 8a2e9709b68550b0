import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Adds topics that exist on disk to the bootstrap metadata of a freshly formatted Kafka metadata
 * directory, with the ids they have. A KRaft controller appends these records when it finds an
 * empty metadata log, so the broker finds its partitions in the metadata and takes none of them
 * for a stray.
 *
 *   ImportTopics METADATA-DIR NODE-ID DIRECTORY-ID TOPIC ...
 *   TOPIC is NAME:TOPIC-ID:PARTITIONS:LEADER-EPOCH[:CONFIG=VALUE...]
 *
 * Partitions come in without a leader: the controller elects one when the broker registers, as
 * after a restart, and that raises the leader epoch, so LEADER-EPOCH is the highest that the
 * partitions' files know.
 */
public class ImportTopics {
    public static void main(String[] arguments) throws Exception {
        BootstrapDirectory directory = new BootstrapDirectory(arguments[0]);
        int node = Integer.parseInt(arguments[1]);
        Uuid directoryId = Uuid.fromString(arguments[2]);
        List<ApiMessageAndVersion> records = new ArrayList<>(directory.read().records());
        for (int i = 3; i < arguments.length; i++) {
            addTopic(records, arguments[i].split(":"), node, directoryId);
        }
        directory.writeBinaryFile(BootstrapMetadata.fromRecords(records, "topics found on disk"));
        System.out.println(records.size() + " records");
    }

    private static void addTopic(
            List<ApiMessageAndVersion> records, String[] topic, int node, Uuid directoryId) {
        Uuid id = Uuid.fromString(topic[1]);
        records.add(record(new TopicRecord().setName(topic[0]).setTopicId(id), 0));
        for (int partition = 0; partition < Integer.parseInt(topic[2]); partition++) {
            records.add(record(new PartitionRecord()
                .setTopicId(id)
                .setPartitionId(partition)
                .setReplicas(List.of(node))
                .setIsr(List.of(node))
                .setLeader(-1)
                .setLeaderEpoch(Integer.parseInt(topic[3]))
                .setPartitionEpoch(0)
                .setDirectories(List.of(directoryId)), 1));
        }
        for (int i = 4; i < topic.length; i++) {
            String[] setting = topic[i].split("=", 2);
            records.add(record(new ConfigRecord()
                .setResourceType((byte) 2)
                .setResourceName(topic[0])
                .setName(setting[0])
                .setValue(setting[1]), 0));
        }
    }

    private static ApiMessageAndVersion record(ApiMessage message, int version) {
        return new ApiMessageAndVersion(message, (short) version);
    }
}

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * What kafka-dump-log prints of every partition folder in every `dir-*` of the case folders named, in
 * `dump/NAME/PARTITION.KIND.txt`: the command, its output, `---- stderr` and complaints if there are any.
 */
public class Dump {
    private static final Map<String, String> DECODERS = Map.of(
        "__cluster_metadata-", "--cluster-metadata-decoder",
        "__consumer_offsets-", "--offsets-decoder",
        "__transaction_state-", "--transaction-log-decoder");

    private static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    public static void main(String[] cases) throws Exception {
        Exit.setExitProcedure((status, message) -> { throw new Ended(status); });
        PrintStream out = System.out, err = System.err;
        for (String name : cases) {
            Path root = Path.of(name).toAbsolutePath();
            for (Path folder : list(root)) {
                if (!folder.getFileName().toString().startsWith("dir")) {
                    continue;
                }
                for (Path partition : list(folder)) {
                    if (Files.isDirectory(partition)) {
                        dump(root, folder, partition);
                    }
                }
            }
        }
        System.setOut(out);
        System.setErr(err);
        Runtime.getRuntime().halt(0);
    }

    private static List<Path> list(Path folder) throws IOException {
        try (Stream<Path> entries = Files.list(folder)) {
            return entries.sorted().toList();
        }
    }

    private static void dump(Path root, Path folder, Path partition) throws Exception {
        String name = partition.getFileName().toString();
        Path to = root.resolve("dump").resolve(folder.getFileName());
        for (String kind : List.of("log", "checkpoint", "index", "timeindex", "txnindex", "snapshot")) {
            List<String> files = list(partition).stream().map(Path::toString).filter(it -> it.endsWith("." + kind)).toList();
            if (files.isEmpty()) {
                continue;
            }
            boolean isLog = kind.equals("log") || kind.equals("checkpoint");
            List<String> flags = isLog ? List.of("--deep-iteration", "--print-data-log") : List.of();
            run(root, to.resolve(name + "." + kind + ".txt"), flags, files);
            if (kind.endsWith("index") && !kind.equals("txnindex")) {
                run(root, to.resolve(name + "." + kind + ".sanity.txt"), List.of("--index-sanity-check"), files);
            }
            for (var decoder : DECODERS.entrySet()) {
                if (isLog && name.startsWith(decoder.getKey())) {
                    run(root, to.resolve(name + "." + kind + ".decoded.txt"), List.of(decoder.getValue()), files);
                }
            }
        }
    }

    private static void run(Path root, Path to, List<String> flags, List<String> files) throws Exception {
        List<String> arguments = new ArrayList<>(flags);
        arguments.addAll(List.of("--files", String.join(",", files)));
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        int status = 0;
        try {
            DumpLogSegments.main(arguments.toArray(new String[0]));
        } catch (Ended ended) {
            status = ended.status;
        } catch (Throwable error) {
            status = 1;
            System.err.println("Exception in thread \"main\" " + error);
        }
        String text = "$ kafka-dump-log " + String.join(" ", arguments) + "\n" + out.toString(StandardCharsets.UTF_8);
        if (err.size() > 0) {
            text += "---- stderr\n" + err.toString(StandardCharsets.UTF_8);
        }
        if (status != 0) {
            text += "---- exit status " + status + "\n";
        }
        Files.createDirectories(to.getParent());
        Files.writeString(to, text.replace(root + "/", ""), StandardCharsets.UTF_8);
    }
}

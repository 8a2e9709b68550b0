"""The commands of scripts/cli-tools: what an operator does with Kafka's own command line, in the
order in which it is done.

A command is (group, tool, arguments). In the arguments {name} stands for a file of FILES, {broker}
for the broker's id, {data} for its data directory. HANG is no tool of Kafka's: it leaves a
transaction open that only an operator can end.
"""

import json
from collections import namedtuple

Command = namedtuple("Command", "group tool arguments stdin")

HANG = "hang"


def partitions(*offsets):
    return [{"topic": "records", "partition": p, "offset": offset} for p, offset in offsets]


def moves(*replicas):
    places = [
        {"topic": "plain", "partition": p, "replicas": list(ids), "log_dirs": ["any"] * len(ids)}
        for p, ids in enumerate(replicas)
    ]
    return json.dumps({"version": 1, "partitions": places})


# Files that commands name, written before the first of them runs.
FILES = {
    "deletions": json.dumps({"version": 1, "partitions": partitions((0, 2), (1, -1))}),
    "beyond": json.dumps({"version": 1, "partitions": partitions((0, 99))}),
    "nowhere": json.dumps(
        {"version": 1, "partitions": [{"topic": "missing", "partition": 0, "offset": 1}]}
    ),
    "elections": json.dumps({"partitions": [{"topic": "plain", "partition": 0}]}),
    "topics": json.dumps({"version": 1, "topics": [{"topic": "plain"}]}),
    "same_place": moves([1], [1], [1]),
    "two_replicas": moves([1, 9]),
    "reset": "records,0,3\nrecords,1,1\n",
    "reset_bad": "records,0\n",
}

LIST = []


def add(group, tool, *lines, stdin=None):
    for line in lines:
        LIST.append(Command(group, tool, line.split(), stdin))


add(
    "topics",
    "topics",
    "--create --topic plain --partitions 3",
    "--create --topic plain --partitions 3",
    "--create --topic plain --if-not-exists",
    "--create --topic records --partitions 2 --config retention.ms=86400000",
    "--create --topic compacted --config cleanup.policy=compact --config segment.bytes=2097152",
    "--create --topic default",
    "--create --topic assigned --replica-assignment 1,1",
    "--create --topic bad --config retention.ms=soon",
    "--create --topic bad --config no.such.config=1",
    "--create --topic bad --partitions 0",
    "--create --topic bad --replication-factor 3",
    "--create --topic bad --replica-assignment 1:9",
    "--create --topic bad/name",
    "--create --topic with_underscore",
    "--create --topic with.underscore",
    "--list",
    "--list --topic p.*",
    "--describe --topic plain",
    "--describe --topic records",
    "--describe --topics-with-overrides",
    "--describe --under-replicated-partitions",
    "--describe --unavailable-partitions",
    "--describe --at-min-isr-partitions --topic plain",
    "--describe --under-min-isr-partitions",
    "--describe --topic missing",
    "--describe --topic missing --if-exists",
    "--describe --partition-size-limit-per-response 2",
    "--alter --topic default --partitions 4",
    "--alter --topic default --partitions 4",
    "--alter --topic default --partitions 2",
    "--alter --topic missing --partitions 2",
    "--alter --topic assigned --partitions 3 --replica-assignment 1,1,1",
    "--describe --topic default",
    "--delete --topic default",
    "--delete --topic default",
    "--delete --topic default --if-exists",
    "--list --exclude-internal",
)

# One record a run, so that batches and sizes don't depend on time, and keys, so that partitions
# don't depend on chance.
KEYED = "--reader-property parse.key=true --reader-property key.separator=:"
for key in ("a", "b", "c", "d", "e", "f"):
    add("records", "console-producer", f"--topic records {KEYED}", stdin=f"{key}:value\n")
add("records", "console-producer", f"--topic compacted {KEYED}", stdin="key:value\n")
add("records", "console-producer", "--topic compacted", stdin="no key\n")
add(
    "records",
    "console-consumer",
    "--topic records --partition 0 --offset 0 --timeout-ms 3000",
    "--topic records --partition 1 --offset earliest --timeout-ms 3000",
    "--topic records --partition 7 --offset earliest --timeout-ms 3000",
)
# One partition: which of several a producer without keys takes is chance.
add("records", "topics", "--create --topic measured --partitions 1")
add(
    "records",
    "producer-perf",
    "--topic measured --num-records 20000 --record-size 100 --throughput -1",
    "--topic measured --num-records 20000 --record-size 100 --throughput -1 "
    "--command-property enable.idempotence=false acks=1 compression.type=lz4",
)

for time in ("-1", "-2", "-3", "-4", "-5", "-6", "latest", "earliest", "max-timestamp", "0"):
    LIST.append(
        Command("get-offsets", "get-offsets", ["--topic", "records", "--time", time], None)
    )
add(
    "get-offsets",
    "get-offsets",
    "--time 99999999999999",
    "--time -7 --topic records",
    "--topic-partitions measured:0,records:0-2",
    "--topic missing",
    "--exclude-internal-topics",
)

add(
    "delete-records",
    "delete-records",
    "--offset-json-file {deletions}",
    "--offset-json-file {beyond}",
    "--offset-json-file {nowhere}",
)
add("delete-records", "get-offsets", "--topic records --time earliest")

add(
    "configs",
    "configs",
    "--describe --entity-type topics --entity-name records",
    "--describe --entity-type topics --entity-name records --all",
    "--describe --entity-type topics",
    "--alter --entity-type topics --entity-name records --add-config segment.ms=3600000",
    "--alter --entity-type topics --entity-name records --add-config "
    "cleanup.policy=[compact,delete],max.message.bytes=2000000",
    "--describe --entity-type topics --entity-name records",
    "--alter --entity-type topics --entity-name records --delete-config segment.ms",
    "--alter --entity-type topics --entity-name records --delete-config segment.ms",
    "--alter --entity-type topics --entity-name records --add-config retention.ms=soon",
    "--alter --entity-type topics --entity-name records --add-config no.such=1",
    "--alter --entity-type topics --entity-name missing --add-config retention.ms=1",
    "--describe --entity-type topics --entity-name missing",
    "--describe --entity-type brokers --entity-name {broker}",
    "--alter --entity-type brokers --entity-name {broker} --add-config log.retention.ms=9000000",
    "--describe --entity-type brokers --entity-name {broker}",
    "--alter --entity-type brokers --entity-default --add-config log.retention.ms=8000000",
    "--describe --entity-type brokers --entity-default",
    "--describe --entity-type topics --entity-name plain --all",
    "--alter --entity-type brokers --entity-name {broker} --delete-config log.retention.ms",
    "--alter --entity-type brokers --entity-default --delete-config log.retention.ms",
    "--alter --entity-type brokers --entity-name {broker} --add-config node.id=7",
    "--alter --entity-type brokers --entity-name {broker} --add-config log.retention.ms=soon",
    "--describe --entity-type brokers --entity-name 99",
    "--describe --entity-type brokers --entity-name {broker} --all",
    "--alter --entity-type clients --entity-name c --add-config producer_byte_rate=1000000",
    "--alter --entity-type users --entity-default --add-config consumer_byte_rate=2000000",
    "--alter --entity-type users --entity-name u --entity-type clients --entity-name c "
    "--add-config request_percentage=50",
    "--alter --entity-type clients --entity-name c --add-config no_such_rate=1",
    "--alter --entity-type ips --entity-name 127.0.0.1 --add-config connection_creation_rate=100",
    "--describe --entity-type clients --entity-name c",
    "--describe --entity-type users",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type ips",
    "--alter --entity-type clients --entity-name c --delete-config producer_byte_rate",
    "--alter --entity-type users --entity-default --delete-config consumer_byte_rate",
    "--describe --entity-type clients",
    "--alter --entity-type users --entity-name u "
    "--add-config SCRAM-SHA-256=[iterations=8192,password=secret]",
    "--describe --entity-type users --entity-name u",
    "--alter --entity-type users --entity-name u --delete-config SCRAM-SHA-256",
    "--alter --entity-type users --entity-name u --delete-config SCRAM-SHA-256",
    "--alter --entity-type groups --entity-name g "
    "--add-config consumer.session.timeout.ms=50000",
    "--alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=5",
    "--describe --entity-type groups --entity-name g",
    "--alter --entity-type groups --entity-name g --delete-config consumer.session.timeout.ms",
    "--alter --entity-type groups --entity-name g --delete-config consumer.session.timeout.ms",
    "--alter --group g2 --add-config consumer.heartbeat.interval.ms=6000",
    "--alter --group g2 --add-config no.such=1",
    "--alter --group g2 --add-config consumer.heartbeat.interval.ms=soon",
    "--describe --group g2",
    "--describe --entity-type groups",
    "--describe --entity-type groups --entity-name g2 --all",
    "--alter --group g2 --delete-config consumer.heartbeat.interval.ms",
    "--describe --group g2",
    "--describe --entity-type broker-loggers --entity-name {broker}",
    "--alter --entity-type broker-loggers --entity-name {broker} --add-config root=WARN",
    "--describe --broker-logger {broker}",
    "--alter --broker-logger {broker} --add-config root=LOUD",
    "--alter --broker-logger {broker} --add-config no.such.logger=INFO",
    "--alter --broker-logger {broker} --delete-config no.such.logger",
    "--alter --broker-logger {broker} --delete-config root",
    "--alter --broker-logger {broker} --add-config root=INFO",
    "--describe --broker-logger 99",
    "--describe --topic records",
    "--describe --broker {broker}",
    "--describe --broker-defaults",
    "--alter --client c2 --add-config consumer_byte_rate=3000000",
    "--alter --client-defaults --add-config producer_byte_rate=4000000",
    "--alter --user-defaults --add-config request_percentage=70",
    "--alter --ip-defaults --add-config connection_creation_rate=90",
    "--describe --client c2",
    "--describe --client-defaults",
    "--describe --user-defaults",
    "--describe --ip-defaults",
    "--alter --client c2 --delete-config consumer_byte_rate",
    "--alter --client-defaults --delete-config producer_byte_rate",
    "--alter --user-defaults --delete-config request_percentage",
    "--alter --ip-defaults --delete-config connection_creation_rate",
    "--alter --entity-type client-metrics --entity-name m --add-config interval.ms=60000",
    "--describe --entity-type client-metrics",
    "--alter --client-metrics m --delete-config interval.ms",
)

add(
    "client-metrics",
    "client-metrics",
    "--alter --name m1 --interval 30000 --metrics org.apache.kafka.producer --match client_id=c",
    "--alter --name m1 --interval 5",
    "--alter --name m1 --match no_such=c",
    "--list",
    "--describe --name m1",
    "--describe",
    "--delete --name m1",
    "--delete --name m1",
    "--list",
)

add(
    "log-dirs",
    "log-dirs",
    "--describe --topic-list records",
    "--describe --broker-list {broker} --topic-list records,compacted",
    "--describe --broker-list 99",
    "--describe --topic-list missing",
)
add("broker-api-versions", "api-versions", "")
add(
    "cluster",
    "cluster",
    "cluster-id",
    "list-endpoints",
    "list-endpoints --include-fenced-brokers",
    "unregister --id 99",
)
add(
    "features",
    "features",
    "describe",
    "upgrade --feature no.such=1",
    "upgrade --metadata 4.3-IV0 --dry-run",
    "upgrade --feature metadata.version=30",
    "downgrade --feature metadata.version=20",
    "disable --feature metadata.version",
)
add(
    "metadata-quorum",
    "metadata-quorum",
    "describe --status",
    "describe --replication",
    "describe --replication --human-readable",
)
add(
    "leader-election",
    "leader-election",
    "--election-type preferred --topic plain --partition 0",
    "--election-type preferred --topic plain --partition 9",
    "--election-type preferred --topic missing --partition 0",
    "--election-type unclean --all-topic-partitions",
    "--election-type preferred --path-to-json-file {elections}",
)
add(
    "reassign-partitions",
    "reassign",
    "--list",
    "--topics-to-move-json-file {topics} --broker-list {broker} --generate",
    "--reassignment-json-file {same_place} --execute",
    "--reassignment-json-file {same_place} --verify",
    "--reassignment-json-file {same_place} --cancel",
    "--reassignment-json-file {two_replicas} --execute",
)
add(
    "acls",
    "acls",
    "--list",
    "--add --allow-principal User:u --operation Read --topic plain",
    "--remove --force --allow-principal User:u --operation Read --topic plain",
)

add(
    "groups",
    "console-consumer",
    "--topic records --group g1 --from-beginning --max-messages 1 --timeout-ms 20000",
    "--topic records --group g2 --from-beginning --max-messages 1 --timeout-ms 20000 "
    "--consumer-property group.protocol=consumer",
)
add("groups", "consumer-perf", "--topic measured --group p1 --num-records 40000 --timeout 20000")
add(
    "groups",
    "groups",
    "--list",
    "--list --state",
    "--list --state Stable",
    "--list --type",
    "--describe --group g1",
    "--describe --group g1 --state",
    "--describe --group g1 --members --verbose",
    "--describe --group g2",
    "--describe --all-groups",
    "--describe --all-groups --state",
    "--describe --all-groups --members",
    "--describe --group missing",
    "--describe --group missing --members",
    "--reset-offsets --group g1 --topic records --to-earliest",
    "--reset-offsets --group g1 --topic records --to-earliest --execute",
    "--reset-offsets --group g1 --topic records:0 --to-latest --execute",
    "--reset-offsets --group g1 --topic records --to-offset 3 --execute",
    "--reset-offsets --group g1 --topic records --to-offset 99 --execute",
    "--reset-offsets --group g1 --topic records --shift-by -1 --execute",
    "--reset-offsets --group g1 --topic records --to-current --execute",
    "--reset-offsets --group g1 --topic records --to-datetime 2020-01-01T00:00:00.000 --execute",
    "--reset-offsets --group g1 --topic records --by-duration P1D --execute",
    "--reset-offsets --group g1 --all-topics --to-earliest --export",
    "--reset-offsets --group g1 --from-file {reset} --execute",
    "--reset-offsets --group g1 --from-file {reset_bad} --execute",
    "--reset-offsets --group new --topic records --to-earliest --execute",
    "--reset-offsets --group g2 --topic records --to-latest --execute",
    "--reset-offsets --group g1 --topic missing --to-latest --execute",
    "--reset-offsets --all-groups --topic records --to-earliest --dry-run",
    "--describe --group g1 --offsets",
    "--delete-offsets --group g1 --topic records:0",
    "--delete-offsets --group g1 --topic missing",
    "--delete --group g1 --group g2",
    "--delete --group g1",
    "--validate-regex p.*",
)
add("groups", "all-groups", "--list", "--list --group-type classic", "--list --consumer")
add("groups", "groups", "--delete --all-groups", "--list", "--describe --all-groups")

add(
    "transactions",
    "producer-perf",
    "--topic measured --num-records 500 --record-size 100 --throughput -1 "
    "--transactional-id t1 --transaction-duration-ms 20000",
)
add(
    "transactions",
    "transactions",
    "list",
    "describe --transactional-id t1",
    "describe --transactional-id missing",
    "describe-producers --topic measured --partition 0",
    "describe-producers --topic missing --partition 0",
    "find-hanging --broker-id {broker}",
    "abort --topic measured --partition 0 --start-offset 0",
    "forceTerminateTransaction --transactionalId t1",
    "forceTerminateTransaction --transactionalId missing",
)
VERIFICATION = "transaction.partition.verification.enable"
WHERE = "--topic plain --partition 0"
add("transactions", HANG, "t2 plain 0")
add(
    "transactions",
    "configs",
    f"--alter --entity-type brokers --entity-name {{broker}} --add-config {VERIFICATION}=false",
)
add("transactions", HANG, "t2 plain 0")
add(
    "transactions",
    "transactions",
    f"describe-producers {WHERE}",
    "find-hanging --broker-id {broker} --max-transaction-timeout 0",
    "find-hanging --topic plain --max-transaction-timeout 0",
    f"abort {WHERE} --start-offset 7",
    f"abort {WHERE} --start-offset 0",
    f"describe-producers {WHERE}",
    "find-hanging --broker-id {broker} --max-transaction-timeout 0",
    "list --duration-filter 100000000",
    "list --transactional-id-pattern t.*",
)
add(
    "transactions",
    "configs",
    f"--alter --entity-type brokers --entity-name {{broker}} --delete-config {VERIFICATION}",
)

# Last: it makes a topic of its own.
add(
    "e2e-latency",
    "e2e-latency",
    "--topic latency --num-records 1000 --producer-acks all --record-size 100",
    "--topic latency --num-records 1000 --producer-acks 1 --record-size 1000 "
    "--record-key-size 10 --num-headers 2 --record-header-key-size 5 --record-header-size 20",
    "--topic latency --num-records 1000 --producer-acks 0 --record-size 100",
)

add(
    "dump-log",
    "dump-log",
    "--files {data}/records-0/00000000000000000000.log",
    "--files {data}/records-1/00000000000000000000.log --print-data-log",
    "--files {data}/compacted-0/00000000000000000000.log --print-data-log --deep-iteration",
    "--files {data}/records-0/00000000000000000000.index,"
    "{data}/records-0/00000000000000000000.timeindex --index-sanity-check",
    "--files {data}/records-0/00000000000000000000.index --verify-index-only",
    "--files {data}/records-9/00000000000000000000.log",
)

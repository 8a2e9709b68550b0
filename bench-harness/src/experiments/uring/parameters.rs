//! What can be set.

use crate::parameters::{Kind, Parameter, Scaled, number, numbers};

const MIB: u64 = 1 << 20;

/// See [`super`].
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "part",
        kind: Kind::Choice {
            default: "all",
            of: &["all", "disk", "plans", "socket", "reads", "queues", "syncs", "index"],
        },
        unit: "",
        help: "what is compared",
    },
    number(
        "point_ms",
        Scaled { quick: 15, normal: 100, full: 2000 },
        (1, 600_000),
        "ms",
        "how long each way is measured at each point",
    ),
    number(
        "disk_bytes",
        Scaled { quick: 4 * MIB, normal: 128 * MIB, full: 1024 * MIB },
        (MIB, 64 << 30),
        "bytes",
        "disk: length of the file that is written",
    ),
    numbers(
        "block_bytes",
        Scaled {
            quick: &[4096, 65_536],
            normal: &[4096, 16_384, 65_536, 1 << 20],
            full: &[4096, 16_384, 65_536, 262_144, 1 << 20],
        },
        (4096, 4 * MIB),
        "bytes",
        "disk: bytes of a write, multiples of 4,096",
    ),
    numbers(
        "partitions",
        Scaled { quick: &[1], normal: &[1, 4, 100, 1000], full: &[1, 4, 16, 64, 100, 300, 1000] },
        (1, 2000),
        "",
        "plans: partitions that get a batch in each turn",
    ),
    numbers(
        "batch_bytes",
        Scaled {
            quick: &[1024],
            normal: &[1024, 4096, 65_536, 1 << 20],
            full: &[1024, 4096, 16_384, 65_536, 131_072, 262_144, 1 << 20],
        },
        (128, MIB),
        "bytes",
        "plans: bytes of their batches",
    ),
    number(
        "middle_partitions",
        Scaled { quick: 8, normal: 16, full: 16 },
        (1, 2000),
        "",
        "plans: partitions where something else is swept",
    ),
    number(
        "middle_batch_bytes",
        Scaled::same(16_384),
        (128, MIB),
        "bytes",
        "plans: bytes of a batch where something else is swept",
    ),
    number(
        "group_batches",
        Scaled { quick: 8, normal: 16, full: 16 },
        (2, 128),
        "",
        "plans: batches of a partition that come together, where group commit is swept",
    ),
    number(
        "journal_bytes",
        Scaled { quick: 4 * MIB, normal: 64 * MIB, full: 64 * MIB },
        (MIB, 1 << 30),
        "bytes",
        "plans: length of the commit journal's file",
    ),
    Parameter {
        name: "pinned",
        kind: Kind::Flag { default: true },
        unit: "",
        help: "plans: the shard's thread and its kernel workers stay on the first core",
    },
    numbers(
        "in_flight",
        Scaled { quick: &[16], normal: &[1, 16, 64], full: &[1, 4, 16, 64] },
        (1, 1024),
        "",
        "socket: frames under way on the connection",
    ),
    numbers(
        "answer_bytes",
        Scaled {
            quick: &[4096, 1 << 20],
            normal: &[4096, 65_536, 1 << 20, 4 << 20],
            full: &[4096, 16_384, 65_536, 262_144, 1 << 20, 4 << 20],
        },
        (8, 16 * MIB),
        "bytes",
        "reads: bytes of an answer, multiples of 8",
    ),
    numbers(
        "connections",
        Scaled { quick: &[32], normal: &[1, 16, 256], full: &[1, 4, 16, 64, 256] },
        (1, 1024),
        "",
        "reads: connections with a request under way each",
    ),
    number(
        "middle_answer_bytes",
        Scaled::same(65_536),
        (8, 16 * MIB),
        "bytes",
        "reads: bytes of an answer where connections are swept",
    ),
    number(
        "middle_connections",
        Scaled::same(8),
        (1, 1024),
        "",
        "reads: connections where bytes are swept",
    ),
    number(
        "read_bytes",
        Scaled { quick: 16 * MIB, normal: 128 * MIB, full: 1024 * MIB },
        (16 * MIB, 64 << 30),
        "bytes",
        "reads: length of the file that is served",
    ),
    numbers(
        "depth",
        Scaled { quick: &[1, 16], normal: &[1, 4, 16, 64, 256], full: &[1, 4, 16, 64, 256] },
        (1, 1024),
        "",
        "queues: writes under way, each to a file of its own",
    ),
    number("queued_bytes", Scaled::same(4096), (1, MIB), "bytes", "queues: bytes of a write"),
    numbers(
        "synced_bytes",
        Scaled {
            quick: &[1000, 64_000],
            normal: &[1000, 16_000, 256_000],
            full: &[1000, 4000, 16_000, 64_000, 256_000, 1_000_000],
        },
        (1, 16 * MIB),
        "bytes",
        "syncs: bytes of an append",
    ),
    number(
        "indexed_bytes",
        Scaled::same(5000),
        (1, MIB),
        "bytes",
        "index: bytes of an append, each with an index entry",
    ),
];

//! What came of it: tables of medians with their range, ratios round by round, and the goals.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use uringlog::shard::JournalOptions;

use super::machine::{self, Machine};
use super::run::{Cell, Limits, Measured, Variant};
use crate::experiments::measure::f64_of;

/// One partition, single small batches.
pub const SINGLE_CELLS: [Cell; 2] =
    [Cell { partitions: 1, batch_bytes: 1 << 10 }, Cell { partitions: 1, batch_bytes: 16 << 10 }];
const MIDDLE: Cell = Cell { partitions: 16, batch_bytes: 16 << 10 };
const MANY: Cell = Cell { partitions: 1000, batch_bytes: 1 << 10 };

/// Goals of the journal, as ratios to the linked chains.
const MIDDLE_THROUGHPUT_MIN: f64 = 1.8;
const MIDDLE_P50_MAX: f64 = 0.5;
const MANY_THROUGHPUT_MIN: f64 = 4.0;
const SINGLE_P50_MAX: f64 = 0.6;
const CPU_MAX: f64 = 0.3;
const THROUGHPUT_MIN: f64 = 0.97;
/// p99.9 of turns with files being synced to that of the others.
const SETTLING_P999_MAX: f64 = 2.0;
/// Fewer turns say nothing about one in a thousand.
const P999_TURNS_MIN: u64 = 1000;

/// One run and where it belongs.
pub struct Run {
    pub label: String,
    pub cell: Cell,
    pub variant: Variant,
    pub round: usize,
    pub measured: Measured,
}

/// Everything measured so far.
pub struct Results {
    pub machines: Vec<Machine>,
    pub runs: Vec<Run>,
    pub load_after: String,
    load_before: String,
    journal: JournalOptions,
    limits: Limits,
}

fn empty() -> Histogram<u64> {
    super::run::histogram()
}

fn ms(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    f64_of(histogram.value_at_quantile(quantile)) / 1e6
}

impl Run {
    fn throughput(&self) -> f64 {
        f64_of(self.measured.batches) / self.measured.wall.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.measured.cpu.as_secs_f64() * 1e6 / f64_of(self.measured.batches.max(1))
    }

    fn per_turn(&self, count: u64) -> f64 {
        f64_of(count) / f64_of(self.measured.turns.max(1))
    }

    /// The figures of the table, in its order.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let it = &self.measured;
        let turn = |quantile| ms(&it.turn, quantile);
        vec![
            ("batches/s", self.throughput()),
            ("MB/s", f64_of(it.bytes) / it.wall.as_secs_f64() / 1e6),
            ("p50 ms", turn(0.5)),
            ("p99 ms", turn(0.99)),
            ("p99.9 ms", turn(0.999)),
            ("max ms", turn(1.0)),
            ("CPU us/batch", self.cpu_us()),
            ("others %", 100.0 * it.others),
            ("syncs/turn", self.per_turn(it.handed.syncs)),
            ("records/turn", self.per_turn(it.journal.records)),
            ("copied MB", f64_of(it.journal.copied) / 1e6),
            ("settles", f64_of(it.journal.settles)),
            ("full", f64_of(it.journal.full)),
            ("large", f64_of(it.journal.large)),
        ]
    }

    /// A line while it runs.
    pub fn line(&self) -> String {
        let figures = self.figures();
        let shown: Vec<String> =
            figures.iter().map(|(name, value)| format!("{name} {}", short(*value))).collect();
        let Run { label, cell, variant, round, measured } = self;
        let seconds = measured.wall.as_secs_f64();
        format!("{label}, {cell}, {variant}, round {round}, {seconds:.1} s: {}", shown.join(", "))
    }

    /// All that was measured, for machines.
    pub fn json(&self) -> Value {
        let it = &self.measured;
        let quantiles = |of: &Histogram<u64>| {
            json!({"turns": of.len(), "p50_ms": ms(of, 0.5), "p90_ms": ms(of, 0.9),
                   "p99_ms": ms(of, 0.99), "p999_ms": ms(of, 0.999), "max_ms": ms(of, 1.0)})
        };
        let handed = it.handed;
        let journal = it.journal;
        json!({
            "experiment": "journal", "label": self.label, "partitions": self.cell.partitions,
            "batch_bytes": self.cell.batch_bytes, "variant": self.variant.to_string(),
            "round": self.round, "turns": it.turns, "batches": it.batches, "bytes": it.bytes,
            "seconds": it.wall.as_secs_f64(), "is_cut": it.is_cut,
            "others_cpu_share": it.others, "batches_per_s": self.throughput(),
            "cpu_us_per_batch": self.cpu_us(),
            "turn": quantiles(&it.turn), "settling_turn": quantiles(&it.settling),
            "quiet_turn": quantiles(&it.quiet),
            "handed": {"plans": handed.plans, "syncs": handed.syncs,
                       "settling_syncs": handed.settling_syncs,
                       "durable_writes": handed.durable_writes},
            "journal": {"records": journal.records, "plans": journal.plans,
                        "copied": journal.copied, "written": journal.written,
                        "full": journal.full, "large": journal.large,
                        "settles": journal.settles},
        })
    }
}

/// Which way a goal goes.
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Results {
    pub fn new(journal: JournalOptions, limits: Limits) -> Results {
        Results {
            machines: Vec::new(),
            runs: Vec::new(),
            load_after: "?".to_owned(),
            load_before: machine::load(),
            journal,
            limits,
        }
    }

    /// The report.
    pub fn markdown(&self) -> String {
        let mut text = self.head();
        for machine in &self.machines {
            let cells = self.cells(&machine.label);
            if cells.is_empty() {
                continue;
            }
            let _ = write!(text, "\n## {}\n", machine.label);
            text.push_str(&self.figures_table(&machine.label, &cells));
            text.push_str(&self.ratio_table(&machine.label, &cells));
            text.push_str(&self.goals_table(&machine.label, &cells));
        }
        text
    }

    fn head(&self) -> String {
        let JournalOptions { bytes, plan_bytes_max, .. } = self.journal;
        let plan_max = match plan_bytes_max.0 {
            u64::MAX => "none".to_owned(),
            bytes => bytes.to_string(),
        };
        let mut text = String::from("# The commit journal\n\n");
        let _ = writeln!(text, "- {}, revision {}", machine::host(), machine::revision());
        for machine in &self.machines {
            let _ = writeln!(text, "{}", machine.line());
        }
        let Limits { bytes: most, time, core, .. } = self.limits;
        let core = core.map_or("not pinned".to_owned(), |core| format!("pinned to core {core}"));
        let _ = writeln!(
            text,
            "- device tier; journal of {bytes} bytes, plans up to {plan_max} bytes; a run ends \
             after {most} bytes of batches or {} s (`cut`); shard and kernel workers {core}, the \
             pool's {} threads anywhere",
            time.as_secs_f64(),
            super::pool::THREADS,
        );
        let _ =
            writeln!(text, "- load average {} before, {} after", self.load_before, self.load_after);
        let _ = writeln!(text, "- `{}`\n", machine::command());
        text.push_str(EXPLANATION);
        text
    }

    fn cells(&self, label: &str) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for run in self.runs.iter().filter(|run| run.label == label) {
            if !cells.contains(&run.cell) {
                cells.push(run.cell);
            }
        }
        cells
    }

    fn variants(&self, label: &str, cell: Cell) -> Vec<Variant> {
        let mut variants: Vec<Variant> = Vec::new();
        for run in self.runs.iter().filter(|run| run.label == label && run.cell == cell) {
            if !variants.contains(&run.variant) {
                variants.push(run.variant);
            }
        }
        variants
    }

    fn of(&self, label: &str, cell: Cell, variant: Variant) -> impl Iterator<Item = &Run> {
        let label = label.to_owned();
        self.runs
            .iter()
            .filter(move |run| run.label == label && run.cell == cell && run.variant == variant)
    }

    fn figures_table(&self, label: &str, cells: &[Cell]) -> String {
        let Some(first) = self.runs.first() else { return String::new() };
        let names: Vec<&str> = first.figures().iter().map(|(name, _)| *name).collect();
        let mut text = format!("\n| turn | variant | {} | |\n|", names.join(" | "));
        text.push_str(&"---|".repeat(names.len() + 3));
        text.push('\n');
        for cell in cells {
            for variant in self.variants(label, *cell) {
                let rounds: Vec<_> = self.of(label, *cell, variant).collect();
                let values = |number: usize| {
                    rounds.iter().map(|run| run.figures()[number].1).collect::<Vec<f64>>()
                };
                let shown: Vec<String> =
                    (0..names.len()).map(|number| spread(&values(number))).collect();
                let cut = rounds.iter().any(|run| run.measured.is_cut);
                let cut = if cut { "cut" } else { "" };
                let _ = writeln!(text, "| {cell} | {variant} | {} | {cut} |", shown.join(" | "));
            }
        }
        text
    }

    /// Ratio of a figure, round by round.
    fn ratios(
        &self,
        label: &str,
        cell: Cell,
        (over, under): (Variant, Variant),
        figure: impl Fn(&Run) -> f64,
    ) -> Vec<f64> {
        let pairs = self.of(label, cell, over).filter_map(|run| {
            let other = self.of(label, cell, under).find(|other| other.round == run.round)?;
            Some(figure(run) / figure(other))
        });
        pairs.collect()
    }

    fn ratio_table(&self, label: &str, cells: &[Cell]) -> String {
        let mut text = String::from(
            "\n| turn | journal / linked: batches/s | p50 | p99.9 | CPU | \
             journal / better of serial and pool: batches/s | \
             p99.9 with syncs for space / without, ms |\n|---|---|---|---|---|---|---|\n",
        );
        for cell in cells {
            let linked = (Variant::Journal, Variant::Linked);
            let ratio =
                |figure: fn(&Run) -> f64| spread(&self.ratios(label, *cell, linked, figure));
            let _ = writeln!(
                text,
                "| {cell} | {} | {} | {} | {} | {} | {} |",
                ratio(Run::throughput),
                ratio(|run| ms(&run.measured.turn, 0.5)),
                ratio(|run| ms(&run.measured.turn, 0.999)),
                ratio(Run::cpu_us),
                spread(&self.over_plain(label, *cell)),
                self.settling(label, *cell).map_or("-".to_owned(), |(settling, quiet)| {
                    format!("{} / {}", short(settling), short(quiet))
                }),
            );
        }
        text
    }

    fn over_plain(&self, label: &str, cell: Cell) -> Vec<f64> {
        let against = |plain| self.ratios(label, cell, (Variant::Journal, plain), Run::throughput);
        let (serial, pool) = (against(Variant::Serial), against(Variant::Pool));
        match median(&pool) < median(&serial) || serial.is_empty() {
            true => pool,
            false => serial,
        }
    }

    /// p99.9 of turns while files are synced for the journal's sake, and of the others, over all
    /// rounds; `None` where there were too few of either.
    fn settling(&self, label: &str, cell: Cell) -> Option<(f64, f64)> {
        let (mut settling, mut quiet) = (empty(), empty());
        for run in self.of(label, cell, Variant::Journal) {
            settling.add(&run.measured.settling).expect("both have the same bounds");
            quiet.add(&run.measured.quiet).expect("both have the same bounds");
        }
        let enough = P999_TURNS_MIN <= settling.len() && P999_TURNS_MIN <= quiet.len();
        enough.then(|| (ms(&settling, 0.999), ms(&quiet, 0.999)))
    }

    fn goals_table(&self, label: &str, cells: &[Cell]) -> String {
        let mut text = String::from("\n| goal | wanted | median | |\n|---|---|---|---|\n");
        let mut line = |name: &str, goal: &Goal, values: &[f64]| {
            if values.is_empty() {
                return;
            }
            let reached = median(values);
            let (wanted, is_met) = match goal {
                Goal::AtLeast(least) => (format!(">= {least}"), *least <= reached),
                Goal::AtMost(most) => (format!("<= {most}"), reached <= *most),
            };
            let verdict = if is_met { "PASS" } else { "FAIL" };
            let _ = writeln!(text, "| {name} | {wanted} | {} | {verdict} |", short(reached));
        };
        let linked = (Variant::Journal, Variant::Linked);
        let throughput = |cell| self.ratios(label, cell, linked, Run::throughput);
        let p50 = |cell| self.ratios(label, cell, linked, |run| ms(&run.measured.turn, 0.5));
        let cpu = |cell| self.ratios(label, cell, linked, Run::cpu_us);
        line("16 x 16 KB: batches/s", &Goal::AtLeast(MIDDLE_THROUGHPUT_MIN), &throughput(MIDDLE));
        line("16 x 16 KB: p50", &Goal::AtMost(MIDDLE_P50_MAX), &p50(MIDDLE));
        line("16 x 16 KB: CPU per batch", &Goal::AtMost(CPU_MAX), &cpu(MIDDLE));
        line("1000 x 1 KB: batches/s", &Goal::AtLeast(MANY_THROUGHPUT_MIN), &throughput(MANY));
        line("1000 x 1 KB: CPU per batch", &Goal::AtMost(CPU_MAX), &cpu(MANY));
        for cell in SINGLE_CELLS {
            line(&format!("{cell}: p50"), &Goal::AtMost(SINGLE_P50_MAX), &p50(cell));
        }
        for cell in cells {
            let name = format!("{cell}: batches/s");
            line(&name, &Goal::AtLeast(THROUGHPUT_MIN), &throughput(*cell));
        }
        for cell in cells {
            let name = format!("{cell}: p99.9 with syncs for space / without");
            let ratio = self.settling(label, *cell).map(|(settling, quiet)| settling / quiet);
            line(&name, &Goal::AtMost(SETTLING_P999_MAX), ratio.as_slice());
        }
        text
    }
}

const EXPLANATION: &str = "\
A turn: each of N partitions gets one batch of S bytes, all are durable before the next turn. \
`linked`: io_uring, one chain per plan that ends in fdatasync. `journal`: io_uring and the commit \
journal. `serial`: system calls, write and fdatasync in turn. `pool`: system calls, the syncs on \
threads. `plain-journal`, `pool-journal`: system calls and the journal. Medians over the rounds \
(least..most); ratios are made round by round. CPU is that of the process (kernel workers and sync \
threads included), without what making batches took; the kernel's own threads are not in it. \
`others %` is what they and everybody else took of all cores: high means a noisy run. \
`syncs/turn` counts those for the journal's space, too; `settles` are partitions synced for it, \
`full` plans that synced their own file since it was full, `large` those over the limit.
";

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Median and range.
pub fn spread(values: &[f64]) -> String {
    let values = sorted(values);
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return "-".to_owned();
    };
    let middle = short(values[values.len() / 2]);
    let (least, most) = (short(*least), short(*most));
    if least == most { middle } else { format!("{middle} ({least}..{most})") }
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.1 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uringlog::log::journal::JournalCounters;
    use uringlog::ring::RingCounters;

    use super::super::run::journal_options;
    use super::super::shard::Handed;
    use super::*;
    use crate::experiments::measure::Traced;
    use crate::record::Latency;

    fn run(variant: Variant, round: usize, turn_us: u64, cpu: Duration) -> Run {
        let mut turn = empty();
        let turns = 2 * P999_TURNS_MIN;
        turn.record_n(turn_us * 1000, turns).expect("in range");
        let mut half = empty();
        half.record_n(turn_us * 1000, turns / 2).expect("in range");
        let wall = Duration::from_micros(turn_us * turns);
        let measured = Measured {
            turns,
            batches: 16 * turns,
            bytes: 16 * turns * (16 << 10),
            wall,
            cpu,
            others: 0.0,
            turn,
            latency: Latency::new(),
            ring: RingCounters::default(),
            traced: Traced::default(),
            workers: 0,
            settling: half.clone(),
            quiet: half,
            handed: Handed::default(),
            journal: JournalCounters::default(),
            is_cut: false,
        };
        Run { label: "here".to_owned(), cell: MIDDLE, variant, round, measured }
    }

    /// The journal with turns of so many us against 3000 us linked.
    fn results(journal_us: [u64; 3]) -> Results {
        let limits = Limits { bytes: 1, ..Limits::default() };
        let mut results = Results::new(journal_options(1 << 20, 64 << 10), limits);
        for (round, us) in journal_us.into_iter().enumerate() {
            results.runs.push(run(Variant::Linked, round, 3000, Duration::from_secs(10)));
            results.runs.push(run(Variant::Journal, round, us, Duration::from_secs(2)));
        }
        results
    }

    #[test]
    fn goals_are_judged_by_the_median_of_the_rounds() {
        let goals = results([1000, 100_000, 1500]).goals_table("here", &[MIDDLE]);
        let line = |name: &str| {
            let found = goals.lines().find(|line| line.contains(name));
            found.expect("the goal has a line").to_owned()
        };
        assert!(line("16 x 16 KB: batches/s | >= 1.8").ends_with("2.00 | PASS |"), "{goals}");
        assert!(line("16 x 16 KB: p50").ends_with("0.50 | PASS |"), "{goals}");
        assert!(line("CPU per batch").ends_with("0.20 | PASS |"), "{goals}");
        assert!(line("with syncs for space").ends_with("1.00 | PASS |"), "{goals}");
        let goals = results([3000, 3100, 100]).goals_table("here", &[MIDDLE]);
        assert!(goals.contains(">= 1.8 | 1.00 | FAIL |"), "{goals}");
        assert!(goals.contains("<= 0.5 | 1.00 | FAIL |"), "{goals}");
        assert!(goals.contains(">= 0.97 | 1.00 | PASS |"), "{goals}");
    }

    #[test]
    fn figures_show_median_and_range() {
        assert_eq!(spread(&[3.0, 1.0, 200.0]), "3.00 (1.00..200)");
        assert_eq!((spread(&[]), spread(&[2.0])), ("-".to_owned(), "2.00".to_owned()));
        let table = results([1000, 1000, 1000]).figures_table("here", &[MIDDLE]);
        assert!(table.contains("| 16 x 16 KB | journal | 16000 | 262 | 1.00 |"), "{table}");
        let heads: Vec<usize> = table.trim().lines().map(|it| it.matches('|').count()).collect();
        assert!(heads.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
}

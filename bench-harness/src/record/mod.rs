//! What is recorded: one folder holds all raw data of a run, and the report is made from it alone.
//!
//! ```text
//! OUT/
//!   run.json           state (running, complete, partial), command, cells and what became of each
//!   machine.json       host, kernel, processor, memory, file systems, versions, revision, settings
//!   noise.jsonl        the calibration loop before, between and after the cells
//!   results.json       all figures, a JSON list, one figure a line
//!   report.md          the report, its pictures in pictures/*.svg
//!   EXPERIMENT/
//!     record.jsonl     checks, tables, notes, pictures declared, and which histograms there are
//!     series.jsonl     per-second series, events (rolls, retention passes) and counters
//!     *.hlog           latencies as HdrHistogram interval logs (V2, nanoseconds, 3 digits)
//!     *.hgrm           the same as percentile text
//! ```
//!
//! # Figures
//!
//! A figure in `results.json` is an object with these members, always all of them:
//!
//! | member | holds |
//! |---|---|
//! | `experiment` | its name |
//! | `engine` | `uring`, `plain-file`, `kafka`; `none` where the experiment isn't one per engine |
//! | `tier` | `device`, `page-cache`, or `none` |
//! | `file_system` | the label of `--fs` |
//! | `round` | 0 and up: with several rounds the figure stands there once for each |
//! | `parameters` | every parameter of the experiment with the value that the figure belongs to |
//! | `figure` | its name |
//! | `value` | a number, or a list of numbers (one for each segment, say); bytes are integers |
//! | `unit` | `bytes`, `offset`, `ns`, `records/s`, ... |
//! | `better` | `exact` (must be the same wherever it is run), `lower`, `higher`, or `none` |

pub mod figure;
pub mod latency;
pub mod line;
pub mod output;
pub mod picture;
pub mod recorder;

pub use figure::{Better, Figure, Unit, unit};
pub use latency::Latency;
pub use line::{Line, Place};
pub use output::Output;
pub use picture::{Kind, Picture};
pub use recorder::{Recorder, Table};

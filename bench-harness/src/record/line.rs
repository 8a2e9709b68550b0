//! Lines of `record.jsonl` and `series.jsonl`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::picture::Picture;

/// The cell that something was recorded in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the engine, or "none".
    pub engine: String,
    /// Name of the tier, or "none".
    pub tier: String,
    /// Label of the file system.
    pub file_system: String,
    /// 0 and up.
    pub round: u32,
}

impl Place {
    /// In words.
    pub fn shown(&self) -> String {
        let Place { experiment, engine, tier, file_system, round } = self;
        format!("{experiment}, {engine}, {tier}, {file_system}, round {round}")
    }
}

/// One line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// A figure that must have a certain value.
    Check {
        #[serde(flatten)]
        place: Place,
        parameters: BTreeMap<String, Value>,
        figure: String,
        expected: Value,
        measured: Value,
        source: String,
    },
    /// A table as it is shown.
    Table {
        #[serde(flatten)]
        place: Place,
        title: String,
        columns: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    /// What differs, and why.
    Note {
        #[serde(flatten)]
        place: Place,
        text: String,
    },
    /// What is to be drawn.
    Picture { experiment: String, picture: Picture },
    /// Histograms in a file of the same folder.
    Latency {
        #[serde(flatten)]
        place: Place,
        parameters: BTreeMap<String, Value>,
        latency: String,
        count: u64,
        file: String,
    },
    /// One value of a series, at a time since the cell began.
    Sample {
        #[serde(flatten)]
        place: Place,
        parameters: BTreeMap<String, Value>,
        series: String,
        unit: String,
        seconds: f64,
        value: f64,
    },
    /// Something happened.
    Event {
        #[serde(flatten)]
        place: Place,
        parameters: BTreeMap<String, Value>,
        event: String,
        seconds: f64,
        label: String,
    },
    /// What a counter stood at.
    Counter {
        #[serde(flatten)]
        place: Place,
        parameters: BTreeMap<String, Value>,
        counter: String,
        seconds: f64,
        value: u64,
    },
}

impl Line {
    /// Of which cell; pictures are declared for all.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Line::Check { place, .. }
            | Line::Table { place, .. }
            | Line::Note { place, .. }
            | Line::Latency { place, .. }
            | Line::Sample { place, .. }
            | Line::Event { place, .. }
            | Line::Counter { place, .. } => Some(place),
            Line::Picture { .. } => None,
        }
    }
}

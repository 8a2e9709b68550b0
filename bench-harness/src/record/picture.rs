//! What the report draws, declared by the experiments that record the data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A picture. One is drawn for each tier and file system; engines are overlaid or stand side by
/// side.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Picture {
    /// Of its file, unique in the experiment: lower case, with hyphens.
    pub name: String,
    /// Above it.
    pub title: String,
    /// What one should see in it, a sentence or two.
    pub see: String,
    /// Which data, drawn how.
    pub draw: Kind,
    /// Only data whose parameter has this value.
    #[serde(default)]
    pub only: Vec<(String, Value)>,
    /// Places on the x axis of a [`Kind::Scaling`] that are marked, and what stands there.
    #[serde(default)]
    pub marks: Vec<(f64, String)>,
}

impl Picture {
    /// Of all data that the kind names.
    pub fn new(name: &str, title: &str, see: &str, draw: Kind) -> Picture {
        let (name, title, see) = (name.to_owned(), title.to_owned(), see.to_owned());
        Picture { name, title, see, draw, only: Vec::new(), marks: Vec::new() }
    }

    /// Leaves out what was recorded with another value of the parameter.
    #[must_use]
    pub fn only(mut self, parameter: &str, value: impl Into<Value>) -> Picture {
        self.only.push((parameter.to_owned(), value.into()));
        self
    }

    /// Marks a place on the x axis of a [`Kind::Scaling`]: a default, a limit.
    #[must_use]
    pub fn mark(mut self, x: f64, label: &str) -> Picture {
        self.marks.push((x, label.to_owned()));
        self
    }
}

/// Which data, by the names it was recorded under, and how it is drawn.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// Latency by percentile, on the axis 1/(1-q): a line for each engine and latency, all rounds
    /// together.
    Percentiles { latencies: Vec<String> },
    /// Series over time, with events marked: a panel for each engine, of the first round.
    Timeline { series: Vec<String>, events: Vec<String> },
    /// How often which latency occurred when: a panel for each engine, of the first round.
    HeatMap { latency: String },
    /// Figures against a parameter, both axes logarithmic: a line for each engine and figure,
    /// median and range over the rounds.
    Scaling { figures: Vec<String>, against: String },
    /// Bars of figures, median with the range over the rounds; with `by`, a group of bars for each
    /// value of that parameter.
    Bars { figures: Vec<String>, by: Option<String> },
}

/// Names for a [`Kind`].
pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

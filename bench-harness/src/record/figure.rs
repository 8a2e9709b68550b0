//! A figure: the one thing that is compared and quoted.

#![expect(dead_code, reason = "what no experiment has needed yet; goes with the last such item")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::line::Place;

/// Which way a figure is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// It follows from the parameters: any difference is a fault.
    Exact,
    /// Times and costs.
    Lower,
    /// Rates.
    Higher,
    /// It is told, not judged.
    None,
}

/// What a figure counts, and which way it is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// As recorded.
    pub name: &'static str,
    /// Which way it is to go.
    pub better: Better,
}

impl Unit {
    /// The same unit where it is told and not judged.
    pub const fn told(self) -> Unit {
        Unit { better: Better::None, ..self }
    }
}

/// The units in use; experiments may make others.
pub mod unit {
    use super::{Better, Unit};

    /// Sizes of files that follow from the parameters.
    pub const BYTES: Unit = Unit { name: "bytes", better: Better::Exact };
    /// Logical numbers of records.
    pub const OFFSET: Unit = Unit { name: "offset", better: Better::Exact };
    /// Bytes in a file.
    pub const POSITION: Unit = Unit { name: "position", better: Better::Exact };
    /// Counts that follow from the parameters.
    pub const COUNT: Unit = Unit { name: "count", better: Better::Exact };
    /// Latencies.
    pub const NS: Unit = Unit { name: "ns", better: Better::Lower };
    /// Times of a whole run.
    pub const SECONDS: Unit = Unit { name: "s", better: Better::Lower };
    /// Rates.
    pub const RECORDS_PER_SECOND: Unit = Unit { name: "records/s", better: Better::Higher };
    /// Rates.
    pub const BATCHES_PER_SECOND: Unit = Unit { name: "batches/s", better: Better::Higher };
    /// Rates.
    pub const BYTES_PER_SECOND: Unit = Unit { name: "bytes/s", better: Better::Higher };
    /// Costs.
    pub const CPU_SECONDS_PER_GB: Unit = Unit { name: "CPU s/GB", better: Better::Lower };
    /// Shares and ratios, which are told.
    pub const RATIO: Unit = Unit { name: "ratio", better: Better::None };
}

/// A figure as it stands in `results.json`; see the [module](super).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Of which cell.
    #[serde(flatten)]
    pub place: Place,
    /// All parameters with the values that it belongs to.
    pub parameters: BTreeMap<String, Value>,
    /// Its name.
    pub figure: String,
    /// A number or a list of numbers.
    pub value: Value,
    /// What it counts.
    pub unit: String,
    /// Which way it is to go.
    pub better: Better,
}

impl Figure {
    /// Its value, when that is one number.
    pub fn number(&self) -> Option<f64> {
        self.value.as_f64()
    }
}

/// Whether a value is what figures may be: a number or a list of numbers.
pub fn is_measure(value: &Value) -> bool {
    let is_list = |list: &Vec<Value>| list.iter().all(Value::is_number);
    value.is_number() || value.as_array().is_some_and(is_list)
}

/// The file's text: a JSON list, one figure a line.
pub fn to_text(figures: &[Figure]) -> String {
    let lines: Vec<_> = figures
        .iter()
        .map(|it| serde_json::to_string(it).expect("figures hold strings and numbers only"))
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_a_list_and_come_back() {
        let place = Place {
            experiment: "roll-by-size".to_owned(),
            engine: "uring".to_owned(),
            tier: "device".to_owned(),
            file_system: "ext4".to_owned(),
            round: 2,
        };
        let figure = Figure {
            place,
            parameters: BTreeMap::from([("record_size".to_owned(), 1024.into())]),
            figure: "base_offsets".to_owned(),
            value: vec![0, 1028].into(),
            unit: unit::OFFSET.name.to_owned(),
            better: unit::OFFSET.better,
        };
        let text = to_text(&[figure.clone(), figure.clone()]);
        let expected = "[\n{\"experiment\":\"roll-by-size\",\"engine\":\"uring\",\
                        \"tier\":\"device\",\"file_system\":\"ext4\",\"round\":2,\
                        \"parameters\":{\"record_size\":1024},\"figure\":\"base_offsets\",\
                        \"value\":[0,1028],\"unit\":\"offset\",\"better\":\"exact\"},\n";
        assert!(text.starts_with(expected), "{text}");
        let back: Vec<Figure> = serde_json::from_str(&text).expect("a list");
        assert_eq!(back, [figure.clone(), figure]);
        assert_eq!(to_text(&[]), "[\n\n]\n");
    }

    #[test]
    fn measures_are_numbers_and_lists_of_them() {
        assert!(is_measure(&1.5.into()) && is_measure(&vec![1, 2].into()));
        for wrong in [Value::Null, "1".into(), true.into(), vec!["1"].into()] {
            assert!(!is_measure(&wrong), "{wrong}");
        }
    }
}

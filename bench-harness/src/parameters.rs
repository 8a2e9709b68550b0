//! What `--set key=value` may change: typed and bounded, with the bound in the error.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::experiments::Failure;
use crate::registry::Experiment;

/// A value for each size of run.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<T> {
    /// With `--quick`.
    pub quick: T,
    /// With neither.
    pub normal: T,
    /// With `--full`.
    pub full: T,
}

impl<T: Copy> Scaled<T> {
    /// The same in each.
    pub const fn same(value: T) -> Scaled<T> {
        Scaled { quick: value, normal: value, full: value }
    }

    /// The one for a scale.
    pub fn of(&self, scale: Scale) -> T {
        match scale {
            Scale::Quick => self.quick,
            Scale::Normal => self.normal,
            Scale::Full => self.full,
        }
    }
}

/// How large a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// The phenomena and rough figures, in seconds.
    Quick,
    /// In between.
    Normal,
    /// Figures to be quoted.
    Full,
}

impl Scale {
    /// As machine records name it.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Quick => "quick",
            Scale::Normal => "normal",
            Scale::Full => "full",
        }
    }
}

/// Type, default and bounds. Bounds include their ends.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number.
    Number { default: Scaled<u64>, min: u64, max: u64 },
    /// A number with a fraction.
    Decimal { default: Scaled<f64>, min: f64, max: f64 },
    /// `true` or `false`.
    Flag { default: bool },
    /// One of a few words.
    Choice { default: &'static str, of: &'static [&'static str] },
    /// Whole numbers, separated by commas: the points of a sweep.
    Numbers { default: Scaled<&'static [u64]>, min: u64, max: u64 },
}

/// Something about an experiment that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// In lower case with underscores.
    pub name: &'static str,
    /// Type, default and bounds.
    pub kind: Kind,
    /// What it counts; empty when that says nothing.
    pub unit: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
}

/// A [`Kind::Number`] with its bounds, for an experiment's table.
pub const fn number(
    name: &'static str,
    default: Scaled<u64>,
    (min, max): (u64, u64),
    unit: &'static str,
    help: &'static str,
) -> Parameter {
    Parameter { name, kind: Kind::Number { default, min, max }, unit, help }
}

/// A [`Kind::Numbers`] with the bounds of each.
pub const fn numbers(
    name: &'static str,
    default: Scaled<&'static [u64]>,
    (min, max): (u64, u64),
    unit: &'static str,
    help: &'static str,
) -> Parameter {
    Parameter { name, kind: Kind::Numbers { default, min, max }, unit, help }
}

/// A [`Kind::Flag`].
pub const fn flag(name: &'static str, default: bool, help: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Flag { default }, unit: "", help }
}

/// The same number in every size of run.
pub const fn same(value: u64) -> Scaled<u64> {
    Scaled::same(value)
}

/// A number for each size of run.
pub const fn scaled(quick: u64, normal: u64, full: u64) -> Scaled<u64> {
    Scaled { quick, normal, full }
}

impl Parameter {
    /// A line of `list`.
    pub fn describe(&self) -> String {
        let default = shown(&self.default(Scale::Normal));
        format!("{}={default}: {} ({})", self.name, self.help, self.bounds())
    }

    fn bounds(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        match self.kind {
            Kind::Number { min, max, .. } => format!("{min} to {max}{unit}"),
            Kind::Decimal { min, max, .. } => format!("{min} to {max}{unit}"),
            Kind::Flag { .. } => "true or false".to_owned(),
            Kind::Choice { of, .. } => format!("one of {}", of.join(", ")),
            Kind::Numbers { min, max, .. } => {
                format!("numbers from {min} to {max}{unit}, separated by commas")
            }
        }
    }

    /// Its value when nothing is set.
    pub fn default(&self, scale: Scale) -> Value {
        match self.kind {
            Kind::Number { default, .. } => default.of(scale).into(),
            Kind::Decimal { default, .. } => default.of(scale).into(),
            Kind::Flag { default } => default.into(),
            Kind::Choice { default, .. } => default.into(),
            Kind::Numbers { default, .. } => default.of(scale).to_vec().into(),
        }
    }

    /// Whether every default is within its bounds: a fact about the table, for its test.
    #[cfg(test)]
    pub fn is_consistent(&self) -> bool {
        let scales = [Scale::Quick, Scale::Normal, Scale::Full];
        scales.iter().all(|scale| self.parse(&shown(&self.default(*scale))).is_ok())
    }

    fn parse(&self, text: &str) -> Result<Value, Failure> {
        let parsed = match self.kind {
            Kind::Number { min, max, .. } => bounded(text, min, max).map(Value::from),
            Kind::Decimal { min, max, .. } => bounded(text, min, max).map(Value::from),
            Kind::Flag { .. } => text.parse::<bool>().ok().map(Value::from),
            Kind::Choice { of, .. } => of.contains(&text).then(|| Value::from(text)),
            Kind::Numbers { min, max, .. } => {
                let numbers = text.split(',').map(|part| bounded(part.trim(), min, max));
                numbers.collect::<Option<Vec<u64>>>().map(Value::from)
            }
        };
        parsed.ok_or_else(|| {
            let (name, bounds) = (self.name, self.bounds());
            Failure::Usage(format!("--set {name}={text}: {name} must be {bounds}"))
        })
    }
}

fn bounded<T: std::str::FromStr + PartialOrd>(text: &str, min: T, max: T) -> Option<T> {
    let value = text.replace('_', "").parse().ok()?;
    (min <= value && value <= max).then_some(value)
}

/// A value as `--set` takes it.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// `key=value`, not yet looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    key: String,
    value: String,
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').ok_or("want key=value")?;
        Ok(Setting { key: key.trim().to_owned(), value: value.trim().to_owned() })
    }
}

impl Setting {
    /// Whether it means this parameter: by its name, or by `EXPERIMENT.NAME` where others have one
    /// of the same name.
    fn names(&self, experiment: &Experiment, parameter: &Parameter) -> bool {
        match self.key.split_once('.') {
            Some((of, name)) => of == experiment.name && name == parameter.name,
            None => self.key == parameter.name,
        }
    }
}

/// The parameters of an experiment with their values.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    values: BTreeMap<String, Value>,
    set: Vec<String>,
}

impl Parameters {
    /// Defaults, changed by the settings that name a parameter of the experiment.
    ///
    /// # Errors
    /// A value of the wrong type or out of bounds.
    pub fn new(
        experiment: &Experiment,
        scale: Scale,
        settings: &[Setting],
    ) -> Result<Parameters, Failure> {
        let mut parameters = Parameters::default();
        for parameter in experiment.parameters {
            let setting = settings.iter().rfind(|it| it.names(experiment, parameter));
            let value = match setting {
                Some(setting) => parameter.parse(&setting.value)?,
                None => parameter.default(scale),
            };
            if setting.is_some() {
                parameters.set.push(parameter.name.to_owned());
            }
            parameters.values.insert(parameter.name.to_owned(), value);
        }
        Ok(parameters)
    }

    /// All of them.
    pub fn values(&self) -> &BTreeMap<String, Value> {
        &self.values
    }

    /// Whether the command line set one of these.
    pub fn is_any_set(&self, names: &[&str]) -> bool {
        self.set.iter().any(|it| names.contains(&it.as_str()))
    }

    /// A [`Kind::Number`].
    pub fn number(&self, name: &str) -> u64 {
        self.get(name).as_u64().expect("a parameter of kind Number")
    }

    /// A [`Kind::Number`] as a length.
    pub fn length(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).expect("usize is 64 bits")
    }

    /// A [`Kind::Decimal`].
    pub fn decimal(&self, name: &str) -> f64 {
        self.get(name).as_f64().expect("a parameter of kind Decimal")
    }

    /// A [`Kind::Flag`].
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).as_bool().expect("a parameter of kind Flag")
    }

    /// A [`Kind::Choice`].
    pub fn choice(&self, name: &str) -> &str {
        self.get(name).as_str().expect("a parameter of kind Choice")
    }

    /// A [`Kind::Numbers`].
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        let list = self.get(name).as_array().expect("a parameter of kind Numbers");
        list.iter().map(|it| it.as_u64().expect("a number")).collect()
    }

    fn get(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or_else(|| panic!("{name} is not in the experiment's table"))
    }
}

/// Every setting names a parameter of one of the experiments at least.
///
/// # Errors
/// An unknown parameter, with the known ones.
pub fn check_keys(experiments: &[&Experiment], settings: &[Setting]) -> Result<(), Failure> {
    for setting in settings {
        let has = |it: &&Experiment| it.parameters.iter().any(|of| setting.names(it, of));
        if experiments.iter().any(has) {
            continue;
        }
        let known = experiments.iter().map(|it| {
            let names: Vec<_> = it.parameters.iter().map(|it| it.name).collect();
            format!("{}: {}", it.name, names.join(", "))
        });
        return Err(Failure::Usage(format!(
            "--set {}: no such parameter; there are, for {}",
            setting.key,
            known.collect::<Vec<_>>().join("; for ")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Parameter = Parameter {
        name: "record_size",
        kind: Kind::Number { default: Scaled::same(1024), min: 0, max: 1 << 20 },
        unit: "bytes",
        help: "value of a record",
    };
    const SWEEP: Parameter = Parameter {
        name: "sweep",
        kind: Kind::Numbers {
            default: Scaled { quick: &[1], normal: &[1, 10], full: &[1, 10, 100] },
            min: 1,
            max: 1000,
        },
        unit: "",
        help: "points",
    };
    const EXPERIMENT: Experiment = Experiment {
        name: "test",
        question: "?",
        parameters: &[SIZE, SWEEP],
        engines: &[],
        tiers: &[],
        file_systems: false,
        seconds: Scaled::same(1),
        run: |_, _| Ok(()),
    };

    fn parameters(settings: &[&str], scale: Scale) -> Result<Parameters, Failure> {
        let settings: Result<Vec<Setting>, String> = settings.iter().map(|it| it.parse()).collect();
        let settings = settings.map_err(Failure::Usage)?;
        check_keys(&[&EXPERIMENT], &settings)?;
        Parameters::new(&EXPERIMENT, scale, &settings)
    }

    #[test]
    fn values_are_typed_and_bounded() {
        let set = parameters(&["record_size=1_023", "sweep=1, 1000"], Scale::Quick);
        let set = set.expect("both are fine");
        assert_eq!(set.number("record_size"), 1023);
        assert_eq!(set.numbers("sweep"), [1, 1000]);
        assert!(set.is_any_set(&["record_size"]));
        let unset = parameters(&[], Scale::Quick).expect("defaults");
        assert_eq!((unset.number("record_size"), unset.numbers("sweep")), (1024, vec![1]));
        assert!(!unset.is_any_set(&["record_size"]));
        let named = parameters(&["test.sweep=7"], Scale::Quick).expect("it is of this one");
        assert_eq!(named.numbers("sweep"), [7]);
        assert!(parameters(&["other.sweep=7"], Scale::Quick).is_err());
        let full = parameters(&[], Scale::Full).expect("defaults");
        assert_eq!(full.numbers("sweep"), [1, 10, 100]);
    }

    #[test]
    fn errors_name_the_parameter_and_its_bounds() {
        let cases = [
            ("record_size=-1", "record_size must be 0 to 1048576 bytes"),
            ("record_size=1048577", "record_size must be 0 to 1048576 bytes"),
            ("record_size=many", "record_size must be 0 to 1048576 bytes"),
            ("sweep=1,1001", "sweep must be numbers from 1 to 1000"),
            ("sweep=", "sweep must be numbers from 1 to 1000"),
            ("size=1", "--set size: no such parameter; there are, for test: record_size, sweep"),
            ("size", "want key=value"),
        ];
        for (text, expected) in cases {
            let error = parameters(&[text], Scale::Normal).expect_err("an error").to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

//! Log levels that clients change while the server runs, as Kafka's brokers have them
//! (`RuntimeLoggerManager`, KIP-412): gone with the process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::broker::alterations::Operation;
use crate::broker::errors::Refusal;
use crate::wire::error::ErrorCode;

/// The logger whose level all have that have none of their own.
const ROOT: &str = "root";

/// What logs: the layers by their paths, with dots as Kafka's loggers have them.
const LOGGERS: [&str; 8] = [
    ROOT,
    "uringlog",
    "uringlog.broker",
    "uringlog.broker.coordinators",
    "uringlog.cli",
    "uringlog.log",
    "uringlog.ring",
    "uringlog.shard",
];

/// Kafka's levels. Nothing here is fatal, so that FATAL lets nothing through.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("DEBUG", LevelFilter::DEBUG),
    ("ERROR", LevelFilter::ERROR),
    ("FATAL", LevelFilter::OFF),
    ("INFO", LevelFilter::INFO),
    ("TRACE", LevelFilter::TRACE),
    ("WARN", LevelFilter::WARN),
];

/// What is done with a filter in `RUST_LOG`'s form.
type Apply = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The levels of this process.
pub struct LogLevels {
    base: String,
    own: Mutex<BTreeMap<&'static str, LevelFilter>>,
    apply: Apply,
}

impl LogLevels {
    /// `base` is the filter that the process began with, in `RUST_LOG`'s form; `apply` puts
    /// another one in its place.
    pub fn new(base: String, apply: Apply) -> LogLevels {
        LogLevels { base, own: Mutex::default(), apply }
    }

    /// Every logger with its level.
    pub fn all(&self) -> Vec<(&'static str, &'static str)> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let filter = filter(&self.base, &own);
        // What a filter says about fields of spans isn't a matter of loggers.
        let targets = filter.parse().unwrap_or_else(|_| Targets::new());
        LOGGERS.iter().map(|name| (*name, shown(&targets, name))).collect()
    }

    /// Changes levels, or looks whether they could be changed.
    ///
    /// # Errors
    /// INVALID_CONFIG for loggers and levels that don't exist, INVALID_REQUEST for what can't be
    /// done with a level; nothing has changed then.
    pub fn alter(&self, changes: &[(String, Operation)], is_trial: bool) -> Result<(), Refusal> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut after = own.clone();
        for (name, operation) in changes {
            change(&mut after, name, operation)?;
        }
        if is_trial || after == *own {
            return Ok(());
        }
        let failed = |error| Refusal::new(ErrorCode::UnknownServerError, error);
        (self.apply)(&filter(&self.base, &after)).map_err(failed)?;
        *own = after;
        Ok(())
    }
}

impl fmt::Debug for LogLevels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LogLevels").field("base", &self.base).finish_non_exhaustive()
    }
}

fn change(
    own: &mut BTreeMap<&'static str, LevelFilter>,
    name: &str,
    operation: &Operation,
) -> Result<(), Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidRequest, message);
    let not_allowed = |operation| {
        invalid(format!("{operation} operation is not allowed for the BROKER_LOGGER resource"))
    };
    match operation {
        Operation::Set(level) => {
            let logger = logger(name)?;
            own.insert(logger, filter_of(name, level)?);
        }
        Operation::Delete => match logger(name)? {
            ROOT => {
                let message = "Removing the log level of the root logger is not allowed";
                return Err(invalid(message.to_owned()));
            }
            logger => {
                own.remove(logger);
            }
        },
        Operation::Append(_) => return Err(not_allowed("APPEND")),
        Operation::Subtract(_) => return Err(not_allowed("SUBTRACT")),
    }
    Ok(())
}

fn logger(name: &str) -> Result<&'static str, Refusal> {
    let found = LOGGERS.iter().find(|known| **known == name).copied();
    found.ok_or_else(|| {
        Refusal::new(ErrorCode::InvalidConfig, format!("Logger {name} does not exist!"))
    })
}

fn filter_of(name: &str, level: &str) -> Result<LevelFilter, Refusal> {
    let found = LEVELS.iter().find(|known| known.0 == level).map(|known| known.1);
    found.ok_or_else(|| {
        let known: Vec<&str> = LEVELS.iter().map(|known| known.0).collect();
        let message = format!(
            "Cannot set the log level of {name} to {level} as it is not a supported log level. \
             Valid log levels are {}",
            known.join(", ")
        );
        Refusal::new(ErrorCode::InvalidConfig, message)
    })
}

/// What comes later in a filter counts.
fn filter(base: &str, own: &BTreeMap<&'static str, LevelFilter>) -> String {
    let directives = own.iter().map(|(name, level)| match *name {
        ROOT => level.to_string(),
        name => format!("{}={level}", target(name)),
    });
    let base = Some(base.to_owned()).filter(|base| !base.is_empty());
    base.into_iter().chain(directives).collect::<Vec<_>>().join(",")
}

fn target(logger: &str) -> String {
    logger.replace('.', "::")
}

fn shown(targets: &Targets, logger: &str) -> &'static str {
    let level = match logger {
        ROOT => targets.default_level().unwrap_or(LevelFilter::OFF),
        name => level_of(targets, &target(name)),
    };
    LEVELS.iter().find(|known| known.1 == level).map_or("FATAL", |known| known.0)
}

/// The most that a target lets through.
fn level_of(targets: &Targets, target: &str) -> LevelFilter {
    use tracing::Level;
    let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
    let most = levels.into_iter().find(|level| targets.would_enable(target, level));
    most.map_or(LevelFilter::OFF, LevelFilter::from_level)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Levels that begin with this filter, and the filters that were applied.
    fn levels(base: &str) -> (LogLevels, Arc<Mutex<Vec<String>>>) {
        let applied = Arc::new(Mutex::new(Vec::new()));
        let seen = applied.clone();
        let apply = move |filter: &str| {
            seen.lock().expect("one thread").push(filter.to_owned());
            Ok(())
        };
        (LogLevels::new(base.to_owned(), Box::new(apply)), applied)
    }

    fn level(levels: &LogLevels, logger: &str) -> &'static str {
        levels.all().into_iter().find(|(name, _)| *name == logger).expect("a logger").1
    }

    fn set(name: &str, level: &str) -> Vec<(String, Operation)> {
        vec![(name.to_owned(), Operation::Set(level.to_owned()))]
    }

    fn delete(name: &str) -> Vec<(String, Operation)> {
        vec![(name.to_owned(), Operation::Delete)]
    }

    #[test]
    fn a_level_counts_for_what_lies_below_until_it_is_deleted() {
        let (levels, applied) = levels("warn");
        assert!(levels.all().iter().all(|(_, level)| *level == "WARN"), "{:?}", levels.all());
        levels.alter(&set("uringlog.broker", "DEBUG"), false).expect("a logger and a level");
        assert_eq!(level(&levels, "uringlog.broker.coordinators"), "DEBUG");
        assert_eq!((level(&levels, "uringlog.shard"), level(&levels, ROOT)), ("WARN", "WARN"));
        levels.alter(&set(ROOT, "FATAL"), false).expect("a logger and a level");
        assert_eq!(level(&levels, "uringlog.shard"), "FATAL");
        levels.alter(&delete("uringlog.broker"), false).expect("a logger");
        levels.alter(&delete("uringlog.ring"), false).expect("it has no level of its own");
        assert_eq!(level(&levels, "uringlog.broker"), "FATAL");
        let expected =
            ["warn,uringlog::broker=debug", "warn,off,uringlog::broker=debug", "warn,off"];
        assert_eq!(*applied.lock().expect("one thread"), expected);
    }

    #[test]
    fn the_first_filter_is_shown_as_it_counts() {
        let (levels, _) = levels("info,uringlog::shard=trace");
        assert_eq!((level(&levels, ROOT), level(&levels, "uringlog.shard")), ("INFO", "TRACE"));
        levels.alter(&set("uringlog.shard", "ERROR"), false).expect("a logger and a level");
        assert_eq!(level(&levels, "uringlog.shard"), "ERROR");
        assert_eq!(level(&self::levels("").0, ROOT), "ERROR", "what an empty filter lets through");
        assert_eq!(level(&self::levels("off").0, ROOT), "FATAL");
    }

    #[test]
    fn refusals_have_kafkas_words_and_change_nothing() {
        let (levels, applied) = levels("warn");
        let refused = |changes: &[_]| {
            let refusal = levels.alter(changes, false).expect_err("refused");
            (refusal.code, refusal.message)
        };
        let both = [set(ROOT, "DEBUG"), set("no.such", "DEBUG")].concat();
        let unknown = (ErrorCode::InvalidConfig, "Logger no.such does not exist!".to_owned());
        assert_eq!(refused(&both), unknown);
        assert_eq!(refused(&delete("no.such")), unknown);
        let (code, message) = refused(&set(ROOT, "debug"));
        assert_eq!(code, ErrorCode::InvalidConfig);
        assert!(message.ends_with("DEBUG, ERROR, FATAL, INFO, TRACE, WARN"), "{message}");
        assert_eq!(refused(&delete(ROOT)).0, ErrorCode::InvalidRequest);
        let append = [(ROOT.to_owned(), Operation::Append("DEBUG".to_owned()))];
        assert_eq!(refused(&append).0, ErrorCode::InvalidRequest);
        levels.alter(&set(ROOT, "DEBUG"), true).expect("could be done");
        assert!(applied.lock().expect("one thread").is_empty());
    }
}

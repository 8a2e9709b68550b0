//! What an experiment gets to know of the cell that it is to carry out.

#![expect(dead_code, reason = "what no experiment has needed yet; goes with the last such item")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use uringlog::Durability;

use super::terminal::{Task, Terminal};
use crate::engines::{EngineName, Tier};
use crate::experiments::{Doing, Failure};
use crate::parameters::{Parameters, Scale};

/// Set by Ctrl-C and SIGTERM; a second one ends the program at once.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals are caught.
    ///
    /// # Errors
    /// When the system refuses handlers.
    pub fn listen() -> Result<Interrupt, Failure> {
        let interrupt = Interrupt::default();
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // In this order: the first signal finds the flag unset, and sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 130, interrupt.0.clone())
                .doing("listen to signals")?;
            signal_hook::flag::register(signal, interrupt.0.clone()).doing("listen to signals")?;
        }
        Ok(interrupt)
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How servers of the cell ended that nobody had told to: what a request says then, that its
/// connection is lost, is only what follows from it.
#[derive(Clone, Debug, Default)]
pub struct Endings(Arc<Mutex<Vec<String>>>);

impl Endings {
    /// A server has ended, in words.
    pub fn add(&self, how: String) {
        self.0.lock().expect("nobody panics with it").push(how);
    }

    /// The failure with its cause, when a server's end is that and the failure doesn't say so.
    pub fn explain(&self, failure: Failure) -> Failure {
        let endings = self.0.lock().expect("nobody panics with it");
        let said = failure.to_string();
        match endings.first() {
            Some(how) if !said.contains(how.as_str()) => Failure::Wrong(format!("{how} ({said})")),
            _ => failure,
        }
    }
}

/// A cell, and the means to carry it out.
pub struct Context {
    /// What can be set, with its values.
    pub parameters: Parameters,
    /// How large the run is.
    pub scale: Scale,
    /// 0 and up.
    pub round: u32,
    /// How many there are.
    pub rounds: u32,
    /// Of everything random.
    pub seed: u64,
    /// Label of the file system under test.
    pub file_system: String,
    /// An empty folder on it, removed when the cell is over.
    pub folder: PathBuf,
    /// Where servers' logs go: on a full disk under test they would be lost.
    pub logs: PathBuf,
    /// Servers that ended by themselves are told to it.
    pub endings: Endings,
    pub(super) engine: Option<EngineName>,
    pub(super) tier: Option<Tier>,
    pub(super) terminal: Terminal,
    pub(super) interrupt: Interrupt,
}

impl Context {
    /// The cell's engine; `None` for experiments without cells for engines.
    pub fn engine(&self) -> Option<EngineName> {
        self.engine
    }

    /// The cell's tier; `None` for experiments without cells for tiers.
    pub fn tier(&self) -> Option<Tier> {
        self.tier
    }

    /// The cell as a part of files' names.
    pub fn file_name(&self, name: &str) -> String {
        let engine = self.engine.map_or("none", EngineName::name);
        let tier = self.tier.map_or("none", Tier::name);
        let text = format!("{name}.{engine}.{tier}.{}.r{}", self.file_system, self.round);
        let keeps = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        text.chars().map(|it| if keeps(it) { it } else { '-' }).collect()
    }

    /// The cell's tier as the library takes it; `device` where the experiment has none.
    pub fn durability(&self) -> Durability {
        self.tier.unwrap_or(Tier::Device).durability()
    }

    /// To be asked in every loop, at least once a second.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] after Ctrl-C.
    pub fn check(&self) -> Result<(), Failure> {
        if self.interrupt.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// A bar that shows itself when the task takes longer than two seconds.
    pub fn progress(&self, total: u64, what: &str) -> Task {
        self.terminal.task(total, what)
    }

    /// Tells the user something at once.
    pub fn tell(&self, text: &str) {
        self.terminal.tell(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_end_is_the_cause_of_what_fails_then() {
        let lost = || Failure::Wrong("the connection is lost".to_owned());
        let endings = Endings::default();
        assert_eq!(endings.explain(lost()).to_string(), "wrong: the connection is lost");
        endings.add("the server has ended".to_owned());
        let text = endings.explain(lost()).to_string();
        assert_eq!(text, "wrong: the server has ended (wrong: the connection is lost)");
        let said = endings.explain(Failure::Wrong("the server has ended".to_owned()));
        assert_eq!(said.to_string(), "wrong: the server has ended");
    }
}

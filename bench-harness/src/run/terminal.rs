//! What the user sees while it runs: bars with time left on a terminal, plain lines elsewhere.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is over sooner shows no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// Without a terminal: how often a long task says how far it is.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The way to the user; clones are the same one.
#[derive(Clone, Debug)]
pub struct Terminal {
    bars: Option<MultiProgress>,
    is_quiet: bool,
    /// Bodies of the tables so far.
    tables: Arc<Mutex<BTreeSet<String>>>,
}

impl Terminal {
    /// Standard output and standard error.
    pub fn new() -> Terminal {
        let bars = std::io::stderr()
            .is_terminal()
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Terminal { bars, is_quiet: false, tables: Arc::default() }
    }

    /// Nobody looks.
    #[cfg(test)]
    pub fn quiet() -> Terminal {
        Terminal { bars: None, is_quiet: true, tables: Arc::default() }
    }

    /// Prints text to standard output, for whoever keeps it.
    pub fn print(&self, text: &str) {
        if self.is_quiet {
            return;
        }
        // A closed pipe at the other end is no reason to stop measuring.
        let write = || drop(writeln!(std::io::stdout(), "{text}"));
        match &self.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }

    /// Prints a table, unless one with the same body was printed before.
    pub fn print_table(&self, title: &str, body: &str) {
        let is_new = self.tables.lock().expect("nobody panics with it").insert(body.to_owned());
        match is_new {
            true => self.print(&format!("{title}\n{body}")),
            false => self.print(&format!("{title}: the same as before\n")),
        }
    }

    /// Tells the user something.
    pub fn tell(&self, text: &str) {
        if self.is_quiet {
            return;
        }
        let write = || eprintln!("{text}");
        match &self.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }

    /// A bar for something with `total` steps.
    pub fn task(&self, total: u64, what: &str) -> Task {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = "{msg:36!} [{bar:30}] {pos}/{len}, {elapsed} gone, about {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(what.to_owned());
        Task {
            terminal: self.clone(),
            bar,
            started: Instant::now(),
            told: Cell::new(Instant::now()),
            is_shown: Cell::new(false),
            what: what.to_owned(),
        }
    }
}

/// Something under way, and how far it is.
pub struct Task {
    terminal: Terminal,
    bar: ProgressBar,
    started: Instant,
    told: Cell<Instant>,
    is_shown: Cell<bool>,
    what: String,
}

impl Task {
    /// So many more steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
        match &self.terminal.bars {
            Some(bars) => {
                if !self.is_shown.get() && SHOWN_AFTER <= self.started.elapsed() {
                    self.is_shown.set(true);
                    bars.add(self.bar.clone());
                    self.bar.tick();
                }
            }
            None => self.tell(),
        }
    }

    fn tell(&self) {
        if self.told.get().elapsed() < LINE_EVERY {
            return;
        }
        self.told.set(Instant::now());
        let (done, total) = (self.bar.position(), self.bar.length().unwrap_or_default());
        let left = self.bar.eta().as_secs();
        self.terminal.tell(&format!("  {}: {done} of {total}, about {left} s left", self.what));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some(bars) = &self.terminal.bars {
            bars.remove(&self.bar);
        }
    }
}

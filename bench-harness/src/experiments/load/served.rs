//! A load on a server of the harness's own: with what its process takes, and with a clear word when
//! it ends in the middle.

use std::time::Duration;

use super::drive::{Plan, drive};
use super::tally::{Measured, Tally};
use crate::engines::server::{self, Server};
use crate::engines::usage::{Usage, Watcher};
use crate::experiments::Failure;
use crate::experiments::measure::f64_of;
use crate::run::Context;

/// A connection may fail that long before the server's process is seen to have ended.
const END_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// What came of a load, and what the server took for it.
pub struct Observed {
    /// By the load generator.
    pub measured: Measured,
    /// The server's process over time, since the load began.
    pub samples: Vec<(Duration, Usage)>,
    /// When requests began to count, with the bytes answered before.
    begin: Option<(Usage, u64)>,
    /// When the last answer was there.
    end: Option<Usage>,
}

/// CPU time of the server, and for what.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Of all its threads, kernel workers included.
    pub cpu: Duration,
    /// From when requests began to count to the last answer.
    pub wall: Duration,
    /// Of records, moved in that time.
    pub bytes: u64,
}

impl Cost {
    /// Cores that it kept busy.
    pub fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    /// CPU seconds for each 10^9 bytes of records.
    pub fn per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (f64_of(self.bytes.max(1)) / 1e9)
    }
}

impl Observed {
    /// `None` when the load broke off before anything counted.
    pub fn cost(&self) -> Option<Cost> {
        let ((begin, before), end) = (self.begin?, self.end?);
        Some(Cost {
            cpu: end.cpu.saturating_sub(begin.cpu),
            wall: end.at - begin.at,
            bytes: self.measured.tally.bytes_ever() - before,
        })
    }

    /// The most that was resident, in bytes.
    pub fn memory(&self) -> Option<u64> {
        let all = self.samples.iter().map(|it| it.1).chain(self.end);
        all.map(|it| it.memory_bytes).max()
    }
}

/// Is told how long the load has gone on, what came of it, and how the server's process was since
/// it was told last.
pub type Each<'a> = &'a mut dyn FnMut(Duration, &mut Tally, &[Usage]);

/// Carries the load out, and looks at the server's process as often as `every`. A request that
/// fails ends it.
///
/// # Errors
/// When it can't begin. What ends it early stands in [`Measured::broken_off`].
pub fn observe(
    context: &Context,
    server: &mut Server,
    (plan, every): (Plan, Duration),
    each: Each<'_>,
) -> Result<Observed, Failure> {
    let (pid, warm_up) = (server.pid(), plan.warm_up);
    let watcher = Watcher::start(every, move || Usage::of(pid))?;
    let (mut samples, mut begin) = (Vec::new(), None);
    let mut watch = |elapsed: Duration, tally: &mut Tally| {
        context.check()?;
        if let Some(error) = tally.first_error() {
            return Err(Failure::Wrong(format!("a request failed: {error}")));
        }
        let Some(read) = watcher.read() else {
            return Err(Failure::Wrong("the server has ended".to_owned()));
        };
        samples.extend(read.iter().map(|usage| (elapsed, *usage)));
        if begin.is_none() && warm_up <= elapsed {
            begin = Usage::of(pid).map(|usage| (usage, tally.bytes_ever()));
        }
        each(elapsed, tally, &read);
        Ok(())
    };
    let driven = server::block_on(drive(plan, &mut watch));
    let end = Usage::of(pid);
    let mut measured = driven.map_err(|failure| explained(server, failure))?;
    if measured.broken_off.is_none()
        && let Some(error) = measured.tally.first_error()
    {
        measured.broken_off = Some(Failure::Wrong(format!("a request failed: {error}")));
    }
    measured.broken_off = measured.broken_off.map(|failure| explained(server, failure));
    Ok(Observed { measured, samples, begin, end })
}

/// A lost connection says less than that the server has ended.
fn explained(server: &mut Server, failure: Failure) -> Failure {
    match failure {
        Failure::Interrupted | Failure::Usage(_) | Failure::Skipped(_) => failure,
        _ => match server.ending(END_AFTER_FAILURE) {
            Some(how) => Failure::Wrong(how),
            None => failure,
        },
    }
}

//! Making a partition: all of it, or nothing is left open.

use std::rc::Rc;

use tokio::sync::oneshot;

use crate::disk::plan::Steps;
use crate::disk::{DiskError, Plan, Step};
use crate::log::PartitionLog;
use crate::shard::edge;
use crate::shard::engine::{Core, Engine, PartitionSpec, now};
use crate::shard::error::EngineError;
use crate::shard::partition::{Partition, PartitionCell};

impl Engine {
    /// Makes a new partition: its directory and first files are there when this returns. In a task
    /// of its own: whoever wants it may give up, and a log whose plan nobody brings to its end
    /// could never be closed.
    ///
    /// # Errors
    /// [`EngineError::Disk`], [`EngineError::Stopped`].
    pub async fn create(&self, spec: PartitionSpec) -> Result<Partition, EngineError> {
        // Nobody would close it.
        if self.core.is_stopped() {
            return Err(EngineError::Stopped);
        }
        let (number, spec, directory) = self.core.name(spec);
        let (log, plan) = PartitionLog::create(spec, now());
        let cell = self.core.add(number, log, directory);
        let (core, making) = (self.core.clone(), cell.clone());
        let (outcome, made) = oneshot::channel();
        edge::spawn(async move {
            let made = core.made(&making, plan).await;
            if made.is_err() {
                core.forget(&making);
            }
            // Whoever waited may have given up.
            let _ = outcome.send(made);
        });
        match made.await.expect("the task lives as long as its runtime") {
            Ok(()) => Ok(Partition::new(self.core.clone(), cell)),
            Err(error) => Err(EngineError::Disk { directory: cell.directory.to_path_buf(), error }),
        }
    }
}

impl Core {
    /// Runs the plan that makes a log, again as long as the log says that this is worth it.
    async fn made(&self, cell: &Rc<PartitionCell>, mut plan: Plan) -> Result<(), DiskError> {
        loop {
            let finished = self.run(plan).await;
            let Err(failure) = finished.result else {
                self.complete(cell, finished);
                return Ok(());
            };
            let (tag, open) = (finished.plan.tag, left_open(&finished.plan.steps[..failure.step]));
            self.complete(cell, finished);
            let again = cell.log.borrow_mut().plan(now());
            match again {
                Some(again) => plan = again,
                None => {
                    if !open.is_empty() {
                        self.run(Plan { tag, steps: open }).await;
                    }
                    return Err(failure.error);
                }
            }
        }
    }
}

/// Closes what these steps have opened and not closed.
fn left_open(steps: &[Step]) -> Steps {
    let opened = steps.iter().filter_map(|step| match step {
        Step::Create { file, .. } | Step::Open { file, .. } => Some(Step::Close { file: *file }),
        _ => None,
    });
    opened.filter(|close| !steps.contains(close)).collect()
}

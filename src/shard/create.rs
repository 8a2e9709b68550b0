//! Running the plan that makes a partition: all of it, or nothing is left open.

use std::rc::Rc;

use crate::disk::plan::Steps;
use crate::disk::{DiskError, Plan, Step};
use crate::shard::engine::{Core, now};
use crate::shard::partition::PartitionCell;

impl Core {
    /// Runs the plan that makes a log, again as long as the log says that this is worth it.
    pub async fn made(&self, cell: &Rc<PartitionCell>, mut plan: Plan) -> Result<(), DiskError> {
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

//! Which cells a run has, and in which order.

use crate::engines::{EngineName, Tier};
use crate::record::Place;
use crate::registry::Experiment;

/// What the command line chose.
pub struct Choice {
    /// In the registry's order.
    pub experiments: Vec<&'static Experiment>,
    /// In the order given.
    pub engines: Vec<EngineName>,
    /// In the order given.
    pub tiers: Vec<Tier>,
    /// How many there are.
    pub file_systems: usize,
    /// At least 1.
    pub rounds: u32,
}

/// One cell.
pub struct Cell {
    /// Of which experiment.
    pub experiment: &'static Experiment,
    /// On which engine, if the experiment has one per cell.
    pub engine: Option<EngineName>,
    /// In which tier, if the experiment has one per cell.
    pub tier: Option<Tier>,
    /// Number of the file system.
    pub file_system: usize,
    /// 0 and up.
    pub round: u32,
}

impl Cell {
    /// As recorded.
    pub fn place(&self, labels: &[String]) -> Place {
        Place {
            experiment: self.experiment.name.to_owned(),
            engine: self.engine.map_or("none", EngineName::name).to_owned(),
            tier: self.tier.map_or("none", Tier::name).to_owned(),
            file_system: labels[self.file_system].clone(),
            round: self.round,
        }
    }
}

/// All cells, engines by turns within each round (A B A B), rounds within each tier and file
/// system; and what was asked for and isn't there.
pub fn plan(choice: &Choice) -> (Vec<Cell>, Vec<String>) {
    let (mut cells, mut left_out) = (Vec::new(), Vec::new());
    for experiment in &choice.experiments {
        let engines = axis(&choice.engines, experiment.engines);
        let tiers = axis(&choice.tiers, experiment.tiers);
        for engine in choice.engines.iter().filter(|it| !experiment.engines.contains(it)) {
            if !experiment.engines.is_empty() {
                left_out.push(format!("{}: there is no such thing on {engine}", experiment.name));
            }
        }
        if !experiment.tiers.is_empty() && tiers.is_empty() {
            let only: Vec<_> = experiment.tiers.iter().map(|it| it.name()).collect();
            left_out.push(format!("{}: it is for {} only", experiment.name, only.join(", ")));
        }
        let places = if experiment.file_systems { choice.file_systems } else { 1 };
        for file_system in 0..places {
            for tier in &tiers {
                for round in 0..choice.rounds {
                    let of_round = engines.iter().map(|engine| Cell {
                        experiment,
                        engine: *engine,
                        tier: *tier,
                        file_system,
                        round,
                    });
                    cells.extend(of_round);
                }
            }
        }
    }
    (cells, left_out)
}

/// Those asked for that there are; one `None` where the experiment doesn't tell them apart.
fn axis<T: Copy + PartialEq>(asked: &[T], there: &[T]) -> Vec<Option<T>> {
    if there.is_empty() {
        return vec![None];
    }
    asked.iter().filter(|it| there.contains(it)).map(|it| Some(*it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Scaled;

    static EACH: Experiment = Experiment {
        name: "each",
        question: "?",
        parameters: &[],
        engines: EngineName::OURS,
        tiers: Tier::ALL,
        file_systems: true,
        seconds: Scaled::same(1),
        run: |_, _| Ok(()),
    };
    static ONCE: Experiment = Experiment {
        name: "once",
        question: "?",
        parameters: &[],
        engines: &[],
        tiers: &[],
        file_systems: false,
        seconds: Scaled::same(1),
        run: |_, _| Ok(()),
    };

    #[test]
    fn engines_take_turns_within_each_round() {
        let choice = Choice {
            experiments: vec![&EACH, &ONCE],
            engines: vec![EngineName::Uring, EngineName::Kafka, EngineName::PlainFile],
            tiers: vec![Tier::PageCache],
            file_systems: 2,
            rounds: 2,
        };
        let labels = ["ext4".to_owned(), "xfs".to_owned()];
        let (cells, left_out) = plan(&choice);
        let shown: Vec<_> = cells
            .iter()
            .map(|it| {
                let place = it.place(&labels);
                let of = format!("{} {} {}", place.engine, place.tier, place.file_system);
                format!("{} {of} {}", place.experiment, place.round)
            })
            .collect();
        let expected = [
            "each uring page-cache ext4 0",
            "each plain-file page-cache ext4 0",
            "each uring page-cache ext4 1",
            "each plain-file page-cache ext4 1",
            "each uring page-cache xfs 0",
            "each plain-file page-cache xfs 0",
            "each uring page-cache xfs 1",
            "each plain-file page-cache xfs 1",
            "once none none ext4 0",
            "once none none ext4 1",
        ];
        assert_eq!(shown, expected);
        assert_eq!(left_out, ["each: there is no such thing on kafka"]);
    }
}

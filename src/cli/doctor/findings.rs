//! The ring layer's probe in words.

use crate::ring::probe::{Features, Probe, Punting};
use crate::ring::{Links, SetupFlags};

/// What the ring layer found by trying.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingFindings {
    /// Why the ring engine can't run: errno and remedy. `None` when it can.
    pub refusal: Option<String>,
    /// Features one by one; none when it can't run.
    pub features: Vec<RingFeature>,
    /// Where buffered writes of a ring are carried out in the directory, or why that wasn't tried.
    pub buffered_writes: Result<Punting, String>,
}

/// One thing that a ring can or can't do here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingFeature {
    /// What it is.
    pub name: String,
    /// Whether it works.
    pub works: bool,
    /// Whether the ring engine can't run without it.
    pub is_needed: bool,
    /// What the probe saw: errno, time, or how to get the feature.
    pub detail: String,
}

impl RingFindings {
    /// What a probe found, and what a write in the directory showed.
    pub fn of(probe: &Probe, buffered_writes: Result<Punting, String>) -> RingFindings {
        match &probe.ring {
            Ok(found) => RingFindings { refusal: None, features: features(found), buffered_writes },
            Err(error) => {
                let refusal = Some(error.to_string());
                RingFindings { refusal, features: Vec::new(), buffered_writes }
            }
        }
    }
}

fn features(found: &Features) -> Vec<RingFeature> {
    vec![
        set_up(found.flags),
        links(found.links),
        RingFeature {
            name: "all in chains".to_owned(),
            works: found.all_in_chains,
            is_needed: false,
            detail: if found.all_in_chains {
                "plans open, cut and close files inside their chains".to_owned()
            } else {
                "files are opened, cut and closed by system calls between chains".to_owned()
            },
        },
        RingFeature {
            name: "socket reads".to_owned(),
            works: found.socket_reads_wait,
            is_needed: false,
            detail: if found.socket_reads_wait {
                "connections are served by tokio-uring".to_owned()
            } else {
                "a read of an empty socket fails at once; connections are served by plain tokio"
                    .to_owned()
            },
        },
    ]
}

fn set_up(flags: SetupFlags) -> RingFeature {
    let granted = match flags {
        SetupFlags::All => "SINGLE_ISSUER, COOP_TASKRUN, SUBMIT_ALL",
        SetupFlags::Cooperative => "COOP_TASKRUN, SUBMIT_ALL; SINGLE_ISSUER is refused",
        SetupFlags::Clamp => "none; COOP_TASKRUN and SUBMIT_ALL are refused",
    };
    RingFeature {
        name: "set-up flags".to_owned(),
        works: flags == SetupFlags::All,
        is_needed: false,
        detail: granted.to_owned(),
    }
}

fn links(found: Links) -> RingFeature {
    let operations = [
        ("open", found.open),
        ("truncate", found.truncate),
        ("sync", found.sync),
        ("rename", found.rename),
        ("close", found.close),
    ];
    let last: Vec<_> =
        operations.iter().filter(|(_, breaks)| !breaks).map(|(name, _)| *name).collect();
    let rest = match last.as_slice() {
        [] => String::new(),
        names => format!("; only at the end of a chain: {}", names.join(", ")),
    };
    RingFeature {
        name: "linked writes".to_owned(),
        works: found.open && found.short,
        is_needed: true,
        detail: format!("a short or failed write ends its chain{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RingError;
    use crate::ring::limits;
    use crate::ring::probe::probe;

    const LINKS: Links =
        Links { open: true, truncate: false, sync: false, rename: true, close: true, short: true };

    #[test]
    fn every_feature_has_its_line() {
        let check = |found: Features, expected: [bool; 4]| {
            let lines = features(&found);
            let works: Vec<_> = lines.iter().map(|line| line.works).collect();
            assert_eq!(works, expected);
            lines
        };
        let all = Features {
            flags: SetupFlags::All,
            all_in_chains: true,
            links: LINKS,
            socket_reads_wait: true,
        };
        let lines = check(all, [true; 4]);
        assert!(lines[1].detail.ends_with("only at the end of a chain: truncate, sync"));
        let few = Features {
            flags: SetupFlags::Clamp,
            all_in_chains: false,
            links: LINKS,
            socket_reads_wait: false,
        };
        let lines = check(few, [false, true, false, false]);
        assert!(lines[0].detail.contains("COOP_TASKRUN"));
        assert!(lines[3].detail.contains("plain tokio"));
    }

    #[test]
    fn a_refusal_is_told_with_its_remedy() {
        let error = RingError::Missing { operation: "SPLICE" };
        let refused =
            Probe { kernel: String::new(), limits: limits::read(), ring: Err(error.clone()) };
        let found = RingFindings::of(&refused, Err("no such directory".to_owned()));
        assert_eq!(found.refusal, Some(error.to_string()));
        assert!(found.features.is_empty());
        assert!(found.buffered_writes.is_err());
    }

    #[test]
    fn this_host_is_found_usable() {
        let found = RingFindings::of(&probe(), Ok(Punting::Never));
        assert_eq!(found.refusal, None);
        assert!(found.features.iter().all(|it| it.works || !it.is_needed));
    }
}

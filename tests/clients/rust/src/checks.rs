//! What the programs share: the lines that they print, described in ../../more/checks.py, and the
//! records that they send.

use std::error::Error;
use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

pub const PARTITIONS: usize = 6;
pub const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// A record as it is sent and found again; the time in milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub partition: usize,
    pub key: Option<String>,
    pub value: Option<String>,
    pub header: Option<String>,
    pub time: i64,
}

/// Counts what failed.
#[derive(Default)]
pub struct Report {
    pub failed: usize,
}

impl Report {
    pub fn equal<T: PartialEq + Debug>(&mut self, what: &str, got: T, wanted: T) {
        if got == wanted {
            println!("ok\t{what}");
        } else {
            self.fail(what, &format!("got {got:?}, wanted {wanted:?}"));
        }
    }

    pub fn fail(&mut self, what: &str, detail: &str) {
        self.failed += 1;
        let flat = detail.replace(['\n', '\t'], " ");
        println!("FAIL\t{what}\t{}", flat.chars().take(500).collect::<String>());
    }

    /// Every record once, in the order of its partition.
    pub fn same(&mut self, what: &str, sent: &[Sent], received: &[Sent]) {
        println!("moved\t{}", received.len());
        for partition in 0..PARTITIONS {
            let of = |all: &[Sent]| -> Vec<Sent> {
                all.iter().filter(|it| it.partition == partition).cloned().collect()
            };
            let (wanted, got) = (of(sent), of(received));
            if wanted != got {
                let at = wanted.iter().zip(&got).position(|(one, other)| one != other);
                let (many, of) = (got.len(), wanted.len());
                let text = format!("partition {partition}: {many} of {of}, differ at {at:?}");
                self.fail(what, &text);
                return;
            }
        }
        println!("ok\t{what}");
    }
}

pub fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("this millennium")
}

/// A name that no earlier run used.
pub fn name(part: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    format!("{part}-{}", since.as_nanos())
}

/// Keys and none, values and none, headers and none, one time after the other.
pub fn records(many: usize) -> Vec<Sent> {
    let first = now_millis() - 3_600_000;
    let record = |number: usize| Sent {
        partition: number % PARTITIONS,
        key: (number % 7 != 3).then(|| format!("key-{}", number % 1000)),
        value: (number % 101 != 50).then(|| format!("value {number}")),
        header: (number % 5 == 0).then(|| number.to_string()),
        time: first + i64::try_from(number).expect("a small number") * 3,
    };
    (0..many).map(record).collect()
}

/// Bootstrap address and number of records.
pub fn arguments() -> Outcome<(String, usize)> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().ok_or("no bootstrap address")?;
    Ok((bootstrap, arguments.next().ok_or("no number of records")?.parse()?))
}

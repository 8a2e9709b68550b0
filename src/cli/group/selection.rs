//! Topics and partitions as they are written on the command line and in files.

use std::str::FromStr;

use crate::client::TopicPartition;
use crate::format::names::TopicName;

/// `topic`, or `topic:0,2-4`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection {
    /// The topic.
    pub topic: String,
    /// Its partitions; `None` for all.
    pub partitions: Option<Vec<i32>>,
}

/// Most partitions that one selection may name; a topic has fewer.
const PARTITIONS_MAX: usize = 100_000;

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        let (topic, partitions) = match text.split_once(':') {
            Some((topic, list)) => (topic, Some(parse_list(list)?)),
            None => (text, None),
        };
        TopicName::new(topic).map_err(|error| error.to_string())?;
        Ok(Selection { topic: topic.to_owned(), partitions })
    }
}

fn parse_list(list: &str) -> Result<Vec<i32>, String> {
    let number = |text: &str| {
        let number = text.trim().parse::<i32>().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| format!("{text:?} is no partition; write 0, or 0,2-4"))
    };
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(format!("{part:?} ends before it begins"));
        }
        let room = PARTITIONS_MAX - found.len();
        if i64::from(last - first) >= i64::try_from(room).unwrap_or(i64::MAX) {
            return Err(format!("more than {PARTITIONS_MAX} partitions"));
        }
        found.extend(first..=last);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

impl Selection {
    /// Whether it names the partition.
    pub fn contains(&self, at: &TopicPartition) -> bool {
        let has = |list: &Vec<i32>| list.contains(&at.partition);
        self.topic == at.topic && self.partitions.as_ref().is_none_or(has)
    }
}

/// Reads lines `TOPIC,PARTITION,OFFSET`; empty ones and those that begin with `#` say nothing. A
/// field in front, as Kafka's tool writes it for several groups, has to be the group.
///
/// # Errors
/// What is wrong, and in which line.
pub fn parse_plan(text: &str, group: &str) -> Result<Vec<(TopicPartition, i64)>, String> {
    let mut plan = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {line:?} {why}");
        let fields: Vec<&str> =
            line.split(',').map(|field| field.trim().trim_matches('"')).collect();
        let [topic, partition, offset] = match fields.as_slice() {
            [topic, partition, offset] => [topic, partition, offset],
            [named, topic, partition, offset] if *named == group => [topic, partition, offset],
            [_, _, _, _] => return Err(wrong("is about another group")),
            _ => return Err(wrong("is not TOPIC,PARTITION,OFFSET")),
        };
        TopicName::new(topic).map_err(|error| wrong(&error.to_string()))?;
        let partition = partition.parse::<i32>().ok().filter(|it| *it >= 0);
        let offset = offset.parse::<i64>().ok().filter(|it| *it >= 0);
        let (Some(partition), Some(offset)) = (partition, offset) else {
            return Err(wrong("has no partition and offset of 0 or more"));
        };
        plan.push((TopicPartition::new(topic, partition), offset));
    }
    plan.sort();
    if let Some(twice) = plan.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let at = &twice[0].0;
        return Err(format!("partition {} of topic {} is there twice", at.partition, at.topic));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_and_their_partitions() {
        let check = |text: &str, partitions: Option<&[i32]>| {
            let parsed: Selection = text.parse().expect(text);
            assert_eq!(parsed.topic, "t", "{text}");
            assert_eq!(parsed.partitions.as_deref(), partitions, "{text}");
        };
        check("t", None);
        check("t:0", Some(&[0]));
        check("t:4,0,2-3,3", Some(&[0, 2, 3, 4]));
        for bad in ["", ":0", "t:", "t:x", "t:-1", "t:3-1", "a/b", "t:0-200000", "t:1,,2"] {
            bad.parse::<Selection>().expect_err(bad);
        }
        let some: Selection = "t:0,2".parse().expect("fine");
        assert!(some.contains(&TopicPartition::new("t", 2)));
        assert!(!some.contains(&TopicPartition::new("t", 1)));
        assert!(!some.contains(&TopicPartition::new("u", 0)));
    }

    #[test]
    fn plans_are_read_with_and_without_a_group() {
        let plan = parse_plan("# saved\nt,1,20\n\n\"g\",\"t\",0,10\n", "g").expect("fine");
        let expected = [(TopicPartition::new("t", 0), 10), (TopicPartition::new("t", 1), 20)];
        assert_eq!(plan, expected);
        for (bad, why) in [
            ("t,1", "not TOPIC,PARTITION,OFFSET"),
            ("h,t,0,1", "another group"),
            ("t,x,1", "0 or more"),
            ("t,0,-1", "0 or more"),
            ("a/b,0,1", "line 1"),
            ("t,0,1\nt,0,2", "twice"),
        ] {
            let error = parse_plan(bad, "g").expect_err(bad);
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}

//! Subscription by a regular expression. Kafka's are RE2/J's; the syntax of the crate `regex` is
//! nearly the same, and it takes linear time, too.

use std::collections::BTreeSet;

use regex::{Regex, RegexBuilder};

use crate::coordinator::group::consumer::{Change, Turn};
use crate::format::group_records::RegularExpression;

/// Least time between two looks (`REGEX_BATCH_REFRESH_MIN_INTERVAL_MS`).
const LOOK_AGAIN_MS: i64 = 10_000;

/// Largest size of a compiled expression.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Whether it is a regular expression that may be used.
pub fn is_valid(text: &str) -> bool {
    compile(text).is_some()
}

/// It has to match the whole name.
fn compile(text: &str) -> Option<Regex> {
    let build = |text: &str| RegexBuilder::new(text).size_limit(COMPILED_BYTES_MAX).build().ok();
    // By itself first: a parenthesis must not close the one around it.
    build(text)?;
    build(&format!(r"\A(?:{text})\z"))
}

impl Turn<'_> {
    /// A member has changed its regular expression, or has not. Resolves the expressions of the
    /// group when it is time to, and says whether somebody's topics have changed.
    pub(super) fn follow_regexes(&mut self, old: Option<&str>, new: Option<&str>) -> bool {
        let has_changed = old != new;
        if let Some(old) = old
            && has_changed
            && self.group.users_of(old) == 0
            && self.group.regexes().contains_key(old)
        {
            self.write(Change::Regex(old.to_owned(), None));
        }
        let is_new = new.is_some_and(|new| !self.group.regexes().contains_key(new));
        let changes = (is_new || self.is_time_to_resolve()) && self.resolve();
        has_changed || changes
    }

    fn is_time_to_resolve(&self) -> bool {
        // Every heartbeat asks: what costs nothing comes first, the members only then.
        let (at, version) = match self.group.resolved {
            Some(resolved) => resolved,
            // Read from the log: what stands there is as old as it says.
            None => match self.group.regexes().values().next() {
                Some(resolved) => (resolved.timestamp, 0),
                None => return self.group.members().any(|it| it.regex().is_some()),
            },
        };
        let age_ms = self.now.0.saturating_sub(at.0);
        if age_ms <= LOOK_AGAIN_MS {
            return false;
        }
        let is_old = version != self.topics.version()
            || age_ms > i64::from(self.settings.consumer.regex_refresh_ms);
        let mut used = self.group.members().filter_map(|it| it.regex()).peekable();
        match used.peek() {
            None => false,
            Some(_) if is_old => true,
            Some(_) => used.collect::<BTreeSet<&str>>().len() != self.group.regexes().len(),
        }
    }

    /// Finds the topics of all expressions that members have; whether any has others than before.
    fn resolve(&mut self) -> bool {
        let version = self.topics.version();
        self.group.resolved = Some((self.now, version));
        let used: BTreeSet<String> =
            self.group.members().filter_map(|it| it.regex().map(str::to_owned)).collect();
        let mut changes = false;
        for text in used {
            let Some(regex) = compile(&text) else { continue };
            let names = self.topics.names().filter(|name| regex.is_match(name));
            let topics: Vec<String> = names.map(str::to_owned).collect();
            let before = self.group.regexes().get(&text).map(|it| &it.topics);
            if before.is_some_and(|before| *before == topics) {
                continue;
            }
            changes = true;
            let version = i64::try_from(version).unwrap_or(i64::MAX);
            let resolved = RegularExpression { topics, version, timestamp: self.now };
            self.write(Change::Regex(text, Some(resolved)));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_whole_names() {
        let regex = compile("a|b.*").expect("an expression");
        assert!(regex.is_match("a") && regex.is_match("bc"));
        assert!(!regex.is_match("ab") && !regex.is_match("cb"));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in ["(", "a)|(b", "a{1000}{1000}{1000}", r"\1", "[z-a]"] {
            assert!(!is_valid(text), "{text}");
        }
        for text in ["foo.*", "^(?i)a$", r"\d+\.x", "[[:alpha:]]+", r"\pL"] {
            assert!(is_valid(text), "{text}");
        }
    }
}

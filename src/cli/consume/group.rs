//! `uringlog consume --group`: reads what the group's leader hands out and commits what was
//! printed.
//!
//! What is committed was printed, and let go of, before: whoever takes over prints nothing less.
//! Ctrl-C commits and leaves, so that the others get the partitions at once.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use tokio::time::Instant;

use super::follower::{Chunk, Cursor, Source};
use super::print::Printer;
use super::reading::Reading;
use super::{ConsumeOptions, GroupOptions, end, latest, start_one};
use crate::cli::command::{CommandError, Interrupt};
use crate::cli::group::lag;
use crate::cli::output::say;
use crate::cli::topic;
use crate::client::member::decide::{Verdict, verdict};
use crate::client::member::{Happening, Member, MemberOptions};
use crate::client::{Client, ClientError, ClientOptions, Committed, TopicPartition, timestamp};

/// Pause between commits, as in Kafka's consumer.
const COMMIT_PAUSE: Duration = Duration::from_secs(5);
/// How long one that wants no more than is there waits for others to let go of partitions.
const NOTHING_PAUSE: Duration = Duration::from_secs(7);

/// What the command was given.
pub(super) struct Own<'a> {
    pub client: Client,
    pub options: &'a ConsumeOptions,
    pub group: &'a GroupOptions,
}

/// Where the reader of a group stands.
struct Reader<'a> {
    own: Own<'a>,
    /// Fetches records. A Fetch that waits for more holds up every answer behind it, so questions
    /// have connections of their own, those of `own`.
    fetching: Client,
    reading: Option<Reading>,
    /// First offset that wasn't printed, of each partition; and what the group knows of it.
    positions: BTreeMap<TopicPartition, Position>,
    /// When to stop for want of partitions.
    nothing_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Position {
    next: i64,
    committed: Option<i64>,
}

pub(super) async fn run<W: Write>(
    own: Own<'_>,
    printer: &mut Printer<'_, W>,
    mut interrupt: Interrupt,
) -> Result<(), CommandError> {
    for topic in &own.options.topics {
        topic::find(&own.client, topic).await?;
    }
    let mut member_options = MemberOptions::new(&own.group.id, &own.options.topics);
    member_options.instance.clone_from(&own.group.instance);
    member_options.protocol.clone_from(&own.group.protocol);
    let fetching = Client::connect(&own.options.bootstrap, ClientOptions::default()).await?;
    let mut member = Member::start(&own.options.bootstrap, member_options).await?;
    let mut reader =
        Reader { own, fetching, reading: None, positions: BTreeMap::new(), nothing_until: None };
    let read = tokio::select! {
        read = reader.read(&mut member, printer) => read,
        () = interrupt.wait() => Ok(()),
    };
    // What can't be printed isn't committed.
    let committed = match (&read, printer.flush()) {
        (Ok(()), Ok(())) => reader.commit(&member).await,
        (Ok(()), Err(error)) => Err(error),
        (Err(_), _) => Ok(()),
    };
    let shown = match committed {
        Ok(()) => reader.show_lag().await,
        Err(error) => Err(error),
    };
    let left = member.leave().await;
    read?;
    shown?;
    Ok(left?)
}

impl Reader<'_> {
    /// Reads until the ends, the count, or for ever.
    async fn read<W: Write>(
        &mut self,
        member: &mut Member,
        printer: &mut Printer<'_, W>,
    ) -> Result<(), CommandError> {
        let mut due = Instant::now() + COMMIT_PAUSE;
        while printer.left > 0 {
            if self.reading.as_ref().is_some_and(Reading::is_idle) {
                printer.flush()?;
            }
            let nothing_until = self.nothing_until;
            tokio::select! {
                biased;
                happening = member.next() => self.act(happening, member, printer).await?,
                () = tokio::time::sleep_until(due) => {
                    printer.flush()?;
                    self.commit(member).await?;
                    self.show_lag().await?;
                    due = Instant::now() + COMMIT_PAUSE;
                }
                chunk = next(&mut self.reading) => match chunk? {
                    Some(chunk) => self.print(&chunk, printer)?,
                    None if self.own.options.follow => self.reading = None,
                    None => return Ok(()),
                },
                () = at(nothing_until) => return Ok(()),
            }
        }
        Ok(())
    }

    fn print<W: Write>(
        &mut self,
        chunk: &Chunk,
        printer: &mut Printer<'_, W>,
    ) -> Result<(), CommandError> {
        let next = printer.print(chunk)?;
        let Cursor { topic, partition, .. } = chunk.cursor;
        let at = TopicPartition::new(&self.own.options.topics[topic], partition);
        let position = self.positions.entry(at);
        position.or_insert(Position { next, committed: None }).next = next;
        Ok(())
    }

    async fn act<W: Write>(
        &mut self,
        happening: Happening,
        member: &Member,
        printer: &mut Printer<'_, W>,
    ) -> Result<(), CommandError> {
        match happening {
            Happening::Assigned(assigned) => self.begin(&assigned).await,
            Happening::Revoked(partitions, done) => {
                self.reading = None;
                printer.flush()?;
                self.commit(member).await?;
                for one in partitions {
                    self.positions.remove(&one);
                }
                drop(done);
                Ok(())
            }
            Happening::Lost => {
                say("the group has gone on without this member; joining again");
                self.reading = None;
                self.positions.clear();
                Ok(())
            }
            Happening::Failed(error) => Err(error.into()),
        }
    }

    /// Goes on with what it has, and begins with what is new where the group is.
    async fn begin(&mut self, assigned: &[TopicPartition]) -> Result<(), CommandError> {
        self.positions.retain(|at, _| assigned.contains(at));
        let is_new = |one: &&TopicPartition| !self.positions.contains_key(one);
        let new: Vec<TopicPartition> = assigned.iter().filter(is_new).cloned().collect();
        let committed = self.own.client.committed_offsets_of(&self.own.group.id, &new).await?;
        for at in &new {
            let known = committed.iter().find(|one| one.at == *at).map(|one| one.offset);
            let Some(next) = self.first(at, known).await? else { continue };
            self.positions.insert(at.clone(), Position { next, committed: known });
        }
        let ends = latest(&self.own.client, self.own.options, assigned).await?;
        let options = self.own.options;
        let cursors = self.positions.iter().filter_map(|(at, position)| {
            let (topic, partition) = (options.place(at)?, at.partition);
            let end = ends.get(at).and_then(|it| end(options, *it));
            Some(Cursor { topic, partition, next: position.next, end })
        });
        let cursors: Vec<Cursor> = cursors.collect();
        let waits = assigned.is_empty() && !self.own.options.follow;
        self.nothing_until = waits.then(|| Instant::now() + NOTHING_PAUSE);
        let reads = !assigned.is_empty();
        let (client, source) = (self.fetching.clone(), Source::of(options));
        self.reading = reads.then(|| Reading::start(client, source, cursors));
        Ok(())
    }

    /// Where to begin: where the group is, unless that isn't there (any more).
    async fn first(
        &self,
        at: &TopicPartition,
        known: Option<i64>,
    ) -> Result<Option<i64>, CommandError> {
        let client = &self.own.client;
        if let Some(known) = known {
            let find = async |target| client.list_offsets(&at.topic, at.partition, target).await;
            let earliest = find(timestamp::EARLIEST).await?.offset;
            let latest = find(timestamp::LATEST).await?.offset;
            if (earliest..=latest).contains(&known) {
                return Ok(Some(known));
            }
            let TopicPartition { topic, partition } = at;
            say(&format!(
                "{topic}, partition {partition}: the group is at {known}, the partition has \
                 {earliest} to {latest}; beginning as --from says"
            ));
        }
        Ok(start_one(client, self.own.options, at).await?.map(|found| found.next))
    }

    /// Says how far the group is, with the positions of this member, if that is wanted.
    async fn show_lag(&self) -> Result<(), CommandError> {
        let Own { client, group, .. } = &self.own;
        if !group.shows_lag {
            return Ok(());
        }
        // It is gone when this member was its last one and has been put out.
        let Some(found) = client.describe_group(&group.id).await? else { return Ok(()) };
        let mut lags = lag::lags(client, &found).await?;
        for one in &mut lags {
            let at = TopicPartition::new(&one.topic, one.partition);
            one.position = self.positions.get(&at).map(|it| it.next);
        }
        say(lag::table(&[(found, lags)]).render(false, false).trim_end());
        Ok(())
    }

    /// Commits what was printed since the last time. A group that is being rebalanced takes it
    /// later, or gives the partitions to somebody who prints it again.
    async fn commit(&mut self, member: &Member) -> Result<(), CommandError> {
        let changed = changed(&self.positions);
        match member.commit(&changed).await {
            Ok(()) => {
                for position in self.positions.values_mut() {
                    position.committed = Some(position.next);
                }
                Ok(())
            }
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a commit was refused for reasons that the member hears of in another way.
fn is_passing(error: &ClientError) -> bool {
    let code = error.wire_code().unwrap_or(0);
    matches!(verdict(code), Verdict::Rejoin | Verdict::Lost | Verdict::Forgotten)
}

fn changed(positions: &BTreeMap<TopicPartition, Position>) -> Vec<Committed> {
    let changed = positions.iter().filter(|(_, one)| one.committed != Some(one.next));
    let committed = changed.map(|(at, one)| Committed {
        at: at.clone(),
        offset: one.next,
        leader_epoch: -1,
        metadata: String::new(),
    });
    committed.collect()
}

/// The next chunk; never, when nothing is read.
async fn next(reading: &mut Option<Reading>) -> Result<Option<Chunk>, ClientError> {
    match reading {
        Some(reading) => reading.next().await,
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_moved_is_not_committed_again() {
        let at = |topic| TopicPartition::new(topic, 0);
        let positions = BTreeMap::from([
            (at("a"), Position { next: 5, committed: Some(5) }),
            (at("b"), Position { next: 6, committed: Some(5) }),
            (at("c"), Position { next: 0, committed: None }),
        ]);
        let found: Vec<_> =
            changed(&positions).into_iter().map(|one| (one.at.topic, one.offset)).collect();
        assert_eq!(found, [("b".to_owned(), 6), ("c".to_owned(), 0)]);
    }

    #[test]
    fn refusals_that_pass() {
        let refused =
            |code| ClientError::Refused { what: String::new(), code, message: String::new() };
        assert!(is_passing(&refused(27)) && is_passing(&refused(22)) && is_passing(&refused(25)));
        // A consumer's epoch that has moved on.
        assert!(is_passing(&refused(110)) && is_passing(&refused(113)));
        assert!(!is_passing(&refused(30)));
        assert!(!is_passing(&ClientError::Argument(String::new())));
    }
}

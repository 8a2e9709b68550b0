//! `uringlog config`: settings of topics, groups and brokers, levels of loggers.

use std::io::Write;
use std::str::FromStr;

use serde_json::{Value, json};

use super::args;
use super::command::CommandError;
use super::output::{Cell, Output, Table, Tone, left};
use crate::client::{Alteration, Client, ClientOptions, Resource, Setting};
use crate::format::names::TopicName;

/// What has settings, as it is written on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target(pub Resource);

impl FromStr for Target {
    type Err = String;

    /// `topic/NAME`, `group/NAME`, `broker/ID`, `loggers/ID`, `brokers`.
    fn from_str(text: &str) -> Result<Target, String> {
        let resource = match text.split_once('/') {
            Some(("topic", name)) => {
                TopicName::new(name).map_err(|error| error.to_string())?;
                Resource::Topic(name.to_owned())
            }
            Some(("group", name)) if !name.is_empty() => Resource::Group(name.to_owned()),
            Some(("broker", id)) => Resource::Broker(Some(broker(id)?)),
            Some(("loggers", id)) => Resource::Loggers(broker(id)?),
            None if text == "brokers" => Resource::Broker(None),
            _ => {
                return Err(format!(
                    "{text:?} is nothing that has settings; write topic/NAME, group/NAME, \
                     broker/ID, loggers/ID or brokers"
                ));
            }
        };
        Ok(Target(resource))
    }
}

fn broker(id: &str) -> Result<i32, String> {
    id.parse().map_err(|_| format!("{id:?} is no number of a broker"))
}

/// Runs the command.
///
/// # Errors
/// [`CommandError`].
pub async fn run(action: &args::Config, out: &mut impl Write) -> Result<(), CommandError> {
    use args::Config as Action;
    let (Action::Describe { target, server, .. }
    | Action::Set { target, server, .. }
    | Action::Unset { target, server, .. }) = action;
    let output = Output::of_process(server.json, server.color);
    let client = Client::connect(&server.server.bootstrap, ClientOptions::default()).await?;
    let (alterations, dry_run): (Vec<_>, bool) = match action {
        Action::Describe { all, .. } => {
            let mut settings = client.settings(&target.0).await?;
            settings.retain(|setting| *all || !setting.is_default());
            return output.show(out, &table(&settings), &json(&settings));
        }
        Action::Set { settings, dry_run, .. } => {
            let set =
                |(name, value): &(String, String)| Alteration::Set(name.clone(), value.clone());
            (settings.iter().map(set).collect(), *dry_run)
        }
        Action::Unset { settings, dry_run, .. } => {
            (settings.iter().cloned().map(Alteration::Unset).collect(), *dry_run)
        }
    };
    client.alter_settings(&target.0, &alterations, dry_run).await?;
    let line = match dry_run {
        true => format!("{} would be altered", target.0),
        false => format!("altered {}", target.0),
    };
    let json = json!({"resource": target.0.to_string(), "altered": !dry_run});
    output.line(out, &line, &json)
}

fn table(settings: &[Setting]) -> Table {
    let mut table = Table::new(&[left("NAME"), left("VALUE"), left("SOURCE"), left("NOTE")]);
    for setting in settings {
        let value = match (&setting.value, setting.sensitive) {
            (_, true) => Cell::from("(hidden)").toned(Tone::Dim),
            (Some(value), false) => Cell::from(value.as_str()),
            (None, false) => Cell::from("(none)").toned(Tone::Dim),
        };
        let tone = if setting.is_default() { Tone::Dim } else { Tone::Good };
        table.row([
            Cell::from(setting.name.as_str()),
            value,
            Cell::from(setting.source).toned(tone),
            Cell::from(if setting.read_only { "read-only" } else { "" }).toned(Tone::Dim),
        ]);
    }
    table
}

fn json(settings: &[Setting]) -> Value {
    let setting = |one: &Setting| {
        json!({
            "name": one.name,
            "value": one.value,
            "source": one.source,
            "read_only": one.read_only,
            "sensitive": one.sensitive,
        })
    };
    settings.iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let target = |text: &str| text.parse::<Target>().map(|target| target.0);
        assert_eq!(target("topic/flights"), Ok(Resource::Topic("flights".to_owned())));
        assert_eq!(target("broker/1"), Ok(Resource::Broker(Some(1))));
        assert_eq!(target("brokers"), Ok(Resource::Broker(None)));
        assert_eq!(target("loggers/1"), Ok(Resource::Loggers(1)));
        assert_eq!(target("group/a/b"), Ok(Resource::Group("a/b".to_owned())));
        for bad in
            ["flights", "topic/", "topic/a b", "broker/x", "brokers/1", "group/", "loggers/", ""]
        {
            target(bad).expect_err(bad);
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let setting = |name: &str, value: Option<&str>, sensitive| Setting {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            source: "DYNAMIC_TOPIC_CONFIG",
            read_only: false,
            sensitive,
        };
        let settings =
            [setting("retention.ms", Some("1"), false), setting("ssl.key", Some("x"), true)];
        let expected = "\
NAME          VALUE     SOURCE                NOTE
retention.ms  1         DYNAMIC_TOPIC_CONFIG
ssl.key       (hidden)  DYNAMIC_TOPIC_CONFIG
";
        assert_eq!(table(&settings).render(false, false), expected);
    }
}

//! The settings as tables for the README; a test compares the two.

use std::fmt::Write;

use super::server_settings::SERVER;
use super::topic_settings::TOPIC;

/// The server's settings and the topic configs, each as a Markdown table under a heading of the
/// third level.
pub fn markdown_table() -> String {
    let mut out = String::from("### Settings of the server\n\n");
    row(&mut out, ["name", "default", "values", "meaning"]);
    out.push_str("|---|---|---|---|\n");
    for setting in SERVER {
        let default = setting.default.map_or("not set".to_owned(), code);
        let values = setting.kind.to_string();
        row(&mut out, [&code(setting.name), &default, &values, setting.text]);
    }
    out.push_str("\n### Configs of topics\n\n");
    row(&mut out, ["name", "default", "values", "meaning"]);
    out.push_str("|---|---|---|---|\n");
    for setting in TOPIC.iter().filter(|setting| !setting.is_hidden) {
        let names: Vec<_> = setting.synonyms.iter().map(|synonym| code(synonym.name)).collect();
        let default = match names.as_slice() {
            [] => setting.default.map_or("not set".to_owned(), code),
            names => names.join(", "),
        };
        let values = setting.kind.to_string();
        row(&mut out, [&code(setting.name), &default, &values, setting.text]);
    }
    out
}

fn row(out: &mut String, cells: [&str; 4]) {
    let line = cells.join(" | ");
    writeln!(out, "| {line} |").expect("writing to a string can't fail");
}

fn code(text: &str) -> String {
    if text.is_empty() { "empty".to_owned() } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn every_setting_has_its_row() {
        let text = markdown_table();
        for setting in SERVER {
            assert_eq!(text.matches(&format!("\n| `{}` | ", setting.name)).count(), {
                1 + usize::from(table::topic_setting(setting.name).is_some())
            });
        }
        assert!(!text.contains("internal.segment.bytes"));
        for line in text.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.matches('|').count(), 5, "{line}");
        }
    }
}

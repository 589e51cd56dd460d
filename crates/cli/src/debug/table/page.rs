//! docs/commands.md, from the rows.

use super::info::{TOPICS, Topic};
use super::{Command, SECTIONS};

/// The lines of docs/commands.md.
pub fn page() -> Vec<String> {
    let mut lines: Vec<String> = [
        "# Commands of the prompt",
        "",
        "<!-- Made from the rows in crates/cli/src/debug/table. To make it again:",
        "     cargo run -q -p mw -- commands --markdown > docs/commands.md -->",
        "",
        "What `mw replay`, `mw attach` and `mw run` understand. The names are gdb's where gdb has them; a beginning that",
        "only one command has will do, and an empty line repeats the last. `help` lists the",
        "commands, `help NAME` says more about one.",
    ]
    .map(str::to_string)
    .to_vec();
    for section in SECTIONS {
        lines.push(String::new());
        lines.push(format!("## {}", section.title));
        lines.push(String::new());
        lines.push("| command | also | what it does | example |".to_string());
        lines.push("|---|---|---|---|".to_string());
        lines.extend(section.commands.iter().map(row));
    }
    lines.push(String::new());
    lines.push("## What `info` knows about".to_string());
    lines.push(String::new());
    lines.push("| topic | also | what it shows |".to_string());
    lines.push("|---|---|---|".to_string());
    lines.extend(TOPICS.iter().map(topic_row));
    lines
}

fn topic_row(topic: &Topic) -> String {
    let usage = format!("info {} {}", topic.name, topic.arguments);
    format!(
        "| {} | {} | {} |",
        code(usage.trim_end()),
        codes(topic.aliases),
        topic.summary
    )
}

fn row(command: &Command) -> String {
    let mut what = command.summary.to_string();
    if !command.more.is_empty() {
        what.push_str(". ");
        what.push_str(command.more);
    }
    format!(
        "| {} | {} | {} | {} |",
        code(&command.usage()),
        codes(command.aliases),
        what.replace('|', "\\|"),
        code(command.example)
    )
}

fn codes(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| code(name)).collect();
    names.join(", ")
}

/// A text as code in a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

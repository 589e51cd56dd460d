//! docs/commands.md, from the rows.

use super::super::info::TOPICS;
use super::{Command, SECTIONS};

/// The lines of docs/commands.md.
pub fn page() -> Vec<String> {
    let mut lines: Vec<String> = [
        "# Commands of the prompt",
        "",
        "<!-- Made from the rows in crates/cli/src/debug/table. To make it again:",
        "     cargo run -q -p mw -- commands --markdown > docs/commands.md -->",
        "",
        "What `mw replay` understands. The names are gdb's where gdb has them; a beginning that",
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
    let topics: Vec<String> = TOPICS.iter().map(|topic| code(topic)).collect();
    lines.push(format!("{}.", topics.join(", ")));
    lines
}

fn row(command: &Command) -> String {
    let aliases: Vec<String> = command.aliases.iter().map(|name| code(name)).collect();
    let mut what = command.summary.to_string();
    if !command.more.is_empty() {
        what.push_str(". ");
        what.push_str(command.more);
    }
    format!(
        "| {} | {} | {} | {} |",
        code(&command.usage()),
        aliases.join(", "),
        what.replace('|', "\\|"),
        code(command.example)
    )
}

/// A text as code in a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

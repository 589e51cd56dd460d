//! A graph for Graphviz: a cluster for each process, its linked events in
//! order, links between them.

use std::io::{self, Write};

use super::Export;
use crate::names;

/// As it stands between quotes.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Writes it.
pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    writeln!(out, "digraph causes {{")?;
    // Without `newrank` dot places each cluster by itself, and fails where arrows go
    // back and forth between them ("trouble in init_rank").
    writeln!(
        out,
        "  rankdir=TB; newrank=true; node [shape=box, fontsize=10];"
    )?;
    let mut items = export.linked();
    items.sort_by_key(|item| item.event);
    for group in items.chunk_by(|a, b| a.event.process == b.event.process) {
        let Some(first) = group.first() else { continue };
        let name = names::process(history, first.event.process);
        writeln!(out, "  subgraph \"cluster_{}\" {{", quoted(&name))?;
        writeln!(out, "    label=\"{}\";", quoted(&name))?;
        for item in group {
            writeln!(
                out,
                "    \"{}\" [label=\"{}\\n{}\"];",
                quoted(&export.name(item.event)),
                item.event.number,
                quoted(&item.text)
            )?;
        }
        for pair in group.windows(2) {
            if let [a, b] = pair {
                writeln!(
                    out,
                    "    \"{}\" -> \"{}\" [style=dotted, arrowhead=none];",
                    quoted(&export.name(a.event)),
                    quoted(&export.name(b.event))
                )?;
            }
        }
        writeln!(out, "  }}")?;
    }
    for link in &export.links {
        if link.cause.process != link.effect.process {
            writeln!(
                out,
                "  \"{}\" -> \"{}\" [label=\"{}\"];",
                quoted(&export.name(link.cause)),
                quoted(&export.name(link.effect)),
                link.kind
            )?;
        }
    }
    writeln!(out, "}}")
}

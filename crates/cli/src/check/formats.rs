//! Verdicts in the formats of systems that collect them.

use conditions::verdict::Outcome;
use serde_json::{Value, json};

use super::Judged;

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            // XML has no other control characters, not even escaped.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// What is to be said of a rule, in one sentence.
fn message(judged: &Judged) -> String {
    let verdict = &judged.verdict;
    let mut words = format!(
        "{} {}: {}",
        verdict.kind.name(),
        verdict.rule,
        verdict.outcome.name()
    );
    if let Some(reason) = &verdict.reason {
        words.push_str(&format!(", {reason}"));
    }
    if let Some(witness) = judged.witnesses.first() {
        words.push_str(&format!(", at {}", witness.events.join(", ")));
    }
    words
}

/// JUnit's XML: a suite for each recording, a case for each rule.
pub fn junit(all: &[Judged]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    let mut rest = all;
    while let Some(first) = rest.first() {
        let count = rest
            .iter()
            .take_while(|one| one.recording == first.recording)
            .count();
        let (suite, more) = rest.split_at(count);
        rest = more;
        let number = |outcome: Outcome| {
            suite
                .iter()
                .filter(|o| o.verdict.outcome == outcome)
                .count()
        };
        out.push_str(&format!(
            "  <testsuite name=\"{}\" tests=\"{count}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n",
            escape(&first.recording),
            number(Outcome::Violated),
            number(Outcome::Unknown),
            number(Outcome::Vacuous),
        ));
        for one in suite {
            let verdict = &one.verdict;
            out.push_str(&format!(
                "    <testcase name=\"{}\" classname=\"{}\" file=\"{}\" line=\"{}\"",
                escape(&verdict.rule),
                verdict.kind.name(),
                escape(&verdict.file),
                verdict.line,
            ));
            let tag = match verdict.outcome {
                Outcome::Violated => "failure",
                Outcome::Unknown => "error",
                Outcome::Vacuous => "skipped",
                Outcome::Holds | Outcome::Matched => {
                    out.push_str("/>\n");
                    continue;
                }
            };
            let goto = one.witnesses.first().map_or("", |witness| &witness.goto);
            out.push_str(&format!(
                ">\n      <{tag} message=\"{}\">{}</{tag}>\n    </testcase>\n",
                escape(&message(one)),
                escape(goto),
            ));
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>");
    out
}

/// A path as a URI: relative to where the rules were read, unless it is absolute.
fn uri(path: &str) -> String {
    let mut out = String::new();
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(byte.into());
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// SARIF 2.1.0: a result for each rule that does not hold, or could not be
/// judged. Rules have the descriptions, and results the fingerprints, that viewers ask for.
pub fn sarif(all: &[Judged]) -> Value {
    let mut rules: Vec<&Judged> = Vec::new();
    for one in all {
        if !rules.iter().any(|own| own.verdict.rule == one.verdict.rule) {
            rules.push(one);
        }
    }
    let described: Vec<Value> = rules
        .iter()
        .map(|one| {
            let (kind, name) = (one.verdict.kind.name(), &one.verdict.rule);
            let place = format!("{}:{}", one.verdict.file, one.verdict.line);
            json!({
                "id": name,
                "name": name,
                "shortDescription": { "text": format!("{kind} {name}") },
                "fullDescription": { "text": format!("The rule `{kind} {name}` at {place}.") },
                "help": { "text": format!(
                    "The rule is at {place}. The command of a result goes to where it does not hold."
                ) },
            })
        })
        .collect();
    let results: Vec<Value> = all
        .iter()
        .filter_map(|one| {
            let level = match one.verdict.outcome {
                Outcome::Violated => "error",
                Outcome::Unknown | Outcome::Vacuous => "warning",
                Outcome::Matched => "note",
                Outcome::Holds => return None,
            };
            let goto = one.witnesses.first().map(|witness| witness.goto.clone());
            let index = rules
                .iter()
                .position(|own| own.verdict.rule == one.verdict.rule);
            Some(json!({
                "ruleId": one.verdict.rule,
                "ruleIndex": index,
                "level": level,
                "message": { "text": message(one) },
                "locations": [{
                    "physicalLocation": {
                        "artifactLocation": { "uri": uri(&one.verdict.file) },
                        "region": { "startLine": one.verdict.line.max(1) },
                    },
                }],
                "partialFingerprints": {
                    "ruleAndRecording/v1": format!("{}:{}", one.verdict.rule, one.recording),
                },
                "properties": { "recording": one.recording, "goto": goto },
            }))
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "mw check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": described,
            } },
            "results": results,
        }],
    })
}

//! The pages under docs/ agree with the code.
//!
//! Where a page can be made again, `MW_UPDATE_DOCS=1 cargo test -p mw --test
//! docs` does so; what only a person can write is named.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn updates() -> bool {
    std::env::var_os("MW_UPDATE_DOCS").is_some()
}

/// All files below `dir` whose names end in one of `suffixes`, in order.
fn files(dir: &Path, suffixes: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with("target") {
            found.extend(files(&path, suffixes));
        } else if suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Checks a page that a command prints.
fn is_what_it_prints(page: &str, command: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_mw"))
        .args([command, "--markdown"])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let path = repository().join("docs").join(page);
    if updates() {
        std::fs::write(&path, &printed).unwrap();
    }
    assert!(
        read(&path) == printed,
        "docs/{page} is not what the table says; make it again with\n    \
         cargo run -q -p mw -- {command} --markdown > docs/{page}"
    );
}

#[test]
fn the_page_of_system_calls_is_what_the_table_says() {
    is_what_it_prints("syscalls.md", "syscalls");
}

#[test]
fn the_page_of_commands_is_what_the_rows_say() {
    is_what_it_prints("commands.md", "commands");
}

#[test]
fn the_boundaries_between_crates_hold() {
    let output = Command::new(repository().join("scripts/check-boundaries"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "scripts/check-boundaries says:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The string literal that begins at `text`, if one does.
fn literal(text: &str) -> Option<String> {
    let mut chars = text.trim_start().strip_prefix('"')?.chars();
    let mut value = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                // The line goes on behind the next line's indentation.
                '\n' => {
                    let rest = chars.as_str().trim_start();
                    chars = rest.chars();
                }
                'n' => value.push('\n'),
                c => value.push(c),
            },
            c => value.push(c),
        }
    }
}

/// A message with `{}` for all that varies, be it written `{path}` as in the
/// code or `<path>` as in the catalogue.
fn pattern(message: &str, open: char, close: char) -> String {
    let mut pattern = String::new();
    let mut depth = 0;
    for c in message.chars() {
        if c == open {
            if depth == 0 {
                pattern.push_str("{}");
            }
            depth += 1;
        } else if c == close && depth > 0 {
            depth -= 1;
        } else if depth == 0 {
            pattern.push(c);
        }
    }
    pattern
}

/// How messages are made: what stands before the literal, and what the
/// literal is part of.
const MAKERS: &[(&str, &str, &str)] = &[
    ("#[error(", "", ""),
    ("Failure::new(", "", ""),
    ("Failure::new(format!(", "", ""),
    ("Error::System(", "", ""),
    ("eprintln!(", "", ""),
    ("remark(format_args!(", "", ""),
    // Helpers of crates/agent and crates/cli.
    ("map_err(fail(", "", " {}"),
    ("Err(fail(", "", " {}"),
    ("missing(", "{}: ", ""),
];

/// The patterns of the messages that the code can give, and where.
fn messages() -> BTreeMap<String, String> {
    let root = repository();
    let mut sources = files(&root.join("crates/cli/src"), &[".rs"]);
    sources.extend(files(&root.join("crates/agent/src"), &[".rs"]));
    sources.extend(files(&root.join("crates/replay/src"), &[".rs"]));
    sources.extend(files(&root.join("crates/session/src"), &[".rs"]));
    sources.push(root.join("crates/target/src/error.rs"));
    sources.push(root.join("crates/live/src/error.rs"));
    sources.push(root.join("crates/recording/src/error.rs"));
    sources.push(root.join("crates/recording/src/listing.rs"));
    for name in ["error", "refusal", "plan", "listen"] {
        sources.push(root.join(format!("crates/hosts/src/{name}.rs")));
    }
    sources.push(root.join("crates/inject/src/lib.rs"));
    sources.push(root.join("crates/inject/src/refusal.rs"));
    sources.push(root.join("crates/inspect/src/error.rs"));
    sources.push(root.join("crates/causality/src/history/mod.rs"));
    sources.push(root.join("crates/events/src/lib.rs"));
    sources.push(root.join("crates/conditions/src/syntax/mod.rs"));
    sources.push(root.join("crates/conditions/src/rules.rs"));
    sources.push(root.join("crates/instants/src/table.rs"));
    sources.extend(files(&root.join("crates/query/src"), &[".rs"]));
    let mut found = BTreeMap::new();
    for path in sources {
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (maker, before, after) in MAKERS {
            for (at, _) in code.match_indices(maker) {
                let rest = &code[at + maker.len()..];
                let Some(text) = literal(rest).filter(|text| !text.is_empty()) else {
                    continue;
                };
                let text = text.strip_prefix("mw: ").unwrap_or(&text);
                let line = code[..at].lines().count().max(1);
                let place = path.strip_prefix(&root).unwrap().display();
                found.insert(
                    format!("{before}{}{after}", pattern(text, '{', '}')),
                    format!("{place}:{line}"),
                );
            }
        }
    }
    found
}

#[test]
fn every_message_has_an_entry_in_the_catalogue() {
    let page = read(&repository().join("docs/errors.md"));
    let entries: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|line| pattern(line.trim_matches('`').trim(), '<', '>'))
        .collect();
    let messages = messages();
    assert!(messages.len() > 30, "the scan finds no messages any more");
    let mut wrong = Vec::new();
    for (message, place) in &messages {
        // One that is only put together of others has its entries there.
        let says_something = message.chars().any(char::is_alphabetic);
        if says_something && !entries.contains(message) {
            wrong.push(format!("no entry for the message of {place}: {message}"));
        }
    }
    for entry in &entries {
        if !messages.contains_key(entry) {
            wrong.push(format!("no code gives this message any more: {entry}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/errors.md (an entry is `### `, the message in backticks with <...> for what varies, \
         cause and fix):\n{}",
        wrong.join("\n")
    );
}

/// What of a file the compiler does not check: `unsafe` blocks, `unsafe`
/// implementations, pieces of assembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unchecked {
    blocks: usize,
    implementations: usize,
    assembly: usize,
}

impl Unchecked {
    fn of(path: &Path) -> Unchecked {
        let text = read(path);
        if path.extension().is_some_and(|suffix| suffix == "S") {
            return Unchecked {
                assembly: 1,
                ..Unchecked::default()
            };
        }
        let code: Vec<&str> = text
            .lines()
            .map(|line| line.split("//").next().unwrap())
            .collect();
        let code = code.join("\n");
        let count = |word: &str| code.matches(word).count();
        let pieces = |word: &str| {
            let starts = code.match_indices(word).filter(|(at, _)| {
                let before = code[..*at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            });
            starts.count()
        };
        Unchecked {
            blocks: count("unsafe {"),
            implementations: count("unsafe impl"),
            assembly: pieces("asm!(") + pieces("naked_asm!(") + pieces("global_asm!("),
        }
    }

    fn columns(self) -> String {
        let Unchecked {
            blocks,
            implementations,
            assembly,
        } = self;
        format!("{blocks} | {implementations} | {assembly}")
    }
}

#[test]
fn the_ledger_of_unsafe_code_is_complete() {
    let root = repository();
    let page_path = root.join("docs/unsafe.md");
    let mut actual = BTreeMap::new();
    for room in ["crates", "benches", "examples"] {
        for path in files(&root.join(room), &[".rs", ".S"]) {
            let place = path.strip_prefix(&root).unwrap().display().to_string();
            // Its text holds the words it looks for.
            if place == "crates/cli/tests/docs.rs" {
                continue;
            }
            let unchecked = Unchecked::of(&path);
            if unchecked != Unchecked::default() {
                actual.insert(place, unchecked);
            }
        }
    }
    let mut wrong = Vec::new();
    let mut listed = BTreeSet::new();
    let mut lines = Vec::new();
    for line in read(&page_path).lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let place = cells[0].trim_start_matches("| ").trim_matches('`');
        let is_row = line.starts_with("| `") && cells.len() == 5;
        let mut line = line.to_string();
        if is_row {
            listed.insert(place.to_string());
            match actual.get(place) {
                None => wrong.push(format!("{place} has no unsafe code any more: drop its row")),
                Some(unchecked) if cells[1..4].join(" | ") != unchecked.columns() => {
                    let right = format!("| `{place}` | {} | {}", unchecked.columns(), cells[4]);
                    if updates() {
                        line = right;
                    } else {
                        wrong.push(format!("look at what changed, then set\n    {right}"));
                    }
                }
                Some(_) => {}
            }
        }
        lines.push(line);
    }
    for (place, unchecked) in &actual {
        if !listed.contains(place) {
            wrong.push(format!(
                "say in a row why this is sound:\n    | `{place}` | {} | ... |",
                unchecked.columns()
            ));
        }
    }
    if updates() {
        std::fs::write(&page_path, lines.join("\n") + "\n").unwrap();
    }
    assert!(wrong.is_empty(), "docs/unsafe.md:\n{}", wrong.join("\n"));
}

#[test]
fn the_page_on_the_format_has_its_numbers_right() {
    use protocol::shared::{ARENA_SIZE, CHUNK_HEAD, CHUNK_SIZE, CHUNKS_MAX, Control};
    let page = read(&repository().join("docs/format.md"));
    let states = std::mem::offset_of!(Control, chunk_state);
    for said in [
        format!(
            "The format described here is version {}",
            protocol::FORMAT_VERSION
        ),
        format!("A file of up to {ARENA_SIZE} bytes"),
        format!("{CHUNKS_MAX} u32: the state of each chunk"),
        format!("{states} in format {}", protocol::FORMAT_VERSION),
        format!("chunks of at most {CHUNK_SIZE} bytes"),
        format!("a head of {CHUNK_HEAD} bytes"),
    ] {
        let words: Vec<&str> = page.split_whitespace().collect();
        assert!(
            words.join(" ").contains(&said),
            "docs/format.md does not say \"{said}\": it describes another format"
        );
    }
}

/// Pages that link to pages that are not there lead nowhere.
#[test]
fn links_between_the_pages_lead_somewhere() {
    let root = repository();
    let mut pages = files(&root.join("docs"), &[".md"]);
    pages
        .extend(["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    for page in pages {
        let text = read(&page);
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split([')', '#']).next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().unwrap().join(target);
            assert!(
                path.exists(),
                "{}: the link to {target} leads nowhere",
                page.display()
            );
        }
    }
}

/// The lists of words that a key has in the manifest of docs/kubernetes.md.
fn word_lists(manifest: &str, key: &str) -> Vec<Vec<String>> {
    let lists = manifest.lines().filter_map(|line| {
        let list = line.trim().strip_prefix(key)?.trim();
        serde_json::from_str(list).ok()
    });
    lists.collect()
}

/// What stands behind a key that has one value, wherever it is in the manifest.
fn all_of<'a>(manifest: &'a str, key: &'a str) -> Vec<&'a str> {
    let found = manifest.split(key).skip(1);
    let ends = [' ', ',', '}', ']', '\n'];
    found
        .map(|rest| rest.trim_start().split(ends).next().unwrap())
        .collect()
}

/// The manifest of docs/kubernetes.md could not be tried on a cluster. What its commands
/// say is tried here, with the very words.
#[test]
fn the_commands_of_the_manifest_work() {
    use std::io::BufRead;
    const MW: &str = env!("CARGO_BIN_EXE_mw");
    let page = read(&repository().join("docs/kubernetes.md"));
    let manifest = page.split("```yaml\n").nth(1).unwrap();
    let manifest = manifest.split("```").next().unwrap();
    let commands = word_lists(manifest, "command:");
    let [copy, agent] = &commands[..] else {
        panic!("{commands:?}");
    };
    let mounts = all_of(manifest, "mountPath:");
    let is_mounted = |path: &str| mounts.iter().any(|mount| path.starts_with(mount));

    // What the first container leaves is what the second runs, from a volume of both.
    assert_eq!((copy[0].as_str(), &copy[2]), ("cp", &agent[0]));
    assert!(is_mounted(&agent[0]), "{mounts:?}");
    let volumes = all_of(manifest, "- { name:");
    for name in ["shared", "trust", "recordings"] {
        let named = volumes.iter().filter(|volume| **volume == name).count();
        let alone = manifest.matches(&format!("- name: {name}\n")).count();
        let inline = manifest.matches(&format!("[{{ name: {name},")).count();
        assert!(
            named + alone + inline >= 2,
            "{name} is not both there and mounted"
        );
    }
    // Recordings are where the volume is.
    for key in ["XDG_DATA_HOME, value:", "HOME, value:"] {
        assert!(all_of(manifest, key).iter().all(|home| is_mounted(home)));
    }

    // The port: what is listened at, opened, offered, and what `mw` tries by itself.
    let listen = agent.iter().position(|word| word == "--listen").unwrap() + 1;
    let port = agent[listen].rsplit(':').next().unwrap().to_string();
    assert_eq!(port, hosts::connect::PORT.to_string());
    assert!(all_of(manifest, "containerPort:").contains(&port.as_str()));
    assert!(all_of(manifest, "port:").contains(&port.as_str()));

    // Each pod finds its own identity in the secret, under the name that its command has.
    let name = all_of(manifest, "serviceName:")[0];
    let count: usize = all_of(manifest, "replicas:")[0].parse().unwrap();
    let identity = agent.iter().position(|word| word == "--identity").unwrap() + 1;
    let directory = Path::new(&agent[identity]).parent().unwrap();
    assert!(is_mounted(directory.to_str().unwrap()));
    let secret: BTreeMap<&str, &str> = page
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("--from-file=")?.split_once('='))
        .collect();
    let dir = std::env::temp_dir().join(format!("mw-manifest-{}", std::process::id()));
    let line = page
        .lines()
        .find(|line| line.trim().starts_with("mw hosts trust --as"));
    let words: Vec<&str> = line.unwrap().split_whitespace().skip(1).collect();
    let trust = Command::new(MW)
        .args(&words)
        .arg("--dir")
        .arg(&dir)
        .output();
    assert!(trust.as_ref().unwrap().status.success(), "{trust:?}");
    for pod in (0..count).map(|number| format!("{name}-{number}")) {
        assert!(words.contains(&format!("{pod}.{name}").as_str()), "{pod}");
        let path = agent[identity].replace("$(POD)", &pod);
        let key = Path::new(&path).file_name().unwrap().to_str().unwrap();
        let file = dir.join(secret[key]);
        assert!(file.exists(), "{pod}: {}", file.display());
        // And the agent takes it, with all that is said besides.
        let mut words = agent[1..].to_vec();
        words[listen - 1] = "127.0.0.1:0".to_string();
        words[identity - 1] = file.to_str().unwrap().to_string();
        let mut child = Command::new(MW)
            .args(&words)
            .env("XDG_DATA_HOME", &dir)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufReader::new(out).read_line(&mut said).unwrap();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            said.starts_with("listening at 127.0.0.1:"),
            "{said}{output:?}"
        );
    }

    // What is then asked is understood: there is no such host, and that is what is said.
    let asked = ["mw record --on", "mw pull", "mw hosts check"];
    for begin in asked {
        let (_, line) = page.split_once(begin).unwrap();
        let end = line.find(['`', '\n']).unwrap();
        let line = format!("{begin}{}", &line[..end]).replace("...", "x");
        let output = Command::new("sh")
            .arg("-c")
            .arg(
                line.replacen("mw ", "\"$MW\" ", 1)
                    .replace("tls:x", "tls:etcd-0.etcd"),
            )
            .env("MW", MW)
            .env("XDG_DATA_HOME", &dir)
            .env("MW_IDENTITY", dir.join("nobody.pem"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let all = said.clone() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{line}: {all}");
        assert!(!said.contains("Usage:"), "{line}: {said}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

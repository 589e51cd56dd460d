//! The agent without a command line around it: runs a program live or records it,
//! and asks a running agent something.
//!
//!     halting run COMMAND...
//!     halting record DIRECTORY COMMAND...
//!     halting ask PID JSON...
//!     halting bench PID ROUNDS
//!     halting list
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use agent::control::{self, Answer, Client, Request};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let text: Vec<String> = args
        .iter()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let ended = match text.first().map(String::as_str) {
        Some("run") => agent::run(&args[1..], &in_path(&args[1]), None),
        Some("record") => agent::record(&agent::Options {
            dir: PathBuf::from(&args[1]),
            command: args[2..].to_vec(),
            path: in_path(&args[2]),
            on_full: agent::OnFull::Continue,
            cache: None,
        }),
        Some("ask") => return ask(&text[1..]),
        Some("bench") => return bench(&text[1..]),
        Some("list") => {
            for (path, status) in control::list() {
                println!("{} {}", path.display(), status.command.join(" "));
            }
            return ExitCode::SUCCESS;
        }
        _ => return ExitCode::FAILURE,
    };
    match ended {
        Ok(ended) => ExitCode::from(ended.status as u8),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(args: &[String]) -> ExitCode {
    let socket = args[0].parse().ok().and_then(control::socket_of);
    let Some(mut client) = socket.and_then(|path| Client::connect(&path).ok()) else {
        eprintln!("nobody answers");
        return ExitCode::FAILURE;
    };
    for line in &args[1..] {
        if let Some(ms) = line.strip_prefix("wait ") {
            std::thread::sleep(std::time::Duration::from_millis(ms.parse().unwrap_or(0)));
            continue;
        }
        let Ok(request) = serde_json::from_str::<Request>(line) else {
            eprintln!("this is no request: {line}");
            return ExitCode::FAILURE;
        };
        match client.ask(&request) {
            Ok(answer) => println!("{}", serde_json::to_string(&answer).unwrap_or_default()),
            Err(error) => eprintln!("{error}"),
        }
    }
    ExitCode::SUCCESS
}

/// Halts a program again and again: how long it takes.
fn bench(args: &[String]) -> ExitCode {
    let socket = args[0].parse().ok().and_then(control::socket_of);
    let Some(mut client) = socket.and_then(|path| Client::connect(&path).ok()) else {
        eprintln!("nobody answers");
        return ExitCode::FAILURE;
    };
    let rounds = args.get(1).and_then(|arg| arg.parse().ok()).unwrap_or(100);
    // Until it has looked who there is.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let (mut told, mut took, mut skew) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let request = Request::Halt {
            limit_ms: None,
            keep_ms: None,
            overrides: false,
        };
        if let Ok(Answer::Halted(halted)) = client.ask(&request) {
            told.push(halted.told_ns);
            took.push(halted.took_ns);
            skew.push(halted.skew_ns);
        }
        let _ = client.ask(&Request::Resume);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for (name, mut values) in [
        ("no instruction later than", told),
        ("last stopped after first", skew),
        ("whole halt", took),
    ] {
        values.sort_unstable();
        let at = |part: usize| values.get(part).copied().unwrap_or(0) / 1000;
        let (middle, last) = (values.len() / 2, values.len().saturating_sub(1));
        println!("{name}: median {} us, worst {} us", at(middle), at(last));
    }
    ExitCode::SUCCESS
}

/// The file of a command.
fn in_path(name: &OsString) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path);
    let found = dirs.map(|dir| dir.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| PathBuf::from(name))
}

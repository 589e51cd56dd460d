//! The agent without a command line around it: attaches to programs that run.
//!
//!     attaching hold PID...              until they have ended, or `halting ask` detaches
//!     attaching rounds COUNT MS PID...   attach, halt for so long, resume, detach; again
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<i32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let done = match (args.first().map(String::as_str), numbers.as_slice()) {
        (Some("hold"), pids) => hold(pids),
        (Some("rounds"), [count, ms, pids @ ..]) => rounds(*count, *ms, pids),
        _ => return ExitCode::FAILURE,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            if let Some(hint) = error.hint() {
                eprintln!("    {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn hold(pids: &[i32]) -> Result<(), agent::Error> {
    let attachment = agent::attach(pids)?;
    println!("attached: {:?}", attachment.stood());
    println!("left: {:?}", attachment.wait()?);
    Ok(())
}

fn rounds(count: i32, ms: i32, pids: &[i32]) -> Result<(), agent::Error> {
    let (mut came, mut left, mut took) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let begin = Instant::now();
        let attachment = agent::attach(pids)?;
        took.push(begin.elapsed());
        came.extend(attachment.stood().iter().map(|(_, stood)| *stood));
        if ms > 0 {
            let mut halter = attachment.halter();
            halter.prepare();
            let halted = halter.halt(Duration::from_secs(5));
            if halted.is_partial {
                println!("not all: {:?}", halted.stops);
            }
            std::thread::sleep(Duration::from_millis(ms as u64));
            halter.resume();
        }
        std::thread::sleep(Duration::from_millis(30));
        let detached = attachment.detach()?;
        left.extend(detached.stood.iter().map(|(_, stood)| *stood));
        std::thread::sleep(Duration::from_millis(10));
    }
    for (name, mut times) in [("came in", came), ("left in", left), ("attach took", took)] {
        times.sort_unstable();
        let (middle, last) = (times.len() / 2, times.len().saturating_sub(1));
        println!(
            "{name}: median {:?}, worst {:?}",
            times.get(middle),
            times.get(last)
        );
    }
    Ok(())
}

//! What the tests of `mw record` share.
//!
//! A test makes a [`Scratch`], records into it and asks the [`Recorded`] what
//! it holds, through the commands a user has. When a test fails, its scratch
//! directory stays, and the commands that were run are printed, so that they
//! can be run again by hand. Whatever a test leaves running is killed.
#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod alive;
pub mod ends;
pub mod event;
pub mod gdb;
pub mod instants;
pub mod joined;
pub mod listening;
pub mod namespaces;
pub mod nobody;
pub mod processes;
pub mod programs;
pub mod prompt;
pub mod recorded;
pub mod rewrite;
pub mod running;
pub mod scratch;
pub mod servers;
pub mod sound;
pub mod terminal;
pub mod verified;

pub use event::Event;
pub use recorded::{Outcome, Recorded};
pub use running::Running;
pub use scratch::Scratch;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The command under test.
pub const MW: &str = env!("CARGO_BIN_EXE_mw");

/// How long one run may take. Far more than any needs, on a loaded machine
/// too: it is there to name what hangs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf()
}

/// A command that ignores no signal, even if these tests were started by
/// somebody who does (`nohup`, say).
pub fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(program);
    command
}

/// Waits until `done` says something; panics after [`LIMIT`].
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The file of this name in the search path of the shell or in the
/// directories where servers are.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Ends the test, as passed, with the reason why it cannot be done here.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        eprintln!("skipped: {}", format_args!($($reason)*));
        return;
    }};
}

/// The tool, or the end of the test. `scripts/test` installs the tools and
/// then tolerates no such end.
#[macro_export]
macro_rules! tool {
    ($name:expr) => {
        match $crate::harness::find_tool($name) {
            Some(path) => path.to_str().unwrap().to_string(),
            None if std::env::var_os("MW_TOOLS_ARE_INSTALLED").is_some() => {
                panic!("{} is not installed", $name)
            }
            None => $crate::skip!("{} is not installed", $name),
        }
    };
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

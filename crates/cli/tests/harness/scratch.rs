//! A directory of its own for each test.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::recorded::Recorded;
use super::running::{Running, Setup};

/// The directory of a test. It goes with the test, and stays if that fails.
pub struct Scratch {
    dir: Option<tempfile::TempDir>,
    commands: RefCell<Vec<String>>,
    recordings: RefCell<u32>,
}

impl Scratch {
    /// Among what cargo builds, where there is room.
    pub fn new(name: &str) -> Scratch {
        Scratch::inside(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    /// Where every user may go.
    pub fn for_everyone(name: &str) -> Scratch {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::inside(&std::env::temp_dir(), name);
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        scratch
    }

    fn inside(parent: &Path, name: &str) -> Scratch {
        let dir = tempfile::Builder::new()
            .prefix(&format!("mw-{name}."))
            .tempdir_in(parent)
            .unwrap();
        Scratch {
            dir: Some(dir),
            commands: RefCell::default(),
            recordings: RefCell::default(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    /// A name in it that nothing has yet.
    pub fn fresh(&self, name: &str) -> PathBuf {
        let mut count = self.recordings.borrow_mut();
        *count += 1;
        self.path().join(format!("{name}-{count}"))
    }

    /// Remembers how something was done, for when the test fails.
    pub fn note(&self, command: String) {
        self.commands.borrow_mut().push(command);
    }

    /// Records a command from beginning to end.
    pub fn record<S: AsRef<std::ffi::OsStr>>(&self, command: &[S]) -> Recorded {
        self.setup(command).start().finish()
    }

    /// Starts to record a command.
    pub fn start<S: AsRef<std::ffi::OsStr>>(&self, command: &[S]) -> Running<'_> {
        self.setup(command).start()
    }

    /// What is to be recorded, for when there is more to say about it.
    pub fn setup<S: AsRef<std::ffi::OsStr>>(&self, command: &[S]) -> Setup<'_> {
        Setup::new(self, command)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = self.dir.take().map(tempfile::TempDir::keep);
            eprintln!("kept {}", kept.unwrap_or_default().display());
            eprintln!("to do it again by hand:");
            for command in self.commands.borrow().iter() {
                eprintln!("    {command}");
            }
        }
    }
}

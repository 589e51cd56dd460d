//! `mw` as a user without rights, on files that such a user can reach.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::MW;
use super::scratch::Scratch;

pub struct Nobody {
    pub scratch: Scratch,
    mw: PathBuf,
}

impl Nobody {
    /// None if we are not in the position to become nobody.
    pub fn new(name: &str) -> Option<Nobody> {
        if !super::is_root() || super::find_tool("setpriv").is_none() {
            return None;
        }
        let scratch = Scratch::for_everyone(name);
        let mw = scratch.path().join("mw");
        std::fs::copy(MW, &mw).unwrap();
        std::fs::set_permissions(&mw, PermissionsExt::from_mode(0o755)).unwrap();
        Some(Nobody { scratch, mw })
    }

    /// A directory that nobody owns.
    pub fn own(&self, name: &str) -> PathBuf {
        let dir = self.scratch.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
        dir
    }

    /// Runs `mw`.
    pub fn run(&self, args: &[&str]) -> Output {
        self.run_program(&self.mw, args)
    }

    pub fn run_program(&self, program: &Path, args: &[&str]) -> Output {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program)
            .args(args)
            .env("XDG_DATA_HOME", self.scratch.path().join("data"))
            .env("HOME", "/nonexistent")
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

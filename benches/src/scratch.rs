//! A directory of our own for everything the run writes; it goes when the run ends.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

pub struct Scratch {
    path: PathBuf,
    next: AtomicU32,
}

impl Scratch {
    /// Below `parent`, or where temporary files go.
    pub fn new(parent: Option<&Path>) -> Result<Scratch> {
        let parent = parent.map_or_else(env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("mw-bench-{}", process::id()));
        let create = || -> Result<PathBuf> {
            fs::create_dir_all(&parent)?;
            fs::create_dir(&path)?;
            // Servers started by root read their files as somebody else.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            Ok(path.canonicalize()?)
        };
        let path = create().with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch {
            path,
            next: AtomicU32::new(0),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path nobody has used yet, with nothing at it.
    pub fn fresh(&self, name: &str) -> Fresh {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Fresh(self.path.join(format!("{name}-{number}")))
    }

    /// A fresh directory that exists.
    pub fn directory(&self, name: &str) -> Result<Fresh> {
        let fresh = self.fresh(name);
        fs::create_dir(fresh.path())
            .with_context(|| format!("cannot make {}", fresh.path().display()))?;
        Ok(fresh)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the place is one for temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A path below the scratch directory; whatever came to be there goes with it. A recording is
/// removed as soon as it was looked at, so that writing it back does not disturb the next run.
pub struct Fresh(PathBuf);

impl Fresh {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = match self.0.is_dir() {
            true => fs::remove_dir_all(&self.0),
            false => fs::remove_file(&self.0),
        };
    }
}

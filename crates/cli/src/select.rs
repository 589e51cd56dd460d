//! Which recording a command is about.

use std::path::PathBuf;
use std::sync::Arc;

use recording::Recording;

use crate::failure::Failure;

/// Where recordings go that were not told where to go.
pub fn home() -> Option<PathBuf> {
    own("XDG_DATA_HOME", ".local/share")
}

/// Where things go that only save time.
pub fn cache() -> Option<PathBuf> {
    own("XDG_CACHE_HOME", ".cache")
}

/// Our part of one of the user's directories.
fn own(variable: &str, below_home: &str) -> Option<PathBuf> {
    let base = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| {
            let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
            Some(PathBuf::from(home).join(below_home))
        })?;
    Some(base.join("meanwhile"))
}

/// `REC` as an argument or as `-r REC`, for commands that have no other.
#[derive(Clone, clap::Args)]
pub struct Positional {
    /// The recording [default: the latest]
    #[arg(value_name = "REC", conflicts_with = "option")]
    argument: Option<PathBuf>,

    /// The recording, too
    #[arg(id = "option", short = 'r', long = "recording", value_name = "REC")]
    option: Option<PathBuf>,
}

impl Positional {
    pub fn open(self) -> Result<Arc<Recording>, Failure> {
        open(self.argument.or(self.option))
    }
}

/// `-r REC`, for commands whose argument is something else.
#[derive(clap::Args)]
pub struct Chosen {
    /// The recording [default: the latest]
    #[arg(short = 'r', long = "recording", value_name = "REC")]
    recording: Option<PathBuf>,
}

impl Chosen {
    pub fn open(&self) -> Result<Arc<Recording>, Failure> {
        open(self.recording.clone())
    }
}

/// The recording at a path, or the latest.
pub fn open(path: Option<PathBuf>) -> Result<Arc<Recording>, Failure> {
    let path = match path {
        Some(path) => path,
        None => {
            let latest = home()
                .ok_or_else(|| {
                    Failure::new("no recording given, and neither HOME nor XDG_DATA_HOME is set")
                        .hint("name one with `-r REC`")
                })?
                .join("latest");
            if std::fs::symlink_metadata(&latest).is_err() {
                return Err(Failure::new(format!(
                    "no recording given, and there is no latest one at {}",
                    latest.display()
                ))
                .hint("make one with `mw record CMD`, or name one with `-r REC`"));
            }
            if !latest.exists() {
                let target = std::fs::read_link(&latest).unwrap_or_default();
                return Err(Failure::new(format!(
                    "the latest recording is gone: {}",
                    target.display()
                ))
                .hint("name another with `-r REC`"));
            }
            latest
        }
    };
    Recording::open(&path).map(Arc::new).map_err(|error| {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

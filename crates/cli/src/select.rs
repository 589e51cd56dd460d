//! Which recording a command is about.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use recording::{Set, listing};

use crate::failure::Failure;

/// Where recordings go that were not told where to go.
pub fn home() -> Option<PathBuf> {
    own("XDG_DATA_HOME", ".local/share")
}

/// Where things go that only save time.
pub fn cache() -> Option<PathBuf> {
    own("XDG_CACHE_HOME", ".cache")
}

/// Where the authority is, and the identities that it made.
pub fn trust() -> Option<PathBuf> {
    own("XDG_CONFIG_HOME", ".config").map(|own| own.join("trust"))
}

/// The file that says who we are to agents that listen: `MW_IDENTITY`, or the
/// one that was made for the user.
pub fn identity() -> Option<PathBuf> {
    let given = std::env::var_os("MW_IDENTITY").filter(|path| !path.is_empty());
    given.map(PathBuf::from).or_else(|| {
        let user = recording::Manifest::here(Vec::new()).user;
        Some(trust()?.join(format!("{user}@.pem")))
    })
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

/// `REC` as the last argument, or as `-r REC`.
#[derive(Clone, clap::Args)]
pub struct Positional {
    /// The recording: its name in `mw list`, or the beginning of it, or a path
    /// [default: the latest]
    #[arg(value_name = "REC", conflicts_with = "option", add = completer())]
    argument: Option<PathBuf>,

    /// The recording, too
    #[arg(
        id = "option",
        short = 'r',
        long = "recording",
        value_name = "REC",
        add = completer()
    )]
    option: Option<PathBuf>,
}

impl Positional {
    /// What was recorded on one host or on several.
    pub fn open(&self) -> Result<Arc<Set>, Failure> {
        open(self.argument.as_ref().or(self.option.as_ref()).cloned())
    }
}

/// `-r REC`, for a command whose last argument may be left out.
#[derive(clap::Args)]
pub struct Chosen {
    /// The recording: its name in `mw list`, or the beginning of it, or a path
    /// [default: the latest]
    #[arg(short = 'r', long = "recording", value_name = "REC", add = completer())]
    recording: Option<PathBuf>,
}

impl Chosen {
    /// What was recorded on one host or on several.
    pub fn open(&self) -> Result<Arc<Set>, Failure> {
        open(self.recording.clone())
    }
}

/// Which clock times are shown by, for commands that show times.
#[derive(clap::Args)]
pub struct Times {
    /// Show what each host's own clock said, in a recording of several
    #[arg(long)]
    pub raw_time: bool,
}

/// What was recorded on one host or on several.
pub fn open(path: Option<PathBuf>) -> Result<Arc<Set>, Failure> {
    let path = match path {
        Some(given) => locate(&given)?,
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
    Ok(Arc::new(Set::open(&path)?))
}

/// What a recording is called where it is shown, such that it is found by it
/// again: its name in `mw list` if it has one, otherwise its path.
pub fn shown_as(dir: &Path) -> String {
    let listed = || {
        let dir = dir.canonicalize().ok()?;
        let home = home()?.canonicalize().ok()?;
        let name = PathBuf::from(dir.file_name().filter(|_| dir.parent() == Some(&home))?);
        let found = locate(&name).ok()?.canonicalize().ok()?;
        (found == dir).then(|| name.display().to_string())
    };
    listed().unwrap_or_else(|| dir.display().to_string())
}

/// Where the recording is that is named: by a path, by its name in `mw list`, or
/// by a beginning that only one name has.
pub fn locate(given: &Path) -> Result<PathBuf, Failure> {
    let is_path = given.components().count() != 1
        || given.as_os_str().as_encoded_bytes().contains(&b'/')
        || matches!(given.to_str(), Some("." | ".."));
    let is_recording = [recording::MANIFEST, recording::join::JOINED]
        .iter()
        .any(|name| given.join(name).is_file());
    if is_path || is_recording {
        return Ok(given.to_path_buf());
    }
    let name = given.to_string_lossy();
    let home = home();
    let names = home.as_deref().map(listing::names).unwrap_or_default();
    if let Some(home) = &home
        && (names.iter().any(|known| *known == name) || name == "latest")
    {
        return Ok(home.join(given));
    }
    let begun: Vec<&String> = names
        .iter()
        .filter(|known| known.starts_with(&*name))
        .collect();
    match (&home, begun.as_slice()) {
        (Some(home), [only]) if !name.is_empty() => return Ok(home.join(only)),
        (_, [_, _, ..]) if !name.is_empty() => {
            let some: Vec<&str> = begun.iter().take(5).map(|known| known.as_str()).collect();
            let more = if begun.len() > some.len() {
                ", ..."
            } else {
                ""
            };
            return Err(
                Failure::new(format!("`{name}` can be any of {} recordings", begun.len()))
                    .hint(format!("one of {}{more}", some.join(", "))),
            );
        }
        _ => {}
    }
    // Something else: what is wrong with it is told when it is opened.
    if std::fs::symlink_metadata(given).is_ok() {
        return Ok(given.to_path_buf());
    }
    let failure = Failure::new(format!("there is no recording `{name}`"));
    Err(
        match events::nearest(&name, names.iter().map(String::as_str)) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint("`mw list` shows what there is; a path is right as well"),
        },
    )
}

/// What a shell offers for a recording: names, then directories.
pub fn completer() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let text = begun.to_string_lossy();
        let names = home().as_deref().map(listing::names).unwrap_or_default();
        let mut offered: Vec<CompletionCandidate> = names
            .iter()
            .filter(|name| name.starts_with(&*text))
            .map(CompletionCandidate::new)
            .collect();
        if offered.is_empty() || text.contains('/') {
            offered.extend(PathCompleter::dir().complete(begun));
        }
        offered
    })
}

/// Where `latest` leads to nothing any more, it leads to the newest that is left.
pub fn mend_latest() {
    let Some(latest) = home().map(|home| home.join("latest")) else {
        return;
    };
    if latest.exists() || latest.symlink_metadata().is_err() {
        return;
    }
    let newest = latest
        .parent()
        .and_then(|home| listing::list(home).ok()?.pop());
    match newest {
        Some(newest) => point_latest_at(&newest.path),
        None => _ = std::fs::remove_file(&latest),
    }
}

/// Makes `latest` lead to a recording. Not being able to is no failure of it.
pub fn point_latest_at(recording: &Path) {
    let Some(home) = home() else { return };
    let Ok(target) = std::fs::canonicalize(recording) else {
        return;
    };
    if std::fs::create_dir_all(&home).is_err() {
        return;
    }
    let fresh = home.join(format!(".latest-{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    if std::os::unix::fs::symlink(&target, &fresh).is_ok() {
        let _ = std::fs::rename(&fresh, home.join("latest"));
    }
}

//! `mw rm` and `mw prune`: recordings that are no longer needed.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use recording::listing::{self, Listed, RemoveError, State};

use crate::failure::Failure;
use crate::list;
use crate::output::{Output, age, bytes, now_ns};
use crate::select;

/// Remove recordings.
///
/// Only what is a recording is removed, none that is still being recorded, and
/// none that holds other files.
#[derive(clap::Args)]
pub struct Rm {
    /// Names as `mw list` shows them, or paths
    #[arg(required = true, value_name = "REC", add = select::completer())]
    recordings: Vec<PathBuf>,
}

impl Rm {
    pub fn run(self) -> Result<ExitCode, Failure> {
        // Nothing goes before all of them are found.
        let mut found = Vec::new();
        for given in &self.recordings {
            found.push(select::locate(given)?);
        }
        let mut failed = None;
        for path in &found {
            // `latest` is a link to one.
            let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            if let Err(error) = remove(&path) {
                // The others are to go all the same.
                if let Some(before) = failed.replace(error) {
                    Failure::show(before);
                }
            }
        }
        select::mend_latest();
        match failed {
            Some(failure) => Err(failure),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

fn remove(path: &Path) -> Result<(), Failure> {
    listing::remove(path).map_err(|error: RemoveError| {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

/// Remove old recordings, among those where `mw record` puts them.
///
/// On a terminal it shows which, and asks. What is still being recorded stays.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("rule").required(true).multiple(false))]
pub struct Prune {
    /// Keep so many, the newest
    #[arg(long, value_name = "N", group = "rule")]
    keep: Option<usize>,

    /// Remove those that ended longer ago than this: 90m, 12h, 7d, 4w
    #[arg(long, value_name = "TIME", group = "rule")]
    older: Option<Age>,

    /// Remove the oldest until all together take no more than this: 500M, 20G
    #[arg(long, value_name = "SIZE", group = "rule")]
    to: Option<Size>,

    /// Only show which
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Do not ask
    #[arg(short = 'y', long)]
    yes: bool,
}

impl Prune {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let Some(home) = select::home().filter(|home| home.exists()) else {
            return Ok(ExitCode::SUCCESS);
        };
        let recordings = list::in_directory(&home)?;
        let chosen = self.choose(&recordings);
        let mut out = Output::new();
        let kept: Vec<&Listed> = recordings
            .iter()
            .filter(|listed| !chosen.iter().any(|other| other.path == listed.path))
            .collect();
        let before = listing::size_together(&recordings);
        let freed = before - listing::size_together(kept);
        let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if self.dry_run {
            show(&chosen, &mut out)?;
            out.finish()?;
            return Ok(ExitCode::SUCCESS);
        }
        if asks && !self.yes && !chosen.is_empty() {
            show(&chosen, &mut out)?;
            out.finish()?;
            if !confirmed(chosen.len(), freed)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let mut failed = None;
        for listed in &chosen {
            if let Err(error) = remove(&listed.path)
                && let Some(before) = failed.replace(error)
            {
                Failure::show(before);
            }
        }
        select::mend_latest();
        match failed {
            Some(failure) => Err(failure),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Which are to go, the oldest first.
    fn choose<'l>(&self, recordings: &'l [Listed]) -> Vec<&'l Listed> {
        let ended: Vec<&Listed> = recordings
            .iter()
            .filter(|listed| listed.state != State::BeingRecorded)
            .collect();
        if let Some(keep) = self.keep {
            let go = ended.len().saturating_sub(keep);
            return ended.into_iter().take(go).collect();
        }
        if let Some(Age(older)) = self.older {
            let now = now_ns();
            let older = u64::try_from(older.as_nanos()).unwrap_or(u64::MAX);
            let is_older = |listed: &&Listed| {
                let end = listed
                    .manifest
                    .started_ns
                    .saturating_add(listed.duration_ns);
                now.saturating_sub(end) > older
            };
            return ended.into_iter().filter(is_older).collect();
        }
        let Some(Size(most)) = self.to else {
            return Vec::new();
        };
        let mut left: Vec<&Listed> = recordings.iter().collect();
        let mut chosen = Vec::new();
        for listed in ended {
            if listing::size_together(left.iter().copied()) <= most {
                break;
            }
            left.retain(|other| other.path != listed.path);
            chosen.push(listed);
        }
        chosen
    }
}

fn show(chosen: &[&Listed], out: &mut Output) -> Result<(), Failure> {
    let now = now_ns();
    for listed in chosen {
        let since = age(now.saturating_sub(listed.manifest.started_ns));
        out.line(&format!("{}  {since}  {}", listed.name, bytes(listed.size)))?;
    }
    Ok(())
}

/// Asks the person at the terminal.
fn confirmed(count: usize, freed: u64) -> Result<bool, Failure> {
    let what = match count {
        1 => "this recording".to_string(),
        count => format!("these {count} recordings"),
    };
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "remove {what} ({})? [y/N] ", bytes(freed))?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A time for people: a number and a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Age(Duration);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Age, String> {
        let units = [
            ("s", 1),
            ("m", 60),
            ("h", 3600),
            ("d", 86_400),
            ("w", 604_800),
        ];
        let seconds = measure(text, &units, None)
            .ok_or("a number and one of s, m, h, d, w is meant, as in 7d")?;
        Ok(Age(Duration::from_secs(seconds)))
    }
}

/// A number of bytes for people: a number and, perhaps, a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let text = text.trim_end_matches("iB").trim_end_matches('B');
        let units = [
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("T", 1 << 40),
        ];
        let bytes = measure(&text.to_uppercase(), &units, Some(1))
            .ok_or("a number and one of K, M, G, T is meant, as in 20G")?;
        Ok(Size(bytes))
    }
}

/// `12h`, `1.5G`: the number, times what its unit is worth. `bare` is what a
/// number without a unit is worth, if it may be so.
fn measure(text: &str, units: &[(&str, u64)], bare: Option<u64>) -> Option<u64> {
    let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, worth) = match unit {
        Some((unit, worth)) => (text.strip_suffix(unit)?, *worth),
        None => (text, bare?),
    };
    let number: f64 = number.trim().parse().ok()?;
    let value = number * worth as f64;
    // NaN is neither.
    (value >= 0.0 && value < u64::MAX as f64).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_read() {
        let age = |text: &str| text.parse::<Age>().map(|Age(age)| age.as_secs()).ok();
        assert_eq!(age("90m"), Some(5400));
        assert_eq!(age("1.5d"), Some(129_600));
        assert_eq!(age("0s"), Some(0));
        for wrong in ["", "7", "d", "-1d", "nan d", "infd", "7 days", "1e99w"] {
            assert_eq!(age(wrong), None, "{wrong}");
        }
        let size = |text: &str| text.parse::<Size>().map(|Size(size)| size).ok();
        assert_eq!(size("0"), Some(0));
        assert_eq!(size("1000"), Some(1000));
        assert_eq!(size("20G"), Some(20 << 30));
        assert_eq!(size("1.5MiB"), Some(3 << 19));
        assert_eq!(size("2kb"), None);
        assert_eq!(size("2k"), Some(2048));
        for wrong in ["", "G", "-1", "5X", "NaN"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}

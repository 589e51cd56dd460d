//! Under `cargo run`: brings `mw` and our own programs up to date, since cargo builds only us.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Where we are, our programs are, and `mw` usually is.
pub fn programs_directory() -> Result<PathBuf> {
    let exe = env::current_exe()?;
    let directory = exe.parent().context("this program is nowhere")?;
    Ok(directory.to_path_buf())
}

/// Builds the workspace the way we were built. Does nothing if it was not cargo that started us.
pub fn build(programs: &Path) -> Result<()> {
    let cargo = env::var_os("CARGO");
    let package = env::var_os("CARGO_MANIFEST_DIR");
    let (Some(cargo), Some(package)) = (cargo, package) else {
        return Ok(());
    };
    let target = programs.parent().context("no directory to build into")?;
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--profile"])
        .arg(profile(programs))
        .arg("--target-dir")
        .arg(target)
        .arg("--manifest-path")
        .arg(Path::new(&package).join("Cargo.toml"))
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the build failed; --no-build measures what is there");
    }
    Ok(())
}

/// The name of the profile whose directory this is.
fn profile(programs: &Path) -> &str {
    match programs.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    }
}

/// The command that makes this run once more.
pub fn command_line(programs: &Path) -> String {
    let start = match (env::var_os("CARGO"), profile(programs)) {
        (None, _) => "mw-bench".into(),
        (Some(_), "dev") => "cargo run -p bench --".into(),
        (Some(_), "release") => "cargo run --release -p bench --".into(),
        (Some(_), profile) => format!("cargo run --profile {profile} -p bench --"),
    };
    env::args()
        .skip(1)
        .fold(start, |line, arg| line + " " + &quoted(&arg))
}

/// As a shell would want it.
fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    match !arg.is_empty() && arg.chars().all(plain) {
        true => arg.into(),
        false => format!("'{}'", arg.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_by_directory() {
        assert_eq!(profile(Path::new("/x/target/release")), "release");
        assert_eq!(profile(Path::new("/x/target/debug")), "dev");
    }

    #[test]
    fn arguments_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("--only"), "--only");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}

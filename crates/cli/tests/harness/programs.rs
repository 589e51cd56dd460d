//! The programs in `tests/programs`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use super::recorded::Recorded;
use super::scratch::Scratch;

/// Where they are in source.
pub fn sources() -> PathBuf {
    super::repository().join("tests/programs")
}

/// Where they are built, once for all tests.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        std::fs::create_dir_all(&out).unwrap();
        // Tests may be processes of their own: one of them builds.
        let lock = File::create(out.join(".lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let stamp = out.join(".built");
        let sources = sources();
        let stamped = std::fs::metadata(&stamp).and_then(|meta| meta.modified());
        if stamped.is_ok_and(|stamped| newest(&sources) < stamped) {
            return out;
        }
        // What is changed while it is being built shall be built again.
        let begun = File::create(out.join(".begun")).unwrap();
        let output = Command::new(sources.join("build"))
            .arg("--all")
            .arg(&out)
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "the test programs do not build:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        drop(begun);
        std::fs::rename(out.join(".begun"), stamp).unwrap();
        out
    })
}

/// When the newest file in a directory was changed.
fn newest(dir: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let meta = entry.metadata().unwrap();
        let time = if meta.is_dir() {
            match entry.file_name().to_str() {
                Some("target" | "expected") => continue,
                _ => self::newest(&entry.path()),
            }
        } else {
            meta.modified().unwrap()
        };
        newest = newest.max(time);
    }
    newest
}

/// A built program.
pub fn program(name: &str) -> String {
    built().join(name).to_str().unwrap().to_string()
}

/// A script among the sources.
pub fn script(path: &str) -> String {
    sources().join(path).to_str().unwrap().to_string()
}

/// Records a program; it must print and return what it does natively, and the
/// recording must be sound.
pub fn record(scratch: &Scratch, name: &str, command: &[&str]) -> Recorded {
    let recorded = scratch.record(command);
    let expected = sources().join("expected");
    let stdout = std::fs::read_to_string(expected.join(format!("{name}.txt"))).unwrap();
    let status = std::fs::read_to_string(expected.join(format!("{name}.status")));
    let status: i32 = status.map_or(0, |text| text.trim().parse().unwrap());
    let outcome = &recorded.outcome;
    assert_eq!(
        (outcome.code(), outcome.stdout.as_str()),
        (status, stdout.as_str()),
        "{}",
        outcome.stderr
    );
    recorded.is_sound();
    recorded
}

/// Compiles a source for debuggers, by its path among the sources; not
/// optimized, unless the options say so.
pub fn for_debuggers(scratch: &Scratch, source: &str, options: &[&str]) -> PathBuf {
    let source = sources().join(source);
    let program = scratch.path().join(source.file_stem().unwrap());
    let made = Command::new("cc")
        .args(["-g", "-O0", "-pthread"])
        .args(options)
        .arg("-o")
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(made.success());
    program
}

/// One of the other examples, built once for all tests of a process.
pub fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| built_example(name, &[], "debug"));
    built.join(name)
}

/// The bank of `examples/bank`, built once for all tests: the launcher.
pub fn bank() -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    built_bank(&BUILT, &["--release"], "release")
}

/// The bank as the tutorial has it: not optimized, with debug information.
pub fn bank_to_debug() -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    built_bank(&BUILT, &[], "debug")
}

fn built_bank(built: &OnceLock<PathBuf>, how: &[&str], profile: &str) -> String {
    let launcher = built.get_or_init(|| built_example("bank", how, profile).join("bank"));
    launcher.to_str().unwrap().to_string()
}

/// The directory with the programs of an example.
fn built_example(name: &str, how: &[&str], profile: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--manifest-path"])
        .arg(super::repository().join(format!("examples/{name}/Cargo.toml")))
        .arg("--target-dir")
        .arg(&target)
        .args(how)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{name} does not build:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    target.join(profile)
}

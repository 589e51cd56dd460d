//! Test programs, gdb as the oracle, and what it said.
#![allow(
    dead_code,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod normal;
#[path = "../../../../tests/seed.rs"]
pub mod seed;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A test program in one of its builds.
#[derive(Debug, Clone, Copy)]
pub struct Build {
    /// File in `tests/programs/inspect`.
    pub source: &'static str,
    /// `-O` level.
    pub level: u8,
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf()
}

/// Where test programs and cores are made.
pub fn workplace() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inspect");
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// Whether a tool is there; tests that need it and do not have it say so.
pub fn has(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: there is no {tool}");
    }
    found
}

impl Build {
    /// Compiles it, if that was not done before.
    pub fn compile(&self) -> PathBuf {
        let source = repository()
            .join("tests/programs/inspect")
            .join(self.source);
        let stem = source.file_stem().unwrap().to_str().unwrap();
        let program = workplace().join(format!("{stem}-O{}", self.level));
        let fresh = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
        if fresh(&program) > fresh(&source) {
            return program;
        }
        // Made beside and moved, for tests that run at the same time.
        let made = workplace().join(format!("{stem}-O{}.{}", self.level, std::process::id()));
        let level = format!("-O{}", self.level);
        let mut command = match source.extension().unwrap().to_str().unwrap() {
            "c" => Command::new("gcc"),
            "cpp" => Command::new("g++"),
            "rs" => {
                let mut rustc = Command::new("rustc");
                rustc.arg("--edition=2021");
                rustc.arg(format!("-Copt-level={}", self.level));
                rustc
            }
            other => panic!("no compiler for {other}"),
        };
        if self.source.ends_with(".rs") {
            command.arg("-g");
        } else {
            command.args(["-g", "-w", "-pthread", level.as_str()]);
        }
        let output = command.arg(&source).arg("-o").arg(&made).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::rename(&made, &program).unwrap();
        program
    }

    /// Where its cores of a seed are.
    fn cores(&self, seed: u64) -> PathBuf {
        let stem = Path::new(self.source)
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap();
        workplace().join(format!("cores-{stem}-O{}-{seed}", self.level))
    }

    /// Removes the cores of a seed.
    pub fn forget(&self, seed: u64) {
        std::fs::remove_dir_all(self.cores(seed)).unwrap();
    }

    /// Cores at random stops, and what gdb says about them.
    pub fn stops(&self, count: usize, seed: u64) -> Vec<serde_json::Value> {
        let program = self.compile();
        let out = self.cores(seed);
        let answers = out.join("gdb.json");
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gdb");
        let made = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
        let newest = made(&program).max(made(&scripts.join("stops.py")));
        let last = out.join(format!("core.{}", count - 1));
        let run = |script: &str, from: usize| {
            Command::new("gdb")
                .args(["-q", "-nx", "-batch", "-iex", "set auto-load no"])
                .arg("-x")
                .arg(scripts.join(script))
                .arg(&program)
                .env("OUT", &out)
                .env("FROM", from.to_string())
                .env("COUNT", count.to_string())
                .env("SEED", seed.to_string())
                .env("LC_ALL", "C.UTF-8")
                .env(
                    "START",
                    if self.source.ends_with(".rs") {
                        "values::main"
                    } else {
                        "main"
                    },
                )
                .output()
                .unwrap()
        };
        if made(&last) < newest {
            let _ = std::fs::remove_dir_all(&out);
            std::fs::create_dir_all(&out).unwrap();
            let output = run("stops.py", 0);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
        if made(&answers) < made(&last).max(made(&scripts.join("show.py"))) {
            let _ = std::fs::remove_file(&answers);
        }
        // There may be some of them: gdb crashed, or the tests were ended.
        loop {
            let written =
                || std::fs::read_to_string(&answers).map_or(0, |text| text.lines().count());
            let before = written();
            if before >= count {
                break;
            }
            run("show.py", before);
            // Where gdb itself crashes there is nothing to compare with.
            if written() == before {
                let mut text = std::fs::read_to_string(&answers).unwrap_or_default();
                text.push_str("null\n");
                std::fs::write(&answers, text).unwrap();
            }
        }
        let text = std::fs::read_to_string(&answers).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|answer: &serde_json::Value| !answer.is_null())
            .collect()
    }
}

//! Programs that run to their end: our own, which time themselves, and others, timed from outside.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::process;
use crate::setup::{CommandLine, Setup};
use crate::stats::median;
use crate::tools::Tool;
use crate::unit::Unit;

const LIMIT: Duration = Duration::from_secs(120);

/// A program of this package, which prints how long it took. The size is its last argument.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    pub binary: &'static str,
    pub args: &'static [&'static str],
    /// Operations for each one of the size.
    pub operations: u64,
}

impl Own {
    pub fn measure(&self, bench: &Bench, setup: Setup, unit: Unit, size: u64) -> Result<f64> {
        let binary = bench.programs.join(self.binary);
        let mut args: Vec<String> = self.args.iter().map(ToString::to_string).collect();
        args.push(size.to_string());
        let line = CommandLine::new(binary, args);
        let recording = bench.scratch.fresh("recording");
        let mut command = bench.launcher.command(setup, &line, recording.path());
        let finished = process::run(&mut command, &bench.scratch, LIMIT)?;
        let elapsed = elapsed(&finished.stdout)
            .with_context(|| format!("{} said {:?}", self.binary, finished.stdout))?;
        unit.of(size * self.operations, elapsed)
            .context("not a unit of time")
    }
}

fn elapsed(stdout: &str) -> Option<Duration> {
    let line = stdout
        .lines()
        .find_map(|line| line.strip_prefix("elapsed_ns "))?;
    line.trim().parse().ok().map(Duration::from_nanos)
}

/// A command whose whole life is timed: the median of as many runs as the size says.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    pub tool: Tool,
    pub args: &'static [&'static str],
    /// A file to be there first, in the working directory.
    pub source: Option<fn() -> (&'static str, String)>,
}

impl Whole {
    pub fn measure(&self, bench: &Bench, setup: Setup, unit: Unit, size: u64) -> Result<f64> {
        let directory = bench.scratch.directory("program")?;
        if let Some(source) = self.source {
            let (name, text) = source();
            fs::write(directory.path().join(name), text)?;
        }
        let values = (0..size)
            .map(|_| self.once(bench, setup, unit, directory.path()))
            .collect::<Result<Vec<f64>>>()?;
        median(&values).context("no runs at all")
    }

    fn once(&self, bench: &Bench, setup: Setup, unit: Unit, directory: &Path) -> Result<f64> {
        let program = self.tool.find();
        let program = program.with_context(|| format!("{} is missing", self.tool.program))?;
        let line = CommandLine::new(program, self.args.iter().copied());
        let recording = bench.scratch.fresh("recording");
        let mut command = bench.launcher.command(setup, &line, recording.path());
        command.current_dir(directory).env("TMPDIR", directory);
        let finished = process::run(&mut command, &bench.scratch, LIMIT)?;
        unit.of(1, finished.elapsed).context("not a unit of time")
    }
}

/// A file of some two thousand lines for a C compiler to chew on.
pub fn c_source() -> (&'static str, String) {
    const FUNCTIONS: usize = 165;
    let mut text = String::from(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         struct item { int key; double weight; char name[32]; struct item *next; };\n",
    );
    for number in 0..FUNCTIONS {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "
int step_{number}(struct item *list, int limit) {{
    int sum = {number};
    for (struct item *it = list; it && sum < limit; it = it->next) {{
        if (it->key % {odd} == 0)
            sum += (int)(it->weight * {number}) ^ it->key;
        else
            snprintf(it->name, sizeof it->name, \"%d-%s\", sum, \"n{number}\");
        sum ^= (int)strlen(it->name) << {shift};
    }}
    return sum;
}}
",
            odd = number * 2 + 3,
            shift = number % 7,
        );
    }
    text.push_str("int all(struct item *list) {\n    int sum = 0;\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "    sum += step_{number}(list, sum + 1000);");
    }
    text.push_str("    return sum;\n}\n");
    ("input.c", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_found_among_other_lines() {
        assert_eq!(
            elapsed("hello\nelapsed_ns 1500\n"),
            Some(Duration::from_nanos(1500))
        );
        assert_eq!(elapsed("elapsed_ns soon\n"), None);
    }

    #[test]
    fn the_c_file_has_about_two_thousand_lines() {
        let lines = c_source().1.lines().count();
        assert!((1900..2200).contains(&lines), "{lines} lines");
    }
}

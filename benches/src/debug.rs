//! What the debugger's prompt costs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::bench::Bench;
use crate::process;
use crate::replay::Figure;

/// Calls a function often, with a system call now and then.
pub const VISITS: &str = r#"
#include <stdio.h>
static long visit(long n)
{
    long twice = n * 2;
    return twice + 1;
}
int main(void)
{
    long sum = 0;
    for (long n = 0; n < 100000; n++) {
        sum += visit(n);
        if (n % 10000 == 0) {
            printf("%ld\n", sum);
            fflush(stdout);
        }
    }
    return 0;
}
"#;

/// Makes a program of that name, with debug information.
pub fn compiled(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let (source, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&source, text)?;
    run(Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([&program, &source]))?;
    Ok(program)
}

/// How many copies of some code a large program has: each has about a
/// megabyte of debug information.
const COPIES: usize = 110;

/// Makes a program with more than 100 MB of debug information: some code,
/// compiled once, is in it often, each time with other names.
fn large_program(dir: &Path, copies: usize) -> Result<PathBuf> {
    let mut source = String::new();
    for n in 0..4000 {
        let length = n % 7 + 1;
        source += &format!(
            "struct s{n} {{ int first; long second; struct s{n} *next; char name[{length}]; }};
            long f{n}(struct s{n} *p, long n)
            {{
                long x = n * {n};
                for (int j = 0; j < n; j++) {{
                    long y = x + j;
                    x ^= y;
                }}
                return x + p->second;
            }}
            "
        );
    }
    let (code, object) = (dir.join("code.c"), dir.join("code.o"));
    std::fs::write(&code, source)?;
    run(Command::new("cc")
        .args(["-g", "-O0", "-c", "-o"])
        .args([&object, &code]))?;
    let mut objects = Vec::new();
    for copy in 0..copies {
        let to = dir.join(format!("code-{copy}.o"));
        run(Command::new("objcopy")
            .arg(format!("--prefix-symbols=copy_{copy}_"))
            .args([&object, &to]))?;
        objects.push(to);
    }
    let (main, program) = (dir.join("large.c"), dir.join("bench-large"));
    let text = "long copy_1_f1(void *, long);
        int main(void)
        {
            long words[8] = {1, 2};
            return copy_1_f1(words, 3) == 0;
        }
        ";
    std::fs::write(&main, text)?;
    run(Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([&program, &main])
        .args(&objects))?;
    for object in objects {
        std::fs::remove_file(object)?;
    }
    Ok(program)
}

/// All figures.
pub fn measure(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let dir = bench.scratch.directory("debug")?;
    let mut figures = Vec::new();

    // The prompt on many events, once they are indexed.
    let calls = if bench.quick { "1000000" } else { "10000000" };
    let many = dir.path().join("calls");
    record(
        mw,
        &many,
        &bench.programs.join("bench-calls"),
        &["syscall", calls],
    )?;
    debug(mw, &many, &["echo index"])?;
    figures.push(Figure {
        title: "prompt on 10 million events, indexed",
        value: debug(mw, &many, &["echo ready"])?.as_secs_f64(),
        most: 1.0,
        unit: " s",
    });

    // Steps, in the middle of it all.
    let visits = dir.path().join("visits");
    record(
        mw,
        &visits,
        &compiled(dir.path(), "bench-visits", VISITS)?,
        &[],
    )?;
    let setup = [vec!["tbreak visit", "continue"], vec!["next"; 40]].concat();
    // What a command takes is the difference of two runs: the best of three each.
    let best = |lines: &[&str]| {
        let runs: Result<Vec<_>, _> = (0..3).map(|_| debug(mw, &visits, lines)).collect();
        runs.map(|runs| runs.into_iter().min().unwrap_or_default())
    };
    let base = best(&setup)?;
    for (title, line, most, rounds) in [
        ("step", "next", 50.0, 200),
        ("print", "print n", 50.0, 200),
        ("reverse-step", "reverse-step", 500.0, 20),
        ("reverse-stepi", "reverse-stepi", 500.0, 20),
    ] {
        let all = [setup.clone(), [line].repeat(rounds)].concat();
        let took = best(&all)?.saturating_sub(base);
        figures.push(Figure {
            title,
            value: took.as_secs_f64() * 1000.0 / rounds as f64,
            most,
            unit: " ms",
        });
    }

    // A breakpoint that is come to often, and never meant.
    let plain = debug(mw, &visits, &["goto end"])?;
    let often = debug(mw, &visits, &["break visit if n == 123456789", "continue"])?;
    figures.push(Figure {
        title: "100,000 times a condition that does not hold",
        value: often.saturating_sub(plain).as_secs_f64(),
        most: 5.0,
        unit: " s",
    });

    // What changed a variable last, over all of it.
    let watch = [
        "break main",
        "continue",
        "watch sum",
        "goto end",
        "reverse-continue",
    ];
    figures.push(Figure {
        title: "back to the last of 100,000 changes",
        value: debug(mw, &visits, &watch)?
            .saturating_sub(plain)
            .as_secs_f64(),
        most: 5.0,
        unit: " s",
    });

    // The first look at a process of many events: its log is read for it.
    let looks = debug(mw, &many, &["print $rip"])?;
    figures.push(Figure {
        title: "first look at a process of 10 million events",
        value: looks.as_secs_f64(),
        most: 2.0,
        unit: " s",
    });

    // A program with much debug information.
    let large = dir.path().join("large");
    let program = large_program(dir.path(), if bench.quick { 10 } else { COPIES })?;
    record(mw, &large, &program, &[])?;
    let size = std::fs::metadata(&program)?.len() >> 20;
    debug(mw, &large, &["echo index"])?;
    println!("(the large program has {size} MB)");
    figures.push(Figure {
        title: "prompt on a large program",
        value: debug(mw, &large, &["echo ready"])?.as_secs_f64(),
        most: 1.0,
        unit: " s",
    });
    figures.push(Figure {
        title: "a breakpoint by name in it, and a step",
        value: debug(mw, &large, &["break main", "continue", "step"])?.as_secs_f64(),
        most: 5.0,
        unit: " s",
    });
    Ok(figures)
}

pub fn record(mw: &Path, recording: &Path, program: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new(mw);
    command.args(["record", "-o"]).arg(recording).arg("--");
    run(command.arg(program).args(args))?;
    Ok(())
}

/// Runs a script at the prompt: how long it took.
fn debug(mw: &Path, recording: &Path, lines: &[&str]) -> Result<Duration> {
    let mut command = Command::new(mw);
    command.arg("replay").arg(recording).arg("--batch");
    for line in lines {
        command.args(["-e", line]);
    }
    run(&mut command)
}

/// Runs a command, which must succeed.
fn run(command: &mut Command) -> Result<Duration> {
    let begun = Instant::now();
    let status = process::end_with_us(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(begun.elapsed())
}

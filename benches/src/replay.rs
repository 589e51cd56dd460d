//! What replaying costs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::Bench;
use crate::process;
use crate::tools;

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(600);

/// A figure, and what it is to be.
pub struct Figure {
    pub title: &'static str,
    pub value: f64,
    pub most: f64,
    pub unit: &'static str,
}

/// All figures.
pub fn measure(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if tools::find("redis-server").is_some() && tools::find("redis-benchmark").is_some() {
        figures.push(redis(bench, mw)?);
    }
    figures.extend(compute(bench, mw)?);
    Ok(figures)
}

/// Replaying a Redis server that answers GETs, against the time it took.
fn redis(bench: &Bench, mw: &Path) -> Result<Figure> {
    let dir = bench.scratch.directory("replay-redis")?;
    let recording = dir.path().join("recording");
    let port = "16379";
    let requests = if bench.quick { "100000" } else { "500000" };
    let mut server = Command::new(mw);
    server.args(["record", "-o"]).arg(&recording).arg("--");
    server.arg(tools::find("redis-server").context("no redis-server")?);
    server
        .args(["--port", port, "--save", "", "--dir"])
        .arg(dir.path());
    let begun = Instant::now();
    let mut server = process::end_with_us(&mut server)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let ready = || std::net::TcpStream::connect(("127.0.0.1", 16379)).is_ok();
    while !ready() {
        ensure!(server.try_wait()?.is_none(), "redis-server does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let benchmark = tools::find("redis-benchmark").context("no redis-benchmark")?;
    let load = Command::new(benchmark)
        .args(["-p", port, "-q", "-t", "get", "-c", "50", "-n", requests])
        .stdout(Stdio::null())
        .status()?;
    ensure!(load.success(), "redis-benchmark failed");
    process::Pid::of(&server).terminate();
    process::wait(&mut server, LIMIT)?.context("redis-server does not end")?;
    let recorded = begun.elapsed();
    let replayed = verify(mw, &recording)?.wall;
    Ok(Figure {
        title: "Redis GET: time of replay / time of recording",
        value: replayed.as_secs_f64() / recorded.as_secs_f64(),
        most: 0.5,
        unit: "",
    })
}

/// A program that computes and makes few calls: what its replay costs against
/// what it costs natively.
fn compute(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let dir = bench.scratch.directory("replay-compute")?;
    let recording = dir.path().join("recording");
    let size = if bench.quick { "20" } else { "100" };
    let program = bench.programs.join("bench-compute");
    let native = cost(Command::new(&program).arg(size))?;
    let mut record = Command::new(mw);
    record.args(["record", "-o"]).arg(&recording).arg("--");
    cost(record.arg(&program).arg(size))?;
    let replayed = verify(mw, &recording)?.used;
    Ok(vec![Figure {
        title: "computing: processor time of replay / native",
        value: replayed.as_secs_f64() / native.used.as_secs_f64(),
        most: 1.3,
        unit: "",
    }])
}

fn verify(mw: &Path, recording: &Path) -> Result<Cost> {
    cost(Command::new(mw).arg("verify").arg(recording))
}

struct Cost {
    wall: Duration,
    used: Duration,
}

/// Runs a command, which must succeed.
fn cost(command: &mut Command) -> Result<Cost> {
    let before = crate::noise::children_used();
    let begun = Instant::now();
    let status = process::end_with_us(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    let wall = begun.elapsed();
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(Cost {
        wall,
        used: crate::noise::children_used().saturating_sub(before),
    })
}

/// Prints them; true if all are reached.
pub fn print(figures: &[Figure]) -> bool {
    for figure in figures {
        let verdict = if figure.value <= figure.most {
            "reached"
        } else {
            "MISSED"
        };
        println!(
            "{:<50} {:>7.2}{} (at most {}{}: {verdict})",
            figure.title, figure.value, figure.unit, figure.most, figure.unit
        );
    }
    figures.iter().all(|figure| figure.value <= figure.most)
}

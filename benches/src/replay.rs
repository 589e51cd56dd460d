//! What replaying costs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use recording::Recording;
use replay::{Arrival, Budget, EventNo, Session};

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

/// The figures as part of a page.
pub fn markdown(figures: &[Figure], command: &str, machine: &[(&str, String)]) -> String {
    let mut out = format!("Written by the benchmark itself:\n\n    {command}\n\n");
    for (name, value) in machine {
        out += &format!("- {name}: {value}\n");
    }
    out += "\n| what | measured | at most | reached |\n| --- | ---: | ---: | --- |\n";
    for figure in figures {
        let Figure {
            title,
            value,
            most,
            unit,
        } = figure;
        let reached = if value <= most { "yes" } else { "no" };
        out += &format!("| {title} | {value:.2}{unit} | {most}{unit} | {reached} |\n");
    }
    out
}

/// All figures.
pub fn measure(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if tools::find("redis-server").is_some() && tools::find("redis-benchmark").is_some() {
        figures.push(redis(bench, mw)?);
        figures.extend(seek(bench, mw)?);
    }
    figures.extend(compute(bench, mw)?);
    figures.push(yields(bench, mw)?);
    Ok(figures)
}

/// Replaying a Redis server that answers GETs, against the time it took.
fn redis(bench: &Bench, mw: &Path) -> Result<Figure> {
    let dir = bench.scratch.directory("replay-redis")?;
    let recording = dir.path().join("recording");
    let requests = if bench.quick { "100000" } else { "500000" };
    let recorded = record_redis(mw, &recording, "get", requests)?;
    let replayed = verify(mw, &recording)?.wall;
    Ok(Figure {
        title: "Redis GET: time of replay / time of recording",
        value: replayed.as_secs_f64() / recorded.as_secs_f64(),
        most: 0.5,
        unit: "",
    })
}

/// Records a Redis server that answers so many requests; how long that took.
fn record_redis(mw: &Path, recording: &Path, tests: &str, requests: &str) -> Result<Duration> {
    let port = "16379";
    let mut server = Command::new(mw);
    server.args(["record", "-o"]).arg(recording).arg("--");
    server.arg(tools::find("redis-server").context("no redis-server")?);
    server.args(["--port", port, "--save", "", "--dir"]);
    server.arg(
        recording
            .parent()
            .context("a recording is in a directory")?,
    );
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
        .args(["-p", port, "-q", "-t", tests, "-c", "50", "-n", requests])
        .stdout(Stdio::null())
        .status()?;
    ensure!(load.success(), "redis-benchmark failed");
    process::Pid::of(&server).terminate();
    process::wait(&mut server, LIMIT)?.context("redis-server does not end")?;
    Ok(begun.elapsed())
}

/// Going to any event after the first pass, and what the checkpoints take that
/// make it fast. The recording is as long, in events, as ten minutes of a Redis
/// server that answers 1,000 requests a second; it is made as fast as it
/// answers, because a replay does not wait either.
fn seek(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let dir = bench.scratch.directory("replay-seek")?;
    let path = dir.path().join("recording");
    // Half of them each.
    let requests = if bench.quick { "30000" } else { "300000" };
    record_redis(mw, &path, "set,get", requests)?;
    let recording = Arc::new(Recording::open(&path)?);
    let number = recording.processes().first().context("no process")?.number;
    let mut session = Session::open(&recording, number)?;
    let budget = Budget::default();
    let begun = Instant::now();
    let arrival = session.go_to_end()?;
    ensure!(arrival == Arrival::End, "{arrival:?}");
    let end = session.event().0;
    println!(
        "seek: {end} events, first pass {:.1} s, {} checkpoints",
        begun.elapsed().as_secs_f64(),
        session.checkpoints().len()
    );
    let (mut slowest, mut most) = (Duration::ZERO, session.memory_used());
    // Places that jump about, the same each time.
    let mut seed = 1u64;
    for _ in 0..60 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let event = (seed >> 33) % end;
        let begun = Instant::now();
        let arrival = session.go_to(EventNo(event))?;
        ensure!(arrival == Arrival::There, "event {event}: {arrival:?}");
        slowest = slowest.max(begun.elapsed());
        most = most.max(session.memory_used());
    }
    Ok(vec![
        Figure {
            title: "seek: slowest of 60 events, after the first pass",
            value: slowest.as_secs_f64(),
            most: 1.0,
            unit: " s",
        },
        Figure {
            title: "seek: memory of checkpoints / budget",
            value: most as f64 / budget.memory as f64,
            most: 1.0,
            unit: "",
        },
    ])
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

/// Hundreds of threads that do nothing but let each other run: what recording that
/// costs.
fn yields(bench: &Bench, mw: &Path) -> Result<Figure> {
    let dir = bench.scratch.directory("replay-yields")?;
    let recording = dir.path().join("recording");
    let count = if bench.quick { "200" } else { "2000" };
    let program = bench.programs.join("bench-yield");
    let native = cost(Command::new(&program).args(["258", count]))?.wall;
    let mut record = Command::new(mw);
    record.args(["record", "-o"]).arg(&recording).arg("--");
    let recorded = cost(record.arg(&program).args(["258", count]))?.wall;
    verify(mw, &recording)?;
    Ok(Figure {
        title: "258 threads that yield: time of recording / native",
        value: recorded.as_secs_f64() / native.as_secs_f64(),
        most: 2.0,
        unit: "",
    })
}

fn verify(mw: &Path, recording: &Path) -> Result<Cost> {
    cost(Command::new(mw).arg("verify").arg(recording))
}

pub struct Cost {
    pub wall: Duration,
    /// Time of the processor.
    pub used: Duration,
}

/// Runs a command, which must succeed.
pub fn cost(command: &mut Command) -> Result<Cost> {
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

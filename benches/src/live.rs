//! What it costs a program to be under the debugger while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::Bench;
use crate::debug::{VISITS, compiled};
use crate::load::Load;
use crate::process::{self, Pid};
use crate::replay::Figure;
use crate::server::{Running, Server};
use crate::setup::Setup;
use crate::stats;

/// How long a debugger may take to let everybody go.
const LIMIT: Duration = Duration::from_secs(60);
/// A program runs for so long before it is looked at.
const BETWEEN: Duration = Duration::from_millis(50);
/// What [`Prompt::join`] hears when the program is about to run.
const GO: &str = "the program goes on";

/// Looks at a clock as often as it can, and calls a function each 50 ms. Its last words: the
/// tenth of the longest times, in microseconds, between one look and the next.
const LOOKS: &str = r#"
#include <stdio.h>
#include <time.h>
static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
static void tick(void)
{
}
int main(void)
{
    long most[10] = {0}, begun = now(), last = begun, ticks = 0;
    while (last - begun < 1500000000L) {
        long t = now(), gap = t - last;
        last = t;
        if ((t - begun) / 50000000L > ticks) {
            ticks++;
            tick();
        }
        for (int i = 0; i < 10 && gap; i++)
            if (gap > most[i]) {
                long other = most[i];
                most[i] = gap;
                gap = other;
            }
    }
    printf("%ld\n", most[9] / 1000);
    return 0;
}
"#;

/// Fifty processes: half of them write the time-stamp counter to memory that all share as often as
/// they can, the others send each other bytes, and the first calls a function each 50 ms, having
/// written the counter as well. (Its instruction is in code made at run time, which the debugger
/// leaves as it is.)
const FIFTY: &str = r#"
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static struct shared {
    volatile long first, per_us, last[25];
} *shared;
static long (*counter)(void);
static void compute(int i)
{
    for (;;)
        shared->last[i] = counter();
}
static void serve(int fd)
{
    char byte = 1;
    for (;;)
        if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
            _exit(0);
}
static void tick(void)
{
}
static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
int main(void)
{
    /* rdtsc; shl rdx, 32; or rax, rdx; ret */
    static const unsigned char code[] = {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3};
    void *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    mprotect(made, 4096, PROT_READ | PROT_EXEC);
    counter = (long (*)(void))made;
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long begun = now(), ticks = counter();
    while (now() - begun < 20000000)
        ;
    shared->per_us = (counter() - ticks) * 1000 / (now() - begun);
    alarm(120);
    for (int i = 0; i < 25; i++)
        if (fork() == 0) {
            alarm(120);
            compute(i);
        }
    for (int i = 0; i < 12; i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
            return 1;
        for (int end = 0; end < 2; end++)
            if (fork() == 0)
                serve(ends[end]);
        close(ends[0]);
        close(ends[1]);
    }
    for (;;) {
        usleep(50000);
        shared->first = counter();
        tick();
    }
}
"#;

/// All figures.
pub fn measure(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let size = |quick: u64, full: u64| if bench.quick { quick } else { full };
    for (title, server, load, size, most) in [
        (
            "Redis GET, joined: native / joined",
            Server::Redis,
            Load::RedisGet { pipeline: 1 },
            size(20_000, 100_000),
            1.03,
        ),
        (
            "nginx, joined: native / joined",
            Server::Nginx,
            Load::Wrk,
            size(1, 2),
            1.05,
        ),
        (
            "memcached with 4 threads, joined: native / joined",
            Server::Memcached,
            Load::Memcached,
            size(20_000, 100_000),
            1.05,
        ),
    ] {
        figures.push(Figure {
            title,
            value: served(bench, mw, server, load, size)?,
            most,
            unit: "",
        });
    }
    figures.push(Figure {
        title: "Redis under load is joined: longest time without an answer",
        value: interrupted(bench, mw)?,
        most: 20.0,
        unit: " ms",
    });
    let dir = bench.scratch.directory("live")?;
    let visits = compiled(dir.path(), "bench-visits", VISITS)?;
    figures.extend(stops(mw, &visits)?);
    figures.push(Figure {
        title: "what a program sees of a halt of 100 ms",
        value: seen(mw, &compiled(dir.path(), "bench-looks", LOOKS)?)?,
        most: 0.1,
        unit: " ms",
    });
    figures.extend(fifty(mw, &compiled(dir.path(), "bench-fifty", FIFTY)?)?);
    Ok(figures)
}

/// How many requests a server answers as it is, against how many under the debugger: both
/// in each round, the former before and after.
fn served(bench: &Bench, mw: &Path, server: Server, load: Load, size: u64) -> Result<f64> {
    let mut ratios = Vec::new();
    for _ in 0..bench.rounds {
        let running = server.start(bench, Setup::Native)?;
        let rate = || Ok::<f64, anyhow::Error>(load.run(bench, &running, size)?.per_second);
        let before = rate()?;
        let prompt = Prompt::join(mw, &running)?;
        let joined = rate()?;
        prompt.leave()?;
        let after = rate()?;
        ratios.push((before + after) / 2.0 / joined);
        running.stop()?;
    }
    stats::median(&ratios).context("no round")
}

/// The longest that a client of Redis waits for an answer while the server is joined, in
/// milliseconds: the median over the rounds.
fn interrupted(bench: &Bench, mw: &Path) -> Result<f64> {
    let mut longest = Vec::new();
    for _ in 0..bench.rounds {
        let running = Server::Redis.start(bench, Setup::Native)?;
        let mut stream = TcpStream::connect(running.address)?;
        stream.set_nodelay(true)?;
        let is_over = AtomicBool::new(false);
        let waited = thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut most = Duration::ZERO;
                let mut answer = [0; 7];
                while !is_over.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    stream.write_all(b"PING\r\n")?;
                    stream.read_exact(&mut answer)?;
                    most = most.max(asked.elapsed());
                }
                Ok::<Duration, std::io::Error>(most)
            });
            thread::sleep(BETWEEN);
            let joined = Prompt::join(mw, &running);
            thread::sleep(BETWEEN);
            is_over.store(true, Ordering::Relaxed);
            let most = client.join();
            joined?.leave()?;
            match most {
                Ok(most) => Ok(most?),
                Err(_) => bail!("the client failed"),
            }
        })?;
        longest.push(waited.as_secs_f64() * 1000.0);
        running.stop()?;
    }
    stats::median(&longest).context("no round")
}

/// What a stop at a breakpoint takes until the prompt is there and the program goes on
/// again, and what a condition that is false takes.
fn stops(mw: &Path, visits: &Path) -> Result<[Figure; 2]> {
    const OFTEN: usize = 220;
    const SELDOM: usize = 20;
    const CALLS: f64 = 100_000.0;
    let took = |lines: &[&str]| -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let begun = Instant::now();
            Prompt::start(mw, lines, visits)?.end()?;
            best = best.min(begun.elapsed().as_secs_f64());
        }
        Ok(best)
    };
    let stopped = |count: usize| took(&[vec!["break visit"], vec!["continue"; count]].concat());
    let each = (stopped(OFTEN)? - stopped(SELDOM)?) / (OFTEN - SELDOM) as f64;
    let plain = took(&["continue"])?;
    let is_false = took(&["break visit if n == 123456789", "continue"])?;
    Ok([
        Figure {
            title: "a breakpoint, the prompt, and on",
            value: each * 1e3,
            most: 5.0,
            unit: " ms",
        },
        Figure {
            title: "a condition that is false, each time",
            value: (is_false - plain) / CALLS * 1e6,
            most: 5.0,
            unit: " us",
        },
    ])
}

/// The tenth of the longest gaps, in milliseconds, that a program sees in its clock when it
/// is halted ten times.
fn seen(mw: &Path, looks: &Path) -> Result<f64> {
    const HALTS: usize = 10;
    let halts = ["continue", "shell sleep 0.1"].repeat(HALTS);
    let lines = [vec!["break tick"], halts, vec!["delete", "continue"]].concat();
    let said = Prompt::start(mw, &lines, looks)?.end()?;
    let gap = said
        .lines()
        .find_map(|line| line.trim().parse::<f64>().ok());
    Ok(gap.with_context(|| format!("the program said {said:?}"))? / 1000.0)
}

/// How long after one of fifty processes has come to a breakpoint another has executed an
/// instruction last. When each of them took note of being halted says less: with two processors,
/// most of them wait for one, and execute nothing of the program's before they do.
fn fifty(mw: &Path, program: &Path) -> Result<[Figure; 2]> {
    const HALTS: usize = 21;
    const COMPUTING: usize = 25;
    let asked: Vec<String> = (0..COMPUTING)
        .map(|i| format!("print shared->last[{i}] - shared->first"))
        .collect();
    let look = std::iter::once("continue").chain(asked.iter().map(String::as_str));
    let look: Vec<&str> = look.collect();
    let lines = [
        vec!["break tick", "continue", "print shared->per_us"],
        look.repeat(HALTS),
        vec!["kill"],
    ]
    .concat();
    let said = Prompt::start(mw, &lines, program)?.end()?;
    let values = said.lines().filter_map(|line| {
        let (_, value) = line.strip_prefix('$')?.split_once(" = ")?;
        value.parse::<f64>().ok()
    });
    let values: Vec<f64> = values.collect();
    let (rate, ticks) = values.split_first().context("no figures")?;
    ensure!(
        ticks.len() == HALTS * COMPUTING,
        "{} values: {said}",
        ticks.len()
    );
    let late = ticks.chunks(COMPUTING).map(|halt| {
        let last = halt.iter().copied().fold(0.0, f64::max);
        last / rate
    });
    let late: Vec<f64> = late.collect();
    let median = stats::median(&late).context("no halt")?;
    let worst = late.iter().copied().fold(0.0, f64::max);
    let figure = |title, value: f64, most| Figure {
        title,
        value,
        most,
        unit: " us",
    };
    Ok([
        figure(
            "fifty processes, from the first stop to the last instruction",
            median,
            200.0,
        ),
        figure("fifty processes, the worst of 21 halts", worst, 2000.0),
    ])
}

/// A prompt that works off a script.
struct Prompt {
    child: Child,
    said: BufReader<ChildStdout>,
    heard: String,
}

impl Prompt {
    /// Runs a program.
    fn start(mw: &Path, lines: &[&str], program: &Path) -> Result<Prompt> {
        let mut command = Command::new(mw);
        command.args(["run", "--batch"]);
        for line in lines {
            command.args(["-e", line]);
        }
        Prompt::spawn(command.arg("--").arg(program))
    }

    /// Joins a server and lets it go on.
    fn join(mw: &Path, server: &Running) -> Result<Prompt> {
        let mut command = Command::new(mw);
        let pid = server.first().context("the server is gone")?.to_string();
        command.args(["attach", "--batch", "--tree", &pid]);
        command.args(["-e", &format!("echo {GO}"), "-e", "continue"]);
        let mut prompt = Prompt::spawn(&mut command)?;
        prompt.wait_until_it_goes()?;
        Ok(prompt)
    }

    fn spawn(command: &mut Command) -> Result<Prompt> {
        let mut child = process::end_with_us(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let said = child.stdout.take().context("no output")?;
        Ok(Prompt {
            child,
            said: BufReader::new(said),
            heard: String::new(),
        })
    }

    fn wait_until_it_goes(&mut self) -> Result<()> {
        loop {
            let mut line = String::new();
            if self.said.read_line(&mut line)? == 0 {
                bail!("the debugger ended early: {}", self.heard);
            }
            self.heard += &line;
            if line.trim() == GO {
                thread::sleep(BETWEEN);
                return Ok(());
            }
        }
    }

    /// What it said, when its script is done.
    fn end(mut self) -> Result<String> {
        self.end_as(0)?;
        Ok(self.heard)
    }

    fn end_as(&mut self, wanted: i32) -> Result<()> {
        self.said.read_to_string(&mut self.heard)?;
        let status = process::wait(&mut self.child, LIMIT)?;
        let status = status.context("the debugger does not end")?;
        ensure!(
            status.code() == Some(wanted),
            "the debugger ended with {status}: {}",
            self.heard
        );
        Ok(())
    }

    /// Lets the server be as it was.
    fn leave(mut self) -> Result<()> {
        Pid::of(&self.child).interrupt();
        self.end_as(128 + libc::SIGINT)
    }
}

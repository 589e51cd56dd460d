//! What is let loose on a server, always unrecorded, and the throughput it reports.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::bench::Bench;
use crate::memcached;
use crate::process;
use crate::server::Running;
use crate::tools;

#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// GET from 20 clients; the size is the number of requests.
    RedisGet { pipeline: u32 },
    /// One thread, 16 connections; the size is in seconds.
    Wrk,
    /// Our own clients; the size is the number of requests.
    Memcached,
}

const LIMIT: Duration = Duration::from_secs(120);
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

pub struct Loaded {
    pub per_second: f64,
    /// The most that was resident meanwhile in one process of the server, in MiB.
    pub resident: Option<f64>,
}

impl Load {
    pub fn run(self, bench: &Bench, server: &Running, size: u64) -> Result<Loaded> {
        let explain =
            |error: anyhow::Error| anyhow!("{error:#}; the server{}", server.last_words());
        self.warm_up(bench, server).map_err(explain)?;
        let done = AtomicBool::new(false);
        let (result, resident) = thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut most: Option<f64> = None;
                while !done.load(Ordering::Relaxed) {
                    let now = server.resident();
                    most = most.into_iter().chain(now).reduce(f64::max);
                    thread::sleep(SAMPLE_EVERY);
                }
                most
            });
            let result = self.measure(bench, server, size);
            done.store(true, Ordering::Relaxed);
            (result, sampler.join().unwrap_or(None))
        });
        Ok(Loaded {
            per_second: result.map_err(explain)?,
            resident,
        })
    }

    /// A few requests, so that the ways are trodden and there is something to GET.
    fn warm_up(self, bench: &Bench, server: &Running) -> Result<()> {
        match self {
            Load::RedisGet { .. } => {
                redis_benchmark(bench, server, "set", 1, 500)?;
                redis_benchmark(bench, server, "get", 1, 500).map(drop)
            }
            Load::Memcached => memcached::load(server.address, 800).map(drop),
            Load::Wrk => Ok(()),
        }
    }

    fn measure(self, bench: &Bench, server: &Running, size: u64) -> Result<f64> {
        match self {
            Load::RedisGet { pipeline } => redis_benchmark(bench, server, "get", pipeline, size),
            Load::Wrk => wrk(bench, server, size),
            Load::Memcached => memcached::load(server.address, size),
        }
    }
}

fn redis_benchmark(
    bench: &Bench,
    server: &Running,
    test: &str,
    pipeline: u32,
    requests: u64,
) -> Result<f64> {
    let tool = tools::REDIS_BENCHMARK;
    let mut command = process::command(&tool.find().context("redis-benchmark is missing")?);
    command.args(["-h", "127.0.0.1", "-p", &server.address.port().to_string()]);
    command.args(["-t", test, "-c", "20", "-q", "--csv"]);
    command.args(["-n", &requests.to_string(), "-P", &pipeline.to_string()]);
    let finished = process::run(&mut command, &bench.scratch, LIMIT)?;
    requests_in_csv(&finished.stdout, test)
        .with_context(|| format!("redis-benchmark said {:?}", finished.stdout))
}

/// The second field of the line of `test`: `"GET","123456.78",...`
fn requests_in_csv(csv: &str, test: &str) -> Option<f64> {
    csv.lines()
        .map(|line| line.split(',').map(|field| field.trim().trim_matches('"')))
        .find_map(|mut fields| {
            let name = fields.next()?;
            let rate = fields.next()?;
            name.eq_ignore_ascii_case(test).then(|| rate.parse().ok())?
        })
}

fn wrk(bench: &Bench, server: &Running, seconds: u64) -> Result<f64> {
    let mut command = process::command(&tools::WRK.find().context("wrk is missing")?);
    command.args(["-t1", "-c16", &format!("-d{seconds}s")]);
    command.arg(format!("http://{}/", server.address));
    let finished = process::run(&mut command, &bench.scratch, LIMIT)?;
    requests_of_wrk(&finished.stdout)
}

fn requests_of_wrk(report: &str) -> Result<f64> {
    let lines = || report.lines().map(str::trim);
    let errors = |line: &&str| line.starts_with("Non-2xx") || line.starts_with("Socket errors");
    if let Some(line) = lines().find(errors) {
        bail!("wrk saw errors: {line}");
    }
    lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))
        .and_then(|rate| rate.trim().parse().ok())
        .filter(|&rate| rate > 0.0)
        .with_context(|| format!("wrk said {report:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_csv_with_and_without_a_head_line() {
        let new = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"142857.14\",\"0.1\"\n";
        assert_eq!(requests_in_csv(new, "get"), Some(142857.14));
        assert_eq!(requests_in_csv("\"GET\",\"99.5\"\n", "get"), Some(99.5));
        assert_eq!(requests_in_csv("\"SET\",\"99.5\"\n", "get"), None);
    }

    #[test]
    fn wrk_reports() {
        let good = "Running 1s test\n  100 requests in 1.0s\nRequests/sec:  52031.10\n";
        assert_eq!(requests_of_wrk(good).ok(), Some(52031.10));
        let bad = "  Non-2xx or 3xx responses: 12\nRequests/sec:  52031.10\n";
        assert!(requests_of_wrk(bad).is_err());
        assert!(requests_of_wrk("Requests/sec:      0.00\n").is_err());
    }
}

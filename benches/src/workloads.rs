//! The table of what is measured: one row a workload.

use crate::load::Load;
use crate::program::{Own, Whole, c_source};
use crate::server::Server;
use crate::tools::{self, Tool};
use crate::unit::{Target, Unit};

pub struct Workload {
    /// For `--only`.
    pub name: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    pub target: Target,
    pub tools: &'static [Tool],
    pub kind: Kind,
    pub size: Size,
    /// What else is read off this workload, in rows of its own.
    pub figures: &'static [Figure],
}

pub enum Kind {
    Served { server: Server, load: Load },
    Own(Own),
    Whole(Whole),
}

/// How much of it: requests, seconds, round trips, runs, as the kind has it.
pub struct Size {
    pub full: u64,
    pub quick: u64,
    /// Under strace, which is some fifty times slower. The rows are rates and costs, so that sizes
    /// need not be equal.
    pub strace: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    LogBytes,
    LogCompressed,
    Memory,
}

impl Figure {
    pub fn title(self) -> &'static str {
        match self {
            Figure::LogBytes => "log beyond data",
            Figure::LogCompressed => "log compressed, with data",
            Figure::Memory => "resident memory",
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Figure::LogBytes | Figure::LogCompressed => Unit::BytesPerEvent,
            Figure::Memory => Unit::Mebibytes,
        }
    }

    pub fn target(self) -> Target {
        match self {
            Figure::LogBytes => Target::AtMost(24.0),
            Figure::LogCompressed => Target::AtMost(8.0),
            Figure::Memory => Target::Added(16.0),
        }
    }
}

const ROUND_TRIPS: Unit = Unit::PerSecond("round trips");
const REQUESTS: Unit = Unit::PerSecond("requests");
const START_UP: Target = Target::Added(5.0);

pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "redis-get",
        title: "redis GET, 20 clients",
        unit: REQUESTS,
        target: Target::Speed(0.85),
        tools: &[tools::REDIS_SERVER, tools::REDIS_BENCHMARK],
        kind: Kind::Served {
            server: Server::Redis,
            load: Load::RedisGet { pipeline: 1 },
        },
        size: Size {
            full: 100_000,
            quick: 40_000,
            strace: 5_000,
        },
        figures: &[Figure::LogBytes, Figure::LogCompressed, Figure::Memory],
    },
    Workload {
        name: "redis-pipeline",
        title: "redis GET -P 16, 20 clients",
        unit: REQUESTS,
        target: Target::Speed(0.90),
        tools: &[tools::REDIS_SERVER, tools::REDIS_BENCHMARK],
        kind: Kind::Served {
            server: Server::Redis,
            load: Load::RedisGet { pipeline: 16 },
        },
        size: Size {
            full: 800_000,
            quick: 400_000,
            strace: 80_000,
        },
        figures: &[],
    },
    Workload {
        name: "nginx",
        title: "nginx, small file, 16 clients",
        unit: REQUESTS,
        target: Target::Speed(0.80),
        tools: &[tools::NGINX, tools::WRK],
        kind: Kind::Served {
            server: Server::Nginx,
            load: Load::Wrk,
        },
        size: SECONDS,
        figures: &[Figure::Memory],
    },
    Workload {
        name: "memcached",
        title: "memcached, 4 threads, 8 clients",
        unit: REQUESTS,
        target: Target::None,
        tools: &[tools::MEMCACHED],
        kind: Kind::Served {
            server: Server::Memcached,
            load: Load::Memcached,
        },
        size: Size {
            full: 50_000,
            quick: 20_000,
            strace: 4_000,
        },
        figures: &[Figure::Memory],
    },
    Workload {
        name: "go-http",
        title: "Go HTTP server, 16 clients",
        unit: REQUESTS,
        target: Target::None,
        tools: &[tools::GO, tools::WRK],
        kind: Kind::Served {
            server: Server::GoHttp,
            load: Load::Wrk,
        },
        size: SECONDS,
        figures: &[Figure::Memory],
    },
    Workload {
        name: "pipe",
        title: "pipe ping-pong",
        unit: ROUND_TRIPS,
        target: Target::Speed(0.75),
        tools: &[],
        kind: Kind::Own(Own {
            binary: "bench-ping-pong",
            args: &["pipe"],
            operations: 1,
        }),
        size: MESSAGES,
        figures: &[],
    },
    Workload {
        name: "tcp",
        title: "TCP ping-pong",
        unit: ROUND_TRIPS,
        target: Target::Speed(0.75),
        tools: &[],
        kind: Kind::Own(Own {
            binary: "bench-ping-pong",
            args: &["tcp"],
            operations: 1,
        }),
        size: MESSAGES,
        figures: &[],
    },
    Workload {
        name: "syscall",
        title: "cheap syscall (getppid)",
        unit: Unit::Nanoseconds,
        target: Target::Added(250.0),
        tools: &[],
        kind: Kind::Own(Own {
            binary: "bench-calls",
            args: &["syscall"],
            operations: 1,
        }),
        size: Size {
            full: 2_000_000,
            quick: 500_000,
            strace: 20_000,
        },
        figures: &[],
    },
    Workload {
        name: "clock",
        title: "clock read (vdso)",
        unit: Unit::Nanoseconds,
        target: Target::None,
        tools: &[],
        kind: Kind::Own(Own {
            binary: "bench-calls",
            args: &["clock"],
            operations: 1,
        }),
        size: Size {
            full: 5_000_000,
            quick: 2_000_000,
            strace: 2_000_000,
        },
        figures: &[],
    },
    // The same under strace as natively: with fewer locks the threads hardly meet.
    Workload {
        name: "mutex",
        title: "4 threads on one mutex (Rust)",
        unit: Unit::PerSecond("locks"),
        target: Target::None,
        tools: &[],
        kind: Kind::Own(Own {
            binary: "bench-mutex",
            args: &[],
            operations: 4,
        }),
        size: Size {
            full: 1_000_000,
            quick: 1_000_000,
            strace: 1_000_000,
        },
        figures: &[],
    },
    Workload {
        name: "gcc",
        title: "gcc -O1, 2000 lines",
        unit: Unit::Milliseconds,
        target: Target::None,
        tools: &[tools::GCC],
        kind: Kind::Whole(Whole {
            tool: tools::GCC,
            args: &["-O1", "-c", "input.c", "-o", "output.o"],
            source: Some(c_source),
        }),
        size: Size {
            full: 1,
            quick: 1,
            strace: 1,
        },
        figures: &[],
    },
    Workload {
        name: "start-python",
        title: "start-up, python3 -c pass",
        unit: Unit::Milliseconds,
        target: START_UP,
        tools: &[tools::PYTHON],
        kind: Kind::Whole(Whole {
            tool: tools::PYTHON,
            args: &["-c", "pass"],
            source: None,
        }),
        size: STARTS,
        figures: &[],
    },
    Workload {
        name: "start-true",
        title: "start-up, /bin/true",
        unit: Unit::Milliseconds,
        target: START_UP,
        tools: &[tools::TRUE],
        kind: Kind::Whole(Whole {
            tool: tools::TRUE,
            args: &[],
            source: None,
        }),
        size: STARTS,
        figures: &[],
    },
    Workload {
        name: "start-child",
        title: "start-up, one more /bin/true",
        unit: Unit::Milliseconds,
        target: START_UP,
        tools: &[tools::TRUE],
        kind: Kind::Own(Own {
            binary: "bench-spawn",
            args: &[],
            operations: 1,
        }),
        size: Size {
            full: 100,
            quick: 50,
            strace: 20,
        },
        figures: &[],
    },
];

const SECONDS: Size = Size {
    full: 1,
    quick: 1,
    strace: 1,
};

const MESSAGES: Size = Size {
    full: 50_000,
    quick: 10_000,
    strace: 1_000,
};

const STARTS: Size = Size {
    full: 20,
    quick: 20,
    strace: 20,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len());
    }
}

//! What conditions over variables cost: a run of the program once more, with memory
//! watched, against the plain replay of it. Measured in time of the processor, so that
//! others on the machine do not count.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::debug::{compiled, record};
use crate::replay::{Cost, Figure, cost};

/// Computes, and says now and then how far it is, in a global.
const COMPUTES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static volatile long progress;
int main(int count, char **words)
{
    unsigned long x = 1;
    long rounds = atol(words[1]);
    for (long n = 0; n < rounds; n++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        if (x >> 60 == 3)
            x ^= n;
        if (n % 100000 == 0)
            progress++;
    }
    printf("%lu\n", x);
    return 0;
}
"#;

/// Answers requests as a server does, and counts some of them in a global.
const SERVES: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static volatile long counted;
static char store[256][64];
int main(int count, char **words)
{
    int ends[2];
    char text[64];
    long requests = atol(words[1]);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 1;
    if (fork() == 0) {
        for (long n = 0; n < requests; n++) {
            memset(text, (int)n, sizeof text);
            if (write(ends[1], text, sizeof text) != sizeof text || read(ends[1], text, sizeof text) != sizeof text)
                return 1;
        }
        return 0;
    }
    for (long n = 0; n < requests; n++) {
        if (read(ends[0], text, sizeof text) != sizeof text)
            return 1;
        char *slot = store[(unsigned char)text[0]];
        for (int i = 0; i < 64; i++)
            slot[i] ^= text[i];
        if (n % 100 == 0)
            counted++;
        if (write(ends[0], slot, sizeof text) != sizeof text)
            return 1;
    }
    return 0;
}
"#;

/// All figures.
pub fn measure(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let dir = bench.scratch.directory("conditions")?;
    let mut figures = Vec::new();
    let (rounds, requests) = match bench.quick {
        true => ("30000000", "5000"),
        false => ("300000000", "50000"),
    };
    for (title, name, source, argument, variable, most) in [
        (
            "a global of a program that computes: time of a replay",
            "bench-computes",
            COMPUTES,
            rounds,
            "progress",
            3.0,
        ),
        (
            "a global of a server: time of a replay",
            "bench-serves",
            SERVES,
            requests,
            "counted",
            1.3,
        ),
    ] {
        let program = compiled(dir.path(), name, source)?;
        let recording = dir.path().join(format!("{name}-recording"));
        record(mw, &recording, &program, &[argument])?;
        let find = |condition: &str| -> Result<Duration> {
            let mut command = Command::new(mw);
            command.args(["find", "--count", condition]).arg(&recording);
            let Cost { used, .. } = cost(&mut command)?;
            Ok(used)
        };
        // What all questions need is there already: the index of causes.
        find("exit")?;
        let known = recording.join("truth.json");
        let asked = format!("value({name}-0: {variable}) == 7");
        let (mut plain, mut first, mut again) = (Duration::MAX, Duration::MAX, Duration::MAX);
        for _ in 0..3 {
            let mut verify = Command::new(mw);
            verify.arg("verify").arg(&recording);
            plain = plain.min(cost(&mut verify)?.used);
            let _ = std::fs::remove_file(&known);
            first = first.min(find(&asked)?);
            again = again.min(find(&format!("value({name}-0: {variable}) == 8"))?);
        }
        figures.push(Figure {
            title,
            value: first.as_secs_f64() / plain.as_secs_f64(),
            most,
            unit: "",
        });
        figures.push(Figure {
            title: "another question about it",
            value: again.as_secs_f64() * 1000.0,
            most: 50.0,
            unit: " ms",
        });
    }
    Ok(figures)
}

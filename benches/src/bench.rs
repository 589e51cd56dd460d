//! One run of the benchmark: every workload under every setup, interleaved round by round.

use std::path::PathBuf;

use anyhow::Result;

use crate::outcome::Row;
use crate::process;
use crate::scratch::Scratch;
use crate::setup::{Launcher, Setup};
use crate::table::number;
use crate::workloads::{Figure, Kind, Workload};

pub struct Bench {
    pub launcher: Launcher,
    pub scratch: Scratch,
    /// Where the programs of this package are.
    pub programs: PathBuf,
    pub rounds: u32,
    pub quick: bool,
}

struct Measured {
    value: f64,
    figures: Vec<(Figure, f64)>,
}

impl Bench {
    /// The rows of one workload: its own, then those of its figures.
    ///
    /// A setup that failed once is not tried again for this workload; the others go on.
    pub fn measure(&self, workload: &Workload) -> Vec<Row> {
        let mut row = Row::new(workload.title, workload.unit, workload.target);
        let mut figures: Vec<(Figure, Row)> = workload
            .figures
            .iter()
            .map(|&figure| {
                let title = format!("{}: {}", workload.name, figure.title());
                (figure, Row::new(title, figure.unit(), figure.target()))
            })
            .collect();
        for round in 1..=self.rounds {
            for setup in self.launcher.setups() {
                if row.series(setup).failure.is_some() || process::interrupted() {
                    continue;
                }
                let result = self.measure_once(workload, setup);
                // Nothing we started may still run beside what is measured next.
                let leftovers = process::sweep();
                if leftovers > 0 {
                    progress(
                        workload,
                        format_args!("processes left behind, now ended: {leftovers}"),
                    );
                }
                let label = format!("round {round}/{}, {}", self.rounds, setup.name());
                match result {
                    Ok(measured) => {
                        let (value, unit) = (number(measured.value), workload.unit.name());
                        progress(workload, format_args!("{label}: {value} {unit}"));
                        row.series(setup).values.push(measured.value);
                        for (figure, value) in measured.figures {
                            for (_, row) in figures.iter_mut().filter(|(own, _)| *own == figure) {
                                row.series(setup).values.push(value);
                            }
                        }
                    }
                    Err(error) => {
                        progress(workload, format_args!("{label}: failed: {error:#}"));
                        row.series(setup).failure = Some(format!("{error:#}"));
                    }
                }
            }
        }
        let figures = figures.into_iter().map(|(_, row)| row);
        std::iter::once(row).chain(figures).collect()
    }

    fn measure_once(&self, workload: &Workload, setup: Setup) -> Result<Measured> {
        let size = match setup {
            Setup::Strace => workload.size.strace,
            _ if self.quick => workload.size.quick,
            _ => workload.size.full,
        };
        let unit = workload.unit;
        let value = match &workload.kind {
            Kind::Served { server, load } => {
                let running = server.start(self, setup)?;
                let loaded = load.run(self, &running, size)?;
                let recording = running.stop()?;
                let mut figures = Vec::new();
                figures.extend(loaded.resident.map(|resident| (Figure::Memory, resident)));
                if setup == Setup::Recorded {
                    figures.extend(self.log_figures(workload, recording.path()));
                }
                return Ok(Measured {
                    value: loaded.per_second,
                    figures,
                });
            }
            Kind::Own(program) => program.measure(self, setup, unit, size)?,
            Kind::Whole(program) => program.measure(self, setup, unit, size)?,
        };
        Ok(Measured {
            value,
            figures: Vec::new(),
        })
    }

    /// What `mw info` does not tell is missing here, and is printed as such.
    fn log_figures(&self, workload: &Workload, recording: &std::path::Path) -> Vec<(Figure, f64)> {
        if !workload.figures.contains(&Figure::LogBytes) {
            return Vec::new();
        }
        match self.launcher.info(recording, &self.scratch) {
            Ok(info) => {
                let plain = info
                    .bytes_beyond_data()
                    .map(|value| (Figure::LogBytes, value));
                let compressed = info.compressed_bytes();
                let compressed = compressed.map(|value| (Figure::LogCompressed, value));
                plain.into_iter().chain(compressed).collect()
            }
            Err(error) => {
                progress(workload, format_args!("no figures of the log: {error:#}"));
                Vec::new()
            }
        }
    }
}

fn progress(workload: &Workload, what: std::fmt::Arguments) {
    eprintln!("{}: {what}", workload.name);
}

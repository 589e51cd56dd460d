//! `MW_LOG`: what goes on inside, for whoever looks for a fault in `mw` itself.
//!
//! The libraries say what they do by `tracing`, each under the name of its layer
//! (`record`, `replay`, `index`, `gdb`, ...); who listens is decided here. Where nobody
//! does, what they say costs the look at one number.

use std::fs::OpenOptions;
use std::sync::Mutex;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::failure::Failure;
use crate::output::has_colours;

/// Listens if `MW_LOG` says so, as in `debug` or `record=trace,index=debug`;
/// writes to standard error, or to the file `MW_LOG_FILE`.
pub fn listen() -> Result<(), Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(wanted) = set("MW_LOG") else {
        return Ok(());
    };
    let wanted = wanted.to_string_lossy();
    let targets: Targets = wanted.parse().map_err(|_| {
        Failure::new(format!("MW_LOG is not understood: {wanted}"))
            .hint("a level (error, warn, info, debug, trace), or LAYER=LEVEL,LAYER=LEVEL")
    })?;
    let layer = fmt::layer().with_thread_ids(true);
    match set("MW_LOG_FILE") {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(&path);
            let file = file.map_err(|error| {
                Failure::new(format!(
                    "cannot write the log to {}: {error}",
                    path.display()
                ))
                .hint("MW_LOG_FILE names the file")
            })?;
            let layer = layer.with_ansi(false).with_writer(Mutex::new(file));
            tracing_subscriber::registry()
                .with(layer.with_filter(targets))
                .init();
        }
        None => {
            let layer = layer
                .with_ansi(has_colours(&std::io::stderr()))
                .with_writer(std::io::stderr);
            tracing_subscriber::registry()
                .with(layer.with_filter(targets))
                .init();
        }
    }
    Ok(())
}

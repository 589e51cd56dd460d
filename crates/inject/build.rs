//! Builds the monitor (a freestanding image with flags and a profile of its
//! own, see crates/monitor) so that it can be embedded.
#![allow(
    clippy::expect_used,
    reason = "a build that cannot go on says so and stops"
)]

use std::path::Path;
use std::process::Command;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let cargo = std::env::var("CARGO").expect("cargo sets CARGO");
    let manifest = Path::new("../monitor/Cargo.toml");
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(Path::new(&out).join("monitor-target"))
        // The host's flags (coverage, sanitizers, linkers) are not for it.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the monitor does not build");
    let image = Path::new(&out).join("monitor-target/release/monitor");
    println!("cargo:rustc-env=MONITOR_IMAGE={}", image.display());
    for dir in [
        "../monitor",
        "../patch/src",
        "../translate/src",
        "../protocol/src",
    ] {
        println!("cargo:rerun-if-changed={dir}");
    }
}

//! The seed of what a test chooses at random.
//!
//! It is fixed, so that a test says the same on every machine, and printed
//! with what it was for; `MW_SEED` gives another.

/// The seed of a test: `MW_SEED` if it is set, else `default`.
#[allow(
    dead_code,
    clippy::print_stderr,
    clippy::panic,
    reason = "a file that tests share"
)]
pub fn seed(what: &str, default: u64) -> u64 {
    let seed = match std::env::var("MW_SEED") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("MW_SEED={text} is not a number")),
        Err(_) => default,
    };
    eprintln!("{what}: MW_SEED={seed}");
    seed
}

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
        // Generators that shift make nothing out of 0.
        Ok(text) => match text.parse() {
            Ok(seed) if seed > 0 => seed,
            _ => panic!("MW_SEED={text} is not a number above 0"),
        },
        Err(_) => default,
    };
    eprintln!("{what}: MW_SEED={seed}");
    seed
}

//! How `mw` is linked: at a fixed address, and its libraries' functions bound when they are first called. Every
//! `mw record` pays for what the dynamic linker does before the first line of ours: with some 20,000 addresses to
//! adjust, that was a good part of a millisecond.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-no-pie", "-Wl,-z,lazy"] {
        println!("cargo:rustc-link-arg-bin=mw={argument}");
    }
}

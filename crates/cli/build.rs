//! How `mw` is linked: as one static program at a fixed address. Every `mw record` pays for what the dynamic linker
//! does before the first line of ours: to load three libraries and adjust some 20,000 addresses took most of a
//! millisecond. And what is one file can be copied to another host as it is.
//!
//! Cargo knows static linking only for a whole build with `--target`. So the linker is shown, before all other
//! places to look for libraries, a directory in which each library that Rust names is a line that says: take the
//! archive. Where an archive is missing, `mw` is linked as usual, its functions bound when they are first called.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What Rust's standard library names, and the archives that have it.
const LIBRARIES: [(&str, &[&str]); 7] = [
    ("c", &["libc.a"]),
    ("m", &["libm.a"]),
    ("rt", &["librt.a"]),
    ("util", &["libutil.a"]),
    ("pthread", &["libpthread.a"]),
    ("dl", &["libdl.a"]),
    ("gcc_s", &["libgcc_eh.a", "libgcc.a"]),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let how = match archives() {
        Some(dir) => ["-static".to_string(), format!("-L{}", dir.display())],
        None => ["-no-pie".to_string(), "-Wl,-z,lazy".to_string()],
    };
    for argument in how {
        println!("cargo:rustc-link-arg-bin=mw={argument}");
    }
}

/// The directory with a line for each library. None: there are no archives.
fn archives() -> Option<PathBuf> {
    let dir = Path::new(&std::env::var_os("OUT_DIR")?).join("static");
    std::fs::create_dir_all(&dir).ok()?;
    for (library, names) in LIBRARIES {
        let paths: Vec<String> = names.iter().map(|name| find(name)).collect::<Option<_>>()?;
        let line = format!("INPUT({})\n", paths.join(" "));
        std::fs::write(dir.join(format!("lib{library}.so")), line).ok()?;
    }
    Some(dir)
}

/// Where the C compiler, which links, has an archive.
fn find(name: &str) -> Option<String> {
    let asked = Command::new("cc")
        .arg(format!("-print-file-name={name}"))
        .output()
        .ok()?;
    let path = String::from_utf8(asked.stdout).ok()?.trim().to_string();
    (Path::new(&path).is_absolute() && Path::new(&path).exists()).then_some(path)
}

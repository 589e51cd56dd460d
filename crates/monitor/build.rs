//! Links the image at its fixed address and makes the vdso that programs see.
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let vdso = out.join("vdso.so");
    let status = Command::new("cc")
        .args([
            "-nostdlib",
            "-shared",
            "-Wl,-soname,linux-vdso.so.1",
            "-Wl,--hash-style=both",
        ])
        .args([
            "-Wl,--build-id=none",
            "-Wl,-z,max-page-size=4096",
            "-Wl,-T,src/vdso.ld",
        ])
        .arg("src/vdso.S")
        .arg("-o")
        .arg(&vdso)
        .status()
        .expect("cc, the linker driver Rust itself uses, is needed");
    assert!(status.success(), "cc could not link the vdso");
    for arg in ["-nostdlib", "-nostartfiles", "-static", "-no-pie"] {
        println!("cargo:rustc-link-arg={arg}");
    }
    for arg in [
        "--image-base=0x6f0000000000",
        "-z,max-page-size=4096",
        "-z,norelro",
        "-z,noexecstack",
        "--build-id=none",
        "-e,mw_init",
    ] {
        println!("cargo:rustc-link-arg=-Wl,{arg}");
    }
    println!("cargo:rerun-if-changed=src/vdso.S");
    println!("cargo:rerun-if-changed=src/vdso.ld");
}

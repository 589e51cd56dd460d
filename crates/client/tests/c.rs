//! The C form, used by a C program, and what is not believed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Answers as an agent does, for as long as the test lasts: this process has been halted
/// once, from 1000 to 3000, and is halted since 10000.
fn agent(directory: &Path, mode: u32) {
    let user = rustix::process::geteuid().as_raw();
    let own = directory.join(format!("meanwhile-{user}"));
    std::fs::DirBuilder::new().mode(0o700).create(&own).unwrap();
    let listener = UnixListener::bind(own.join("1.sock")).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut writing = stream.try_clone().unwrap();
            let pid = std::process::id();
            let about = format!(r#"{{"do":"peer","pid":{pid}}}"#);
            for line in BufReader::new(stream).lines() {
                let answer = match line.unwrap().as_str() {
                    r#"{"do":"halts"}"# => {
                        r#"{"is":"halts","halts":[{"number":1,"from_ns":1000,"to_ns":3000,"is_seen":false}]}"#
                    }
                    line if line == about => {
                        r#"{"is":"peer","pid":7,"agent":5,"debugger":6,"now_ns":20000,"halted_ns":10000,"is_real_time":false,"shift_ns":2000,"halts":2}"#
                    }
                    _ => r#"{"is":"refused","why":"no"}"#,
                };
                let _ = writing.write_all(format!("{answer}\n").as_bytes());
            }
        }
    });
}

const SOURCE: &str = r#"
#include <meanwhile.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    struct meanwhile_peer *peer = (struct meanwhile_peer *)1;
    int answer = count > 1 ? meanwhile_peer((uint32_t)atoi(words[1]), &peer) : -1;
    printf("%d %d %u\n", answer, meanwhile_is_halted(peer), meanwhile_debugger(peer));
    uint64_t times[] = {500, 2000, 5000, 15000};
    for (int i = 0; i < 4; i++)
        printf("%llu ", (unsigned long long)meanwhile_logical(peer, times[i]));
    printf("%llu %d\n", (unsigned long long)meanwhile_real(peer, 3000), meanwhile_real(peer, 8001) == UINT64_MAX);
    printf("%d %d\n", meanwhile_now() > 0, meanwhile_peer_of(-1, &peer) < 0);
    meanwhile_free(peer);
    return 0;
}
"#;

/// The library beside this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let near = own.ancestors().skip(1).take(2);
    let all = near.flat_map(|dir| std::fs::read_dir(dir).unwrap().flatten());
    let all = all.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libmeanwhile_client") && name.ends_with(".a")
    });
    let changed = |path: &PathBuf| path.metadata().and_then(|meta| meta.modified()).ok();
    all.max_by_key(changed).unwrap()
}

#[test]
fn a_c_program_asks() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let source = dir.join("asks.c");
    std::fs::write(&source, SOURCE).unwrap();
    let program = dir.join("asks");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let made = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-I"])
        .arg(include)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .status()
        .unwrap();
    assert!(made.success());
    let (trusted, open) = (dir.join("trusted"), dir.join("open"));
    for (place, mode) in [(&trusted, 0o700), (&open, 0o755)] {
        std::fs::create_dir_all(place).unwrap();
        agent(place, mode);
    }
    let ask = |place: &Path, pid: &str| {
        let output = Command::new(&program)
            .arg(pid)
            .env("TMPDIR", place)
            .env_remove("XDG_RUNTIME_DIR")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let own = std::process::id().to_string();
    assert_eq!(
        ask(&trusted, &own),
        "1 1 6\n500 1000 3000 8000 5000 1\n1 1\n"
    );
    let none = "0 0 0\n500 2000 5000 15000 3000 0\n1 1\n";
    // Another one of this user's, which the agent does not know.
    let parent = std::os::unix::process::parent_id().to_string();
    assert_eq!(ask(&trusted, &parent), none);
    // A directory that others can enter is nobody's word.
    assert_eq!(ask(&open, &own), none);
    std::fs::remove_dir_all(&dir).unwrap();
}

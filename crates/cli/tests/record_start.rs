//! What a program starts with under `mw record`: descriptors, signals, limits,
//! rights, namespaces. It must be what it starts with without, and be told.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::nobody::Nobody;
use harness::{MW, Scratch};

#[test]
fn a_limit_on_the_size_of_files_binds_the_program_as_it_does_natively() {
    let scratch = Scratch::new("file-size-inside");
    let script = "ulimit -f 1; head -c 100000 /dev/zero > long; echo $?; wc -c < long";
    let recorded = scratch.record(&["sh", "-c", script]);
    // 128 + SIGXFSZ, after 512 bytes.
    assert_eq!(recorded.outcome.stdout, "153\n512\n");
    recorded.is_sound();
}

/// A Rust program ignores SIGPIPE; what it runs must not inherit that.
#[test]
fn what_signals_do_is_inherited_as_it_was() {
    let scratch = Scratch::new("inherited-signals");
    let ignored = |before: &str| {
        let output = harness::with_default_signals("sh")
            .args(["-c", &format!("{before} exec \"$@\"")])
            .args(["sh", MW, "record", "-o"])
            .arg(scratch.fresh("recording"))
            .args(["--", "grep", "SigIgn", "/proc/self/status"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mask = text.trim().rsplit('\t').next().unwrap();
        u64::from_str_radix(mask, 16).unwrap() & (1 << 12 | 1 << 24)
    };
    assert_eq!(ignored(""), 0);
    assert_eq!(ignored("trap '' PIPE;"), 1 << 12);
    assert_eq!(ignored("trap '' XFSZ;"), 1 << 24);
}

/// What was open before the program is known by name.
#[test]
fn inherited_descriptors_have_names() {
    let scratch = Scratch::new("descriptors");
    let file = scratch.path().join("input");
    std::fs::write(&file, "from a file\n").unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"from a pipe\n").unwrap();
    drop(writer);
    let script = format!("exec 7< {}; exec \"$@\"", file.display());
    let dir = scratch.path().join("recording");
    let output = Command::new("sh")
        .args(["-c", &script, "sh", MW, "record", "-o"])
        .arg(&dir)
        .args(["--", "sh", "-c", "cat; cat <&7; cat < /dev/null"])
        .stdin(reader)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"from a pipe\nfrom a file\n");
    let events = harness::recorded::ask(&dir, &["events"]);
    let file = file.canonicalize().unwrap();
    let read = format!("read(0<{}>, \"from a file\\n\"", file.display());
    for seen in [
        "read(0<pipe:",
        "write(1<pipe:",
        "close(2</dev/null>)",
        &read,
    ] {
        assert!(events.contains(seen), "no {seen} in\n{events}");
    }
}

/// Records `sh -c SCRIPT`, with a cache of the test's own.
fn record_with_cache(scratch: &Scratch, script: &str) -> PathBuf {
    record_with(scratch, &["sh", "-c", script], |command| command)
}

/// Records a command with a cache of the test's own, and with what else is said of it.
fn record_with(
    scratch: &Scratch,
    command: &[&str],
    also: impl FnOnce(&mut Command) -> &mut Command,
) -> PathBuf {
    let dir = scratch.fresh("recording");
    let mut mw = Command::new(MW);
    mw.args(["record", "-o"]).arg(&dir).arg("--").args(command);
    mw.env("XDG_CACHE_HOME", scratch.path().join("cache"));
    let status = also(&mut mw).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
    dir
}

/// The captured files of a recording, by inode.
fn captured(dir: &std::path::Path) -> Vec<(u64, u64)> {
    let files = std::fs::read_dir(dir.join("files")).unwrap();
    let mut found: Vec<_> = files
        .map(|file| file.unwrap().metadata().unwrap())
        .map(|meta| (meta.ino(), meta.len()))
        .collect();
    found.sort_unstable();
    found
}

/// Copies of what has not changed are made once, and each recording stands
/// alone all the same.
#[test]
fn copies_are_shared_and_recordings_stand_alone() {
    let scratch = Scratch::new("cache");
    let first = record_with_cache(&scratch, "true");
    let second = record_with_cache(&scratch, "true");
    // Nothing is kept of what was installed in the last two minutes, nor where
    // files can share their blocks.
    let cache = scratch.path().join("cache");
    if cache.exists() {
        let before = captured(&first);
        let shared = captured(&second);
        assert!(
            shared.iter().any(|file| before.contains(file)),
            "{shared:?}"
        );
    }
    std::fs::remove_dir_all(&first).unwrap();
    let _ = std::fs::remove_dir_all(&cache);
    let moved = scratch.fresh("moved");
    std::fs::rename(&second, &moved).unwrap();
    harness::verified::verify(&moved, &[]).is_equal();
}

/// What a program needed twice is captured before it asks for it the third time;
/// and not the fourth, if it did not ask.
#[test]
fn what_was_needed_before_is_there_in_advance() {
    let Some(library) = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6"]
        .into_iter()
        .find(|library| std::path::Path::new(library).exists())
    else {
        skip!("there is no such library");
    };
    let scratch = Scratch::new("cache-companions");
    let preloaded = || record_with(&scratch, &["/bin/true"], |mw| mw.env("LD_PRELOAD", library));
    let plain = || record_with(&scratch, &["/bin/true"], |mw| mw);
    let len = std::fs::metadata(library).unwrap().len();
    let has_it = |dir: &PathBuf| captured(dir).iter().any(|(_, size)| *size == len);
    assert!(!has_it(&plain()));
    assert!(has_it(&preloaded()) && has_it(&preloaded()));
    if !scratch.path().join("cache").exists() {
        skip!("nothing is kept here between two recordings");
    }
    let in_advance = plain();
    assert!(has_it(&in_advance), "{:?}", captured(&in_advance));
    harness::verified::verify(&in_advance, &[]).is_equal();
    assert!(!has_it(&plain()));
}

/// A program that changes between two recordings is in each as it was then.
#[test]
fn a_changed_file_is_copied_again() {
    let scratch = Scratch::new("cache-changed");
    let program = scratch.path().join("program");
    let run = || record_with_cache(&scratch, &format!("exec {}", program.display()));
    let holds = |dir: &std::path::Path, what: &std::path::Path| {
        let expected = std::fs::read(what).unwrap();
        let files = std::fs::read_dir(dir.join("files")).unwrap();
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .any(|bytes| bytes == expected)
    };
    let [before, after] = ["/bin/true", "/bin/cat"].map(PathBuf::from);
    std::fs::copy(&before, &program).unwrap();
    let first = run();
    // Into the same file, as `cp` does.
    std::fs::copy(&after, &program).unwrap();
    let second = run();
    assert!(holds(&first, &before) && !holds(&first, &after));
    assert!(holds(&second, &after) && !holds(&second, &before));
}

/// Ten times what it may cost at most: this finds what got slow by mistake (a
/// wait, a copy, a read-ahead), on machines that are busy, too.
#[test]
fn a_recording_starts_and_ends_at_once() {
    let scratch = Scratch::new("start-up");
    let time = |command: &mut Command| {
        let begin = std::time::Instant::now();
        assert!(command.status().unwrap().success());
        begin.elapsed()
    };
    let best = |run: &dyn Fn() -> std::time::Duration| (0..20).map(|_| run()).min().unwrap();
    let native = best(&|| time(&mut Command::new("/bin/true")));
    let recorded = best(&|| {
        let dir = scratch.fresh("recording");
        let time = time(
            Command::new(MW)
                .args(["record", "-o"])
                .arg(&dir)
                .arg("/bin/true"),
        );
        std::fs::remove_dir_all(&dir).unwrap();
        time
    });
    let added = recorded.saturating_sub(native);
    assert!(added.as_millis() < 50, "{added:?} more than {native:?}");
}

/// Ends of processes, as a shell tells them.
#[test]
fn the_exit_status_is_the_programs() {
    let scratch = Scratch::new("status");
    for (script, status) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
        ("ulimit -c 0; kill -ABRT $$", 128 + 6),
        // That of the first process, not of the last one to end.
        ("(sleep 0.2; exit 9) & exit 4", 4),
    ] {
        let recorded = scratch.record(&["sh", "-c", script]);
        assert_eq!(recorded.outcome.code(), status, "{script}");
        // Not by a signal of its own: a shell would say so.
        assert_eq!(recorded.outcome.status.code(), Some(status), "{script}");
        assert_eq!(recorded.info()["exit"], status, "{script}");
    }
}

/// Ids of another pid namespace mean other processes here, or none.
#[test]
fn a_pid_namespace_of_its_own() {
    let scratch = Scratch::new("pid-namespace");
    let script = "echo $$; /bin/sh -c 'echo $$; exit 3'; echo $?; sh -c 'kill -9 $$'; echo $?";
    let command = ["unshare", "-Urpf", "--mount-proc", "sh", "-c", script];
    let native = Command::new(command[0]).args(&command[1..]).output();
    if !native.is_ok_and(|output| output.status.success()) {
        skip!("no namespaces can be made here");
    }
    let recorded = scratch.record(&command);
    assert_eq!(recorded.outcome.stdout, "1\n2\n3\n137\n");
    assert_eq!(recorded.outcome.code(), 0);
    recorded.is_sound();
    assert_eq!(recorded.info()["processes"], 4);
    assert_eq!(recorded.notes(), "[]");
    // Names of processes, where ids are shown, are of the namespace.
    let waits = recorded.ask(&["events", "--no-links", "--type", "wait"]);
    assert!(waits.contains("= 2<sh-1>"), "{waits}");
    assert!(waits.contains("= 3<sh-2>"), "{waits}");
    let outside = waits
        .lines()
        .find(|line| line.contains("unshare-0") && line.contains(" = "));
    assert!(
        outside.is_some_and(|line| line.ends_with("<sh-0>")),
        "{waits}"
    );
}

/// A copy of a program that may bind any port; None if files cannot have
/// capabilities here.
fn capable(nobody: &Nobody, program: &str) -> Option<PathBuf> {
    let copy = nobody.scratch.path().join("capable");
    std::fs::copy(program, &copy).unwrap();
    // Version 2 and "effective"; permitted, inheritable; twice 32 bits.
    const CAP_NET_BIND_SERVICE: u32 = 1 << 10;
    let words = [0x0200_0001u32, CAP_NET_BIND_SERVICE, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&copy, "security.capability", &value, flags).ok()?;
    Some(copy)
}

#[test]
fn a_program_with_capabilities() {
    let Some(nobody) = Nobody::new("capabilities") else {
        skip!("only root can give capabilities and become nobody");
    };
    let Some(program) = capable(&nobody, "/usr/bin/grep") else {
        skip!("files have no capabilities here");
    };
    let own = nobody.own("own");
    let asks = ["CapEff", "/proc/self/status"];
    let native = nobody.run_program(&program, &asks);
    assert_eq!(native.stdout, b"CapEff:\t0000000000000400\n");

    // As the command it is refused: recorded it would not have them.
    let program = program.to_str().unwrap();
    let dir = own.join("refused");
    let args = [
        "record",
        "-o",
        dir.to_str().unwrap(),
        program,
        asks[0],
        asks[1],
    ];
    let output = nobody.run(&args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let wanted = format!("mw: {program} has file capabilities: recorded, it would not get them\n");
    assert!(said.starts_with(&wanted), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(!dir.exists(), "nothing is left");

    // Started by the program it has them, and that it is not recorded is told.
    let dir = own.join("recording");
    let script = format!("{program} {} {}; echo $?", asks[0], asks[1]);
    let args = [
        "record",
        "-o",
        dir.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ];
    let output = nobody.run(&args);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out, "CapEff:\t0000000000000400\n0\n");
    let info = harness::recorded::ask(&dir, &["info"]);
    assert!(
        info.contains(&format!("{program} has rights of its own")),
        "{info}"
    );
}

/// The slice that a thread has, where the kernel tells.
fn slice(task: &std::path::Path) -> Option<u64> {
    let text = std::fs::read_to_string(task.join("sched")).ok()?;
    let line = text.lines().find(|line| line.starts_with("se.slice"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Threads of the recorder that are waited for are let in at once on a busy machine; the program,
/// and what it executes, has the slices that it would have.
#[test]
fn who_is_waited_for_asks_for_short_slices() {
    let own = std::path::Path::new("/proc/thread-self");
    let Some(usual) = slice(own) else {
        skip!("the kernel does not tell how long slices are");
    };
    let scratch = Scratch::new("slices");
    // What it executes is followed by threads of their own.
    let script = "/bin/true; /bin/true; echo there; read line; grep se.slice /proc/self/sched; :";
    let mut run = Command::new(MW)
        .args(["record", "-q", "-o"])
        .arg(scratch.fresh("recording"))
        .args(["--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "there\n");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", run.id())).unwrap();
    let slices: Vec<u64> = tasks
        .filter_map(|task| slice(&task.unwrap().path()))
        .collect();
    run.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    assert!(run.wait().unwrap().success());
    let the_programs: u64 = rest
        .trim()
        .rsplit(':')
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(the_programs, usual);
    // Where a shorter one can be asked for: the first, the service, and one that stands by.
    let short = slices.iter().filter(|slice| **slice < usual).count();
    println!("usual {usual}, the recorder's {slices:?}");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = kernel
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) >= (Some(6), Some(12)) {
        assert!(short >= 3, "usual {usual}, the recorder's {slices:?}");
    }
}

//! What cannot be recorded is refused, in one clear message.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::nobody::Nobody;
use harness::{MW, Scratch, programs};

/// `mw record` with its recordings in `home`.
fn record(home: &Path, args: &[&str]) -> Output {
    Command::new(MW)
        .arg("record")
        .args(args)
        .env("XDG_DATA_HOME", home)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Recording must fail with this status and nothing on standard output, and
/// leave nothing behind: what it says.
fn refused(scratch: &Scratch, status: i32, args: &[&str]) -> String {
    let home = scratch.path().join("home");
    let output = record(&home, args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let left = std::fs::read_dir(home.join("meanwhile"));
    let left: Vec<PathBuf> = left
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    said
}

/// A file that may be executed.
fn executable(scratch: &Scratch, name: &str, bytes: &[u8]) -> String {
    let path = scratch.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_string()
}

/// The header of an executable of this class (1: 32 bits, 2: 64) for this
/// machine, and nothing behind it.
fn elf(class: u8, machine: u16) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(b"\x7fELF");
    bytes[4] = class;
    bytes[5] = 1; // little endian
    bytes[6] = 1; // version
    bytes[16] = 2; // executable
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[20] = 1;
    bytes
}

#[test]
fn a_command_that_is_not_there() {
    let scratch = Scratch::new("missing");
    assert_eq!(
        refused(&scratch, 127, &["no-such-command-anywhere", "x"]),
        "mw: no-such-command-anywhere: command not found\n"
    );
    assert_eq!(
        refused(&scratch, 127, &["--", "/no/such/file"]),
        "mw: /no/such/file: No such file or directory\n"
    );
    assert_eq!(
        refused(&scratch, 127, &["--", ""]),
        "mw: : command not found\n"
    );
}

#[test]
fn an_option_that_is_not_there() {
    let scratch = Scratch::new("option");
    let said = refused(&scratch, 2, &["--on-ful=stop", "true"]);
    assert!(
        said.starts_with("mw: there is no option `--on-ful=stop`\n"),
        "{said}"
    );
    // A command may be called so.
    let said = refused(&scratch, 127, &["--", "--on-ful=stop"]);
    assert_eq!(said, "mw: --on-ful=stop: command not found\n");
}

#[test]
fn a_command_that_may_not_be_executed() {
    let scratch = Scratch::new("not-executable");
    let path = scratch.path().join("data");
    std::fs::write(&path, "data").unwrap();
    let path = path.to_str().unwrap();
    let wanted = format!("mw: {path}: Permission denied\n");
    assert_eq!(refused(&scratch, 126, &[path]), wanted);
    let directory = scratch.path().to_str().unwrap();
    let wanted = format!("mw: {directory}: Is a directory\n");
    assert_eq!(refused(&scratch, 126, &[directory]), wanted);
}

#[test]
fn a_command_that_is_found_in_the_path_but_may_not_be_executed() {
    let scratch = Scratch::new("path");
    std::fs::write(scratch.path().join("tool"), "data").unwrap();
    let output = Command::new(MW)
        .args(["record", "tool"])
        .env("PATH", scratch.path())
        .env("XDG_DATA_HOME", scratch.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("/tool: Permission denied\n"), "{said}");
}

#[test]
fn a_script_whose_interpreter_is_not_there() {
    let scratch = Scratch::new("interpreter");
    let script = executable(&scratch, "script", b"#!/no/such/interpreter\n");
    let said = refused(&scratch, 127, &[&script]);
    assert!(said.starts_with("mw: "), "{said}");
    assert!(
        said.contains("script") && said.contains("No such file"),
        "{said}"
    );
    let hint = said.lines().nth(1).unwrap().trim();
    assert_eq!(
        hint,
        "its first line names /no/such/interpreter, which is not there"
    );
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_script_that_does_not_say_what_reads_it() {
    let scratch = Scratch::new("no-interpreter");
    let script = executable(&scratch, "script", b"echo \xc3\xa4\n");
    let said = refused(&scratch, 126, &[&script]);
    assert_eq!(
        said,
        format!(
            "mw: {script}: cannot execute binary file: Exec format error\n    \
             a script begins with a line like `#!/bin/sh`; or say what reads it: `mw record sh {script}`\n"
        )
    );
}

#[test]
fn a_file_that_is_no_program() {
    let scratch = Scratch::new("no-program");
    let file = executable(
        &scratch,
        "file",
        b"\x01\x02\x03 neither a script nor a program",
    );
    let said = refused(&scratch, 126, &[&file]);
    assert_eq!(
        said,
        format!("mw: {file}: cannot execute binary file: Exec format error\n")
    );
}

#[test]
fn a_program_for_another_machine() {
    let scratch = Scratch::new("machine");
    for (class, machine, what) in [
        (1, 3, "a 32-bit x86 program"),
        (1, 62, "an x32 program"),
        (2, 183, "a program for 64-bit ARM"),
        (2, 243, "not an x86-64 program (ELF class 2, machine 243)"),
    ] {
        let file = executable(&scratch, "program", &elf(class, machine));
        let said = refused(&scratch, 2, &[&file]);
        let wanted = format!(
            "mw: {file} is {what}\n    \
             only 64-bit x86 programs can be recorded: use a 64-bit build of it\n"
        );
        assert_eq!(said, wanted);
    }
}

#[test]
fn a_program_for_another_machine_that_is_started_by_the_program() {
    // It fails as it does without `mw`, and the rest is recorded.
    let scratch = Scratch::new("machine-inside");
    let file = executable(&scratch, "program", &elf(1, 3));
    let script = format!("{file} 2>/dev/null; echo $?");
    let native = Command::new("sh").args(["-c", &script]).output().unwrap();
    let recorded = scratch.record(&["sh", "-c", &script]);
    assert_eq!(recorded.outcome.stdout.as_bytes(), native.stdout);
    recorded.is_sound();
}

#[test]
fn no_rights_are_needed() {
    let Some(nobody) = Nobody::new("nobody") else {
        skip!("only root can become nobody");
    };
    let dir = nobody.own("own").join("recording");
    let dir = dir.to_str().unwrap();
    let output = nobody.run(&["record", "-o", dir, "--", "sh", "-c", "id -u; exit 3"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!((output.stdout.as_slice(), &*said), (&b"65534\n"[..], ""));
    let output = nobody.run(&["info", dir]);
    let info = String::from_utf8(output.stdout).unwrap();
    assert!(info.contains("state      complete\n"), "{info}");
}

#[test]
fn a_set_user_id_program() {
    let Some(nobody) = Nobody::new("setuid") else {
        skip!("only root can make a set-user-ID program and become nobody");
    };
    let program = nobody.scratch.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let program = program.to_str().unwrap();
    let dir = nobody.own("own").join("recording");
    let output = nobody.run(&["record", "-o", dir.to_str().unwrap(), "--", program]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with(&format!("mw: {program} is a set-user-ID")),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(!dir.exists(), "nothing is left");
}

#[test]
fn a_set_user_id_program_that_is_started_by_the_program() {
    // It must run; that it cannot be recorded is told.
    let Some(nobody) = Nobody::new("setuid-inside") else {
        skip!("only root can make a set-user-ID program and become nobody");
    };
    let program = nobody.scratch.path().join("program");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let dir = nobody.own("own").join("recording");
    let dir = dir.to_str().unwrap();
    let script = format!("{} -u; echo $?", program.display());
    let output = nobody.run(&["record", "-o", dir, "--", "sh", "-c", &script]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.ends_with("\n0\n"), "{out}: {said}");
    // What was recorded of the process that became it replays.
    let output = nobody.run(&["verify", dir]);
    let verdict = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{verdict}");
    let output = nobody.run(&["info", dir]);
    let info = String::from_utf8(output.stdout).unwrap();
    assert!(info.contains("complete"), "{info}");
}

#[test]
fn a_directory_that_exists() {
    let scratch = Scratch::new("exists");
    let dir = scratch.path().join("here");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    let said = refused(&scratch, 2, &["-o", dir, "true"]);
    let wanted = format!(
        "mw: {dir} exists already\n    \
         name a directory that does not exist, or remove it first\n"
    );
    assert_eq!(said, wanted);
    std::fs::write(scratch.path().join("file"), "kept").unwrap();
    let file = scratch.path().join("file");
    refused(&scratch, 2, &["-o", file.to_str().unwrap(), "true"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    let inside = file.join("recording");
    let said = refused(&scratch, 2, &["-o", inside.to_str().unwrap(), "true"]);
    assert_eq!(said, format!("mw: {} is not a directory\n", file.display()));
}

#[test]
fn a_directory_that_may_not_be_written_to() {
    let Some(nobody) = Nobody::new("not-writable") else {
        skip!("only root can become nobody");
    };
    let dir = nobody.scratch.path().join("recording");
    let marker = nobody.own("own").join("ran");
    let args = [
        "record",
        "-o",
        dir.to_str().unwrap(),
        "--",
        "touch",
        marker.to_str().unwrap(),
    ];
    let output = nobody.run(&args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("mw: cannot write to "), "{said}");
    assert!(
        said.ends_with("\n    name another directory with `-o DIR`\n"),
        "{said}"
    );
    assert!(!marker.exists(), "it was refused before the program ran");
    // The place for those that are not told where to go, too.
    let output = nobody.run(&["record", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("mw: cannot create "), "{said}");
}

#[test]
fn no_home() {
    let scratch = Scratch::new("homeless");
    let run = |args: &[&str]| {
        Command::new(MW)
            .args(args)
            .env_remove("HOME")
            .env_remove("XDG_DATA_HOME")
            .current_dir(scratch.path())
            .output()
            .unwrap()
    };
    let output = run(&["record", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "mw: neither HOME nor XDG_DATA_HOME is set: there is no place for recordings\n    \
         name a directory with `-o DIR`\n"
    );
    let output = run(&["record", "-o", "here", "true"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run(&["ps", "here"]).status.code(), Some(0));
    assert_eq!(run(&["ps"]).status.code(), Some(2));
}

#[test]
fn recordings_are_numbered_and_the_latest_is_linked() {
    let scratch = Scratch::new("latest");
    let home = scratch.path();
    let ask = |args: &[&str]| {
        let output = Command::new(MW)
            .args(args)
            .env("XDG_DATA_HOME", home)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (number, command) in ["true", "true", "/bin/echo"].iter().enumerate() {
        let output = record(home, &[command, "argument"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let latest = std::fs::canonicalize(home.join("meanwhile/latest")).unwrap();
        let expected = ["true-0", "true-1", "echo-0"][number];
        assert_eq!(latest.file_name().unwrap(), expected);
        let ps = ask(&["ps"]);
        assert!(
            ps.lines()
                .last()
                .unwrap()
                .ends_with(&format!("{command} argument")),
            "{ps}"
        );
    }
    // One that was told where to go is the latest as well.
    let dir = scratch.path().join("elsewhere");
    record(home, &["-o", dir.to_str().unwrap(), "sh", "-c", "exit 4"]);
    assert!(ask(&["info"]).contains("exit       4\n"));
    assert_eq!(
        ask(&["events", "--json"]),
        ask(&["events", "--json", dir.to_str().unwrap()])
    );
}

/// A file system of its own that has this much room.
struct Small {
    scratch: Scratch,
    dir: PathBuf,
}

impl Small {
    /// None if we may not mount.
    fn new(name: &str, size: &str) -> Option<Small> {
        let scratch = Scratch::new(name);
        let dir = scratch.path().join("small");
        std::fs::create_dir(&dir).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(&dir)
            .stderr(Stdio::null())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Small { scratch, dir })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).status();
    }
}

/// Writes numbers to a pipe until it has written a hundred megabytes, and then
/// how many: far more than the disk holds, with little to compress.
const TALKER: &str = "head -c 100000000 /dev/urandom | wc -c";

#[test]
fn a_full_disk_stops_the_program() {
    let Some(small) = Small::new("full-stop", "64m") else {
        skip!("no file system can be mounted here");
    };
    let dir = small.dir.join("recording");
    let recorded = small
        .scratch
        .setup(&["sh", "-c", TALKER])
        .into(&dir)
        .start()
        .finish();
    let said = &recorded.outcome.stderr;
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("mw: no room for the recording in "),
        "{said}"
    );
    assert!(said.contains("the program is stopped"), "{said}");
    assert_eq!(recorded.outcome.stdout, "", "it did not come to its end");
    assert_ne!(recorded.outcome.code(), 0);
    ends_early(&recorded);
}

#[test]
fn a_full_disk_lets_the_program_run_on() {
    let Some(small) = Small::new("full-continue", "64m") else {
        skip!("no file system can be mounted here");
    };
    let dir = small.dir.join("recording");
    let recorded = small
        .scratch
        .setup(&["sh", "-c", TALKER])
        .option("--on-full=continue")
        .into(&dir)
        .start()
        .finish();
    let said = &recorded.outcome.stderr;
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the program runs on unrecorded"), "{said}");
    assert_eq!(recorded.outcome.stdout, "100000000\n");
    assert_eq!(recorded.outcome.code(), 0);
    ends_early(&recorded);
}

/// While the journal is short no space is taken for it in advance; and here the
/// program itself takes what there is, to the last byte.
#[test]
fn a_disk_without_a_byte_left_has_room_to_say_so() {
    let Some(small) = Small::new("full-soon", "40m") else {
        skip!("no file system can be mounted here");
    };
    let fill = small.dir.join("fill");
    let script = format!("cat /dev/zero > {} 2>/dev/null; {TALKER}", fill.display());
    let recorded = small
        .scratch
        .setup(&["sh", "-c", &script])
        .into(small.dir.join("recording"))
        .start()
        .finish();
    let said = &recorded.outcome.stderr;
    assert!(said.contains("the program is stopped"), "{said}");
    assert_eq!(recorded.info()["state"], "ended before the program did");
    recorded.is_readable();
    let arena = small.dir.join("recording/arena");
    assert!(!arena.exists(), "what was left has been stored");
}

fn ends_early(recorded: &harness::Recorded) {
    assert_eq!(recorded.info()["complete"], false);
    assert_eq!(recorded.info()["state"], "ended before the program did");
    recorded.is_readable();
    assert!(recorded.bytes(|e| e.process() == "head-0" && e.kind() == "send") > 0);
}

#[test]
fn a_disk_that_is_full_from_the_start() {
    let Some(small) = Small::new("full-start", "8m") else {
        skip!("no file system can be mounted here");
    };
    let dir = small.dir.join("recording");
    let marker = small.scratch.path().join("ran");
    let output = Command::new(MW)
        .args(["record", "-o"])
        .arg(&dir)
        .arg("touch")
        .arg(&marker)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("mw: no room for "), "{said}");
    assert!(!marker.exists(), "the program did not run");
    assert!(!dir.exists(), "nothing half-recorded is left");
}

/// `mw record` of a shell script, in a shell that has set a limit before.
fn limited(scratch: &Scratch, limit: &str, dir: &Path, script: &str) -> Output {
    Command::new("sh")
        .args(["-c", &format!("{limit}; exec \"$@\""), "sh", MW])
        .args(["record", "-o"])
        .arg(dir)
        .args(["--", "sh", "-c", script])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk() {
    let scratch = Scratch::new("file-size");
    let dir = scratch.path().join("too-low");
    let output = limited(&scratch, "ulimit -f 100", &dir, "echo ran");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("mw: no room for "), "{said}");
    assert_eq!(output.stdout, b"", "the program did not run");
    assert!(!dir.exists(), "nothing half-recorded is left");

    // Units of 512 bytes: 48 MiB.
    let dir = scratch.path().join("low");
    let output = limited(&scratch, "ulimit -f 98304", &dir, TALKER);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the program is stopped"), "{said}");
    let info = harness::recorded::ask(&dir, &["info", "--json"]);
    assert!(info.contains("ended before the program did"), "{info}");
}

#[test]
fn a_limit_on_address_space() {
    let scratch = Scratch::new("address-space");
    let dir = scratch.path().join("too-low");
    let output = limited(&scratch, "ulimit -v 100000", &dir, "echo ran");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let wanted = "mw: the limit on address space is 97 MiB; the recorder needs 256\n";
    assert!(said.starts_with(wanted), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(output.stdout, b"", "the program did not run");
    assert!(!dir.exists(), "nothing half-recorded is left");

    let dir = scratch.path().join("enough");
    let output = limited(&scratch, "ulimit -v 300000", &dir, "ulimit -v");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.stdout.as_slice(), &*said), (&b"300000\n"[..], ""));

    // The program's own limit can be far lower.
    let script = "ulimit -v 16000; ls -d /; seq 100000 | tail -n 1";
    let recorded = scratch.record(&["sh", "-c", script]);
    assert_eq!(recorded.outcome.stdout, "/\n100000\n");
    recorded.is_sound();
}

/// A thread that touches a page which another of its process has to serve stands in the
/// middle of its own code, with the turn: nothing that is recorded can go on.
#[test]
fn a_page_of_an_own_file_system_ends_the_recording_and_not_the_program() {
    let scratch = Scratch::new("bad-served-page");
    let program = programs::for_debuggers(&scratch, "debug/served_page.c", &["-O1"]);
    let program = program.to_str().unwrap();
    let (home, out) = (
        scratch.path().join("home"),
        scratch.path().join("recording"),
    );
    let out = out.to_str().unwrap();
    let output = record(&home, &["-o", out, "--", program, "page"]);
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(77) {
        assert!(!harness::is_root() || !Path::new("/dev/fuse").exists());
        skip!("this takes root and /dev/fuse");
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "the page came back\n"
    );
    let why = "waits for a page of a file that the program serves itself";
    assert!(said.contains(why), "{said}");
    let events = Command::new(MW).args(["events", out]).output().unwrap();
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    assert!(events.contains("mmap("), "{events}");
}

#[test]
fn a_file_that_threads_of_its_own_serve_is_not_executed() {
    let scratch = Scratch::new("bad-served-exec");
    let program = programs::for_debuggers(&scratch, "debug/served_page.c", &["-O1"]);
    let program = program.to_str().unwrap();
    let (home, out) = (
        scratch.path().join("home"),
        scratch.path().join("recording"),
    );
    let out = out.to_str().unwrap();
    let output = record(&home, &["-o", out, "--", program, "exec"]);
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(77) {
        assert!(!harness::is_root() || !Path::new("/dev/fuse").exists());
        skip!("this takes root and /dev/fuse");
    }
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "executing it gives errno 5\n",
        "{said}"
    );
    let why = "executes a file that threads of its own may serve";
    assert!(said.contains(why), "{said}");
    let verified = Command::new(MW).args(["verify", out]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

/// It needs the very addresses that the monitor lives at.
#[test]
fn a_program_that_leaves_no_room_for_the_monitor_runs_unrecorded() {
    let scratch = Scratch::new("bad-no-room");
    let place = format!("-Wl,-Ttext-segment={:#x}", protocol::layout::IMAGE_BASE);
    let options = ["-fPIE", "-no-pie", "-nostdlib", "-static", &place];
    let program = programs::for_debuggers(&scratch, "debug/no_room.c", &options);
    let (home, out) = (
        scratch.path().join("home"),
        scratch.path().join("recording"),
    );
    let out = out.to_str().unwrap();
    let line = format!("{}; echo after", program.display());
    let output = record(&home, &["-o", out, "--", "sh", "-c", &line]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "there\nafter\n",
        "{output:?}"
    );
    let info = Command::new(MW).args(["info", out]).output().unwrap();
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains("cannot map the monitor (error 17)"), "{info}");
    let verified = Command::new(MW).args(["verify", out]).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(said.contains("sh-0"), "{said}");
}

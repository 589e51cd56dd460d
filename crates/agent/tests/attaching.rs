//! Programs that nobody watches, attached to and left again at random while they run:
//! they do what they do without.
//!
//! `MW_SEED` says when.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

#[path = "../../../tests/seed.rs"]
mod seed;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::{Attachment, Refusal};

/// Far more than anything takes, on a loaded machine too.
const LIMIT: Duration = Duration::from_secs(120);

/// A program that was started by somebody else.
struct Program {
    child: Child,
    dir: tempfile::TempDir,
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let dir = tempfile::tempdir().unwrap();
        let out = std::fs::File::create(dir.path().join("out")).unwrap();
        let child = command
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(out)
            .spawn()
            .unwrap();
        Program { child, dir }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("out")).unwrap_or_default()
    }

    /// Waits until it has said this.
    fn await_output(&self, what: &str) {
        let start = Instant::now();
        while !self.output().contains(what) && start.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// How it ended.
    fn wait(&mut self) -> std::process::ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether anything is mapped where the monitor is.
    fn has_monitor(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        maps.lines().any(|line| line.starts_with("6f"))
    }

    fn status(&self, field: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn pause(&mut self, us: u64) {
        std::thread::sleep(Duration::from_micros(self.roll(us)));
    }
}

fn root() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    crates.ancestors().nth(2).unwrap()
}

/// A test program, built.
fn built(name: &str) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attached");
    std::fs::create_dir_all(&out).unwrap();
    let lock = std::fs::File::create(out.join(".lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let programs = root().join("tests/programs");
    let status = Command::new(programs.join("build"))
        .arg("--compile")
        .arg(programs.join(format!("c/{name}.c")))
        .arg(out.join(name))
        .status()
        .unwrap();
    assert!(status.success(), "{name} does not build");
    out.join(name)
}

fn expected(name: &str) -> String {
    let path = root().join(format!("tests/programs/expected/{name}.txt"));
    std::fs::read_to_string(path).unwrap_or_default()
}

/// One round: attach, halt, go on, leave. None: the program has ended, or is about to.
fn round(pid: i32, dice: &mut Dice, halt: Duration) -> Option<Duration> {
    let attachment = match agent::attach(&[pid]) {
        Ok(attachment) => attachment,
        Err(agent::Error::Refused(Refusal::NoProcess(_))) => return None,
        Err(error) => panic!("{error}"),
    };
    let stood = attachment.stood().iter().map(|(_, stood)| *stood).max();
    dice.pause(3000);
    if !halt.is_zero() {
        halt_for(&attachment, halt);
    }
    dice.pause(3000);
    if let Err(error) = attachment.detach() {
        // It may have ended in the middle of it.
        assert!(!Path::new(&format!("/proc/{pid}/exe")).exists(), "{error}");
        return None;
    }
    stood
}

fn halt_for(attachment: &Attachment, length: Duration) {
    let mut halter = attachment.halter();
    halter.prepare();
    let halted = halter.halt(Duration::from_secs(20));
    assert!(!halted.is_partial, "{:?}", halted.stops);
    std::thread::sleep(length);
    halter.resume();
}

/// Attaches to a program again and again until it has ended; how often.
fn attach_at_random(program: &mut Program, dice: &mut Dice) -> u32 {
    let mut count = 0;
    while !program.has_ended() {
        dice.pause(4000);
        let halt = Duration::from_micros(dice.roll(4000));
        match round(program.pid(), dice, halt) {
            Some(_) => count += 1,
            None => break,
        }
    }
    count
}

fn is_unchanged(names: &[&str]) {
    let mut dice = Dice(seed::seed("programs that are attached to", 7));
    for name in names {
        let mut program = Program::start(&mut Command::new(built(name)));
        let count = attach_at_random(&mut program, &mut dice);
        let status = program.wait();
        assert!(
            status.success(),
            "{name}, attached to {count} times: {status}"
        );
        assert_eq!(program.output(), expected(name), "{name}");
        eprintln!("{name}: attached to {count} times");
    }
}

#[test]
fn threads_do_not_notice() {
    is_unchanged(&["threads_mutex", "threads_many", "atomics", "spinlock"]);
}

#[test]
fn channels_do_not_notice() {
    is_unchanged(&["pipes", "sockets_inet", "epoll_poll_select", "tcp_pingpong"]);
}

/// Threads that are made and end, forks, signals, locks, waits with time limits: for as
/// long as it is told to.
#[test]
fn a_program_of_all_kinds_fifty_times() {
    const ROUNDS: u32 = 50;
    let mut dice = Dice(seed::seed("fifty times", 3));
    let mut program = Program::start(Command::new(built("attached_to")).arg("600"));
    program.await_output("begun");
    let before = program.status("SigCgt");
    let mut stood = Vec::new();
    for i in 0..ROUNDS {
        dice.pause(10_000);
        assert!(!program.has_ended(), "{}", program.output());
        let length = if i % 10 == 0 { 100 } else { 5 };
        stood.extend(round(
            program.pid(),
            &mut dice,
            Duration::from_millis(length),
        ));
    }
    assert_eq!(stood.len(), ROUNDS as usize, "{}", program.output());
    // What can be seen of it is as before.
    assert_eq!(program.status("SigCgt"), before);
    assert!(!program.has_monitor());
    // It is told to come to its end.
    let pid = rustix::process::Pid::from_raw(program.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = program.wait();
    assert!(status.success(), "{status}: {}", program.output());
    assert!(
        program.output().ends_with("all is well\n"),
        "{}",
        program.output()
    );
    stood.sort_unstable();
    eprintln!(
        "it stood still for {:?} (median), {:?}",
        stood[25], stood[49]
    );
}

/// A program that becomes another one while the monitor comes, is there, or leaves.
#[test]
fn what_executes_itself_does_not_notice() {
    let mut dice = Dice(seed::seed("what executes itself", 5));
    let command = built("attached_to");
    let mut program = Program::start(Command::new(command).args(["execs", "40"]));
    let mut count = 0;
    while !program.has_ended() {
        dice.pause(5000);
        let length = Duration::from_micros(dice.roll(2000));
        count += u32::from(round(program.pid(), &mut dice, length).is_some());
    }
    let status = program.wait();
    assert!(status.success(), "attached to {count} times: {status}");
    assert!(program.output().ends_with("all is well\n"), "{count}");
    assert!(count > 0);
}

/// A program that ends in the middle of it ends as it would have, and nobody waits for it.
#[test]
fn what_ends_meanwhile_has_ended() {
    let mut dice = Dice(seed::seed("what ends meanwhile", 9));
    for number in 0..60 {
        let length = dice.roll(8000).to_string();
        let mut program =
            Program::start(Command::new(built("attached_to")).args(["ends", &length]));
        dice.pause(4000);
        let start = Instant::now();
        round(program.pid(), &mut dice, Duration::from_micros(500));
        let status = program.wait();
        assert!(status.success(), "{number}: {length} us: {status}");
        assert!(start.elapsed() < Duration::from_secs(20), "{number}");
    }
}

/// Several attachments of one process have nothing to do with each other.
#[test]
fn attachments_beside_each_other() {
    let mut programs: Vec<Program> = (0..3)
        .map(|_| Program::start(Command::new("sleep").arg("1000")))
        .collect();
    let attach = |program: &Program| agent::attach(&[program.pid()]).unwrap();
    let mut attachments: Vec<Attachment> = programs.iter().map(attach).collect();
    // The last that came goes first: its thread's list of locks is as before then.
    while let Some(last) = attachments.pop() {
        for attachment in attachments.iter().chain([&last]) {
            halt_for(attachment, Duration::from_millis(1));
        }
        last.detach().unwrap();
    }
    for program in &mut programs {
        assert!(!program.has_ended() && !program.has_monitor());
    }
}

/// Waits are as long as they were asked to be.
#[test]
fn time_limits_do_not_notice() {
    let mut dice = Dice(seed::seed("time limits", 11));
    let mut program = Program::start(Command::new(built("time_limits")).args(["4", "alone"]));
    let count = attach_at_random(&mut program, &mut dice);
    let status = program.wait();
    assert!(status.success(), "attached to {count} times: {status}");
    assert_eq!(program.output(), expected("time_limits"));
}

/// What cannot be is refused, with the way out, and nothing has happened.
#[test]
fn what_cannot_be_is_refused() {
    let refused = |pid: i32| match agent::attach(&[pid]) {
        Err(agent::Error::Refused(refusal)) => refusal,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    };
    assert!(matches!(refused(i32::MAX - 1), Refusal::NoProcess(_)));
    // Stopped by somebody else.
    let mut program = Program::start(Command::new("sleep").arg("1000"));
    let pid = rustix::process::Pid::from_raw(program.pid()).unwrap();
    let stop = rustix::process::Signal::STOP;
    rustix::process::kill_process(pid, stop).unwrap();
    let start = Instant::now();
    while !program.status("State").contains('T') && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    let refusal = refused(program.pid());
    assert!(matches!(refusal, Refusal::Suspended { .. }), "{refusal}");
    assert!(refusal.hint().contains("--observe"));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    // Twice.
    let first = agent::attach(&[program.pid()]).unwrap();
    let refusal = refused(program.pid());
    assert!(matches!(refusal, Refusal::InUse { .. }), "{refusal}");
    first.detach().unwrap();
    assert!(!program.has_ended());
    // A filter on its calls.
    let filtered = Program::start(Command::new(built("attached_to")).arg("filtered"));
    filtered.await_output("filtered");
    let refusal = refused(filtered.pid());
    assert!(matches!(refusal, Refusal::Filtered { .. }), "{refusal}");
}

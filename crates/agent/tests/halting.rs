//! Programs that run under the agent, unrecorded, and are halted at random: they
//! do what they do without, and see nothing of it.
//!
//! `MW_SEED` says when they are halted.
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

use agent::control::{Answer, Client, Request};
use agent::halting::{Halted, State, Stop};

/// Far more than anything takes, on a loaded machine too.
const LIMIT: Duration = Duration::from_secs(120);

/// Not a test: the agent, in a process of its own, which a test starts.
#[test]
fn be_the_agent() {
    let Some(words) = std::env::var_os("MW_TEST_RUN") else {
        return;
    };
    let command = ["/bin/sh".into(), "-c".into(), words];
    let ended = agent::run(&command, Path::new("/bin/sh"), None);
    std::process::exit(ended.map_or(125, |ended| ended.status));
}

/// A program under an agent.
struct Live {
    agent: Child,
    dir: tempfile::TempDir,
}

impl Live {
    fn start(command: &str) -> Live {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let agent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "be_the_agent", "--nocapture"])
            .env("MW_TEST_RUN", format!("exec >{} {command}", out.display()))
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Live { agent, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where its agent has its socket: in its own temporary directory, unless the
    /// user has one for that.
    fn client(&self) -> Client {
        let file = format!("{}.sock", self.agent.id());
        let user = rustix::process::geteuid().as_raw();
        let dir = match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("meanwhile"),
            _ => self.path(&format!("meanwhile-{user}")),
        };
        wait_for("the agent", || Client::connect(&dir.join(&file)).ok())
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.path("out")).unwrap_or_default()
    }

    fn has_ended(&mut self) -> Option<i32> {
        let status = self.agent.try_wait().unwrap()?;
        Some(status.code().unwrap_or(-1))
    }

    fn wait(&mut self) -> i32 {
        wait_for("the program's end", || self.has_ended())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // What it runs ends with it: nothing of a test that failed goes on.
        for pid in agent::program_of(self.agent.id() as i32) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
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
}

fn halt(client: &mut Client) -> Halted {
    let request = Request::Halt {
        limit_ms: Some(20_000),
        keep_ms: None,
        overrides: false,
    };
    match client.ask(&request).unwrap() {
        Answer::Halted(halted) => halted,
        other => panic!("{other:?}"),
    }
}

fn resume(client: &mut Client) -> u64 {
    match client.ask(&Request::Resume).unwrap() {
        Answer::Resumed { length_ns } => length_ns,
        other => panic!("{other:?}"),
    }
}

/// The test programs, built once.
fn program(name: &str) -> String {
    use std::sync::OnceLock;
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let out = BUILT.get_or_init(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("halted"));
    std::fs::create_dir_all(out).unwrap();
    let lock = std::fs::File::create(out.join(".lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let programs = root.join("tests/programs");
    let status = Command::new(programs.join("build"))
        .arg("--compile")
        .arg(programs.join(format!("c/{name}.c")))
        .arg(out.join(name))
        .status()
        .unwrap();
    assert!(status.success(), "{name} does not build");
    out.join(name).to_str().unwrap().to_string()
}

/// What it prints.
fn expected(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let path = root.join(format!("tests/programs/expected/{name}.txt"));
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Halts a program again and again until it has ended; how often.
fn halt_at_random(live: &mut Live, dice: &mut Dice) -> u32 {
    let mut client = live.client();
    let mut count = 0;
    while live.has_ended().is_none() {
        std::thread::sleep(Duration::from_micros(dice.roll(3000)));
        let Ok(Answer::Halted(halted)) = client.ask(&Request::Halt {
            limit_ms: Some(20_000),
            keep_ms: None,
            overrides: false,
        }) else {
            break;
        };
        assert!(!halted.is_partial, "{:?}", halted.stops);
        std::thread::sleep(Duration::from_micros(dice.roll(2000)));
        if client.ask(&Request::Resume).is_err() {
            break;
        }
        count += 1;
    }
    count
}

/// Programs of all kinds, each halted many times: what they print is what they
/// print without.
fn is_unchanged(names: &[&str]) {
    let mut dice = Dice(seed::seed("programs that are halted", 7));
    for name in names {
        let mut live = Live::start(&program(name));
        let count = halt_at_random(&mut live, &mut dice);
        assert_eq!(live.wait(), 0, "{name}, halted {count} times");
        assert_eq!(live.output(), expected(name), "{name}");
        eprintln!("{name}: halted {count} times");
    }
}

#[test]
fn threads_do_not_notice() {
    is_unchanged(&[
        "threads_mutex",
        "threads_many",
        "atomics",
        "spinlock",
        "robust_locks",
    ]);
}

#[test]
fn processes_do_not_notice() {
    is_unchanged(&[
        "fork_exec_wait",
        "vfork_fail",
        "raw_clone",
        "thread_exit_group",
        "sigchld",
    ]);
}

#[test]
fn channels_do_not_notice() {
    is_unchanged(&[
        "pipes",
        "sockets_unix",
        "sockets_inet",
        "epoll_poll_select",
        "tcp_pingpong",
    ]);
}

#[test]
fn signals_do_not_notice() {
    is_unchanged(&[
        "signals_basic",
        "signals_fault",
        "signal_frames",
        "signalfd_eventfd_timerfd",
    ]);
}

/// Halts far longer than any of its limits may be off, which is more than a machine with too
/// much to do takes from it.
fn halted_for_long(rounds: u32, is_real: bool) -> (i32, String) {
    const SLACK_MS: u64 = 2500;
    const HALT_MS: u64 = 3000;
    let command = format!("{} {rounds} {SLACK_MS}", program("time_limits"));
    let mut live = Live::start(&command);
    let mut client = live.client();
    let on = is_real;
    client.ask(&Request::RealTime { on }).unwrap();
    let mut dice = Dice(seed::seed("halted for long", 11));
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(20 + dice.roll(60)));
        if live.has_ended().is_some() {
            break;
        }
        let Ok(Answer::Halted(halted)) = client.ask(&Request::Halt {
            limit_ms: Some(20_000),
            keep_ms: None,
            overrides: false,
        }) else {
            break;
        };
        assert!(!halted.is_partial, "{:?}", halted.stops);
        std::thread::sleep(Duration::from_millis(HALT_MS));
        // Who sees the time ends at once.
        let Ok(Answer::Resumed { length_ns }) = client.ask(&Request::Resume) else {
            break;
        };
        assert!(length_ns >= (HALT_MS - 100) * 1_000_000, "{length_ns}");
    }
    (live.wait(), live.output())
}

#[test]
fn no_clock_and_no_time_limit_shows_a_halt() {
    let (status, output) = halted_for_long(6, false);
    assert_eq!((status, output), (0, expected("time_limits")));
}

/// The test before can fail.
#[test]
fn with_real_time_they_do() {
    assert_eq!(halted_for_long(6, true).0, 1);
}

/// A thread that is about to set a timer while another has already stopped the timers
/// of its process, or to take one back.
#[test]
fn timers_that_are_set_while_a_halt_comes_stand_still() {
    let mut live = Live::start(&format!("{} 1500", program("timers_set")));
    let mut client = live.client();
    let mut dice = Dice(seed::seed("timers that are set", 13));
    let mut count = 0;
    while live.has_ended().is_none() {
        std::thread::sleep(Duration::from_micros(2000 + dice.roll(10_000)));
        let Ok(Answer::Halted(halted)) = client.ask(&Request::Halt {
            limit_ms: Some(20_000),
            keep_ms: None,
            overrides: false,
        }) else {
            break;
        };
        assert!(!halted.is_partial, "{:?}", halted.stops);
        std::thread::sleep(Duration::from_millis(20));
        if client.ask(&Request::Resume).is_err() {
            break;
        }
        count += 1;
    }
    assert_eq!(live.wait(), 0, "halted {count} times");
    assert_eq!(live.output(), expected("timers_set"));
    eprintln!("halted {count} times");
}

/// What is halted does nothing, and what is exempt goes on.
#[test]
fn only_what_is_exempt_goes_on() {
    let busy = "while :; do echo >>$TMPDIR/";
    let script = format!("sh -c '({busy}first; done) & {busy}second; done'");
    let mut live = Live::start(&script);
    let mut client = live.client();
    let count = |name: &str| Some(std::fs::metadata(live.path(name)).ok()?.len());
    wait_for("both", || count("first").and(count("second")));
    halt(&mut client);
    let still = (count("first"), count("second"));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((count("first"), count("second")), still);
    let Answer::Status(status) = client.ask(&Request::Status).unwrap() else {
        panic!("no status");
    };
    assert!(status.is_halted && !status.is_recording);
    let last = status.threads.iter().map(|t| t.process).max().unwrap();
    client
        .ask(&Request::Exempt {
            who: agent::control::Who::Process(last),
            on: true,
        })
        .unwrap();
    let moved = || {
        let now = (count("first"), count("second"));
        (now != still).then_some(now)
    };
    let now = wait_for("the one that is exempt", moved);
    assert!(now.0 == still.0 || now.1 == still.1, "{now:?} {still:?}");
    resume(&mut client);
    wait_for("both again", || {
        let now = (count("first"), count("second"));
        (now.0 > still.0 && now.1 > still.1).then_some(())
    });
    halt(&mut client);
    kill(&status.threads);
    resume(&mut client);
    live.wait();
}

/// Nobody stays halted whose agent, or whose debugger, is gone.
#[test]
fn who_is_left_alone_goes_on() {
    let busy = "sh -c 'while :; do echo >>$TMPDIR/count; done'";
    for kills_agent in [true, false] {
        let mut live = Live::start(busy);
        let mut client = live.client();
        let file = live.path("count");
        let count = || Some(std::fs::metadata(&file).ok()?.len());
        wait_for("the program", count);
        let request = Request::Halt {
            limit_ms: Some(20_000),
            keep_ms: Some(100),
            overrides: false,
        };
        let Answer::Halted(halted) = client.ask(&request).unwrap() else {
            panic!("not halted");
        };
        assert!(!halted.is_partial);
        let still = count().unwrap();
        if kills_agent {
            live.agent.kill().unwrap();
            live.agent.wait().unwrap();
        } else {
            drop(client);
        }
        wait_for("the program to go on", || {
            count().is_some_and(|now| now > still + 1).then_some(())
        });
        kill(&halted.stops);
    }
}

fn kill(threads: &[Stop]) {
    for thread in threads {
        let pid = rustix::process::Pid::from_raw(thread.pid as i32).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// What `counted_channels` counts: for each channel six numbers.
fn counts(file: &Path) -> Vec<[u64; 6]> {
    let bytes = std::fs::read(file).unwrap_or_default();
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    words
        .chunks_exact(6)
        .map(|six| six.try_into().unwrap())
        .collect()
}

/// Every halted state is consistent: nothing was received that was not sent, and
/// what is under way is what the channels hold. `MW_HALTS` says how often.
#[test]
fn what_is_under_way_is_in_the_channels() {
    let halts = std::env::var("MW_HALTS").map_or(200, |text| text.parse().unwrap());
    let seed = seed::seed("channels", 5);
    let name = program("counted_channels");
    let mut live = Live::start(&format!("{name} $TMPDIR/counts 600000 {seed}"));
    let mut client = live.client();
    let file = live.path("counts");
    wait_for("bytes", || {
        let counts = counts(&file);
        (!counts.is_empty() && counts.iter().all(|count| count[5] > 0)).then_some(())
    });
    let mut dice = Dice(seed);
    let (mut exact, mut filled) = (0, 0);
    for _ in 0..halts {
        std::thread::sleep(Duration::from_micros(dice.roll(3000)));
        let halted = halt(&mut client);
        assert!(!halted.is_partial, "{:?}", halted.stops);
        let Answer::Channels { channels } = client.ask(&Request::Channels).unwrap() else {
            panic!("no channels");
        };
        for [inode, other, begun, sent, asked, received] in counts(&file) {
            let end = |inode: u64| channels.iter().find(|channel| channel.inode == inode);
            let unread =
                end(inode).map_or(0, |end| end.unread) + end(other).map_or(0, |end| end.unsent);
            // Who is in the middle of a call has sent, or received, some of it.
            assert!(received <= begun, "received before it was sent");
            let (least, most) = (sent.saturating_sub(received + asked), begun - received);
            assert!(
                (least..=most).contains(&unread),
                "{unread} bytes, not {least} to {most}: {begun} {sent} {asked} {received}"
            );
            exact += u32::from(least == most);
            filled += u32::from(unread > 0);
        }
        resume(&mut client);
    }
    eprintln!("{exact} channels counted exactly, {filled} held something");
    assert!(exact > halts / 2 && filled > 0);
    let Answer::Status(status) = client.ask(&Request::Status).unwrap() else {
        panic!("no status");
    };
    kill(&status.threads);
    live.wait();
}

/// Another debugger is told; the program itself is not listened to.
#[test]
fn one_debugger_at_a_time_and_never_the_program() {
    let live = Live::start("sleep 1000");
    let mut first = live.client();
    let mut second = live.client();
    halt(&mut first);
    let refused = second.ask(&Request::Resume).unwrap();
    assert!(matches!(refused, Answer::Refused { .. }), "{refused:?}");
    let taken = second.ask(&Request::Halt {
        limit_ms: None,
        keep_ms: None,
        overrides: true,
    });
    assert!(matches!(taken.unwrap(), Answer::Halted(_)));
    resume(&mut second);
}

/// Where they stopped is told, in order.
#[test]
fn a_halt_tells_who_did_what() {
    let mut live = Live::start("sh -c 'sleep 1000 & while :; do :; done'");
    let mut client = live.client();
    let halted = wait_for("both", || {
        let halted = halt(&mut client);
        if halted.stops.iter().any(|stop| stop.call == Some(230)) {
            return Some(halted);
        }
        resume(&mut client);
        None
    });
    let states: Vec<State> = halted.stops.iter().map(|stop| stop.state).collect();
    assert!(states.contains(&State::Call), "{states:?}");
    assert!(
        states.contains(&State::Computed) || states.contains(&State::Edge),
        "{states:?}"
    );
    let times: Vec<u64> = halted.stops.iter().filter_map(|s| s.after_ns).collect();
    assert!(times.is_sorted());
    kill(&halted.stops);
    resume(&mut client);
    live.wait();
}

//! Records each of the test programs (`tests/programs`) and looks at the
//! recording: the program prints and returns what it does without `mw`, the
//! recording is sound, and what the program did is in it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::arch::x86_64::{__cpuid, __cpuid_count};

use harness::programs::{self, program, script};
use harness::{Event, Recorded, Scratch};

/// One test for each program: what its recording must hold.
macro_rules! programs {
    ($($(#[$attribute:meta])* $name:ident: $check:expr,)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                check(stringify!($name), &[&program(stringify!($name))], $check);
            }
        )*
        const PROGRAMS: &[&str] = &[$(stringify!($name)),*];
    };
}

/// One test for each program that is not C: what it needs, its command, and
/// what its recording must hold.
macro_rules! languages {
    ($($test:ident, $name:literal, $tool:literal, $command:expr, $check:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let tool = tool!($tool);
                let command: fn(String) -> Vec<String> = $command;
                let command = command(tool);
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                check($name, &words, $check);
            }
        )*
        const LANGUAGES: &[&str] = &[$($name),*];
    };
}

fn check(name: &str, command: &[&str], check: fn(&Recorded)) {
    let scratch = Scratch::new(name);
    check(&programs::record(&scratch, name, command));
}

/// A program that is only expected to have one process with one thread.
fn one_thread(r: &Recorded) {
    assert_eq!(r.info()["processes"], 1);
    assert_eq!(r.info()["threads"], 1);
}

/// Data that goes through something whose name has this in it.
fn moves(kind: &str, through: &str) -> impl Fn(&Event) -> bool {
    move |e| e.kind() == kind && e.succeeded() && e.file("fd").contains(through)
}

programs! {
    counted_channels: one_thread,
    time_limits: |r| {
        assert!(r.info()["threads"].as_u64() > Some(20));
        r.has("a limit", |e| e.call() == "clock_nanosleep");
    },
    timers_set: |r| {
        for call in ["timerfd_settime", "timer_gettime", "getitimer"] {
            r.has_many(2, call, |e| e.call() == call && e.succeeded());
        }
    },
    raw_clone: |r| {
        r.has_many(2, "threads and processes in one memory", |e| e.call() == "clone" && e.succeeded());
    },
    fork_exec_wait: |r| {
        // The program's own table of statuses, each in a child of its own.
        for status in [1, 42, 255, 137, 143, 134] {
            assert!(r.ended_with(status) > 0, "{status}: {}", r.ask(&["ps"]));
        }
        let first = r.processes()[0].name();
        let child = r.processes().iter().find(|p| p.command().contains(&"two words"));
        let child = child.unwrap();
        assert_eq!(child.parent(), Some(first));
        assert_eq!(child.command()[..2], ["zeroth name", "args"]);
        assert_eq!(child.status(), Some(33));
        r.has_many(5, "execs", |e| e.call() == "begin" && e.word("how") == "exec");
        r.calls(&["wait4", "waitid", "clone", "pidfd_open"]);
        r.has("a wait that saw a stop", |e| {
            e.arg("status")[0].as_str().is_some_and(|status| status.contains("WIFSTOPPED"))
        });
        r.has("an exec by a thread", |e| e.kind() == "exec" && e.thread() != "main-0");
    },
    vfork_fail: |r| {
        let vforked = r.processes().iter().filter(|p| p.began() == "vfork").count();
        assert!(vforked >= 20, "{vforked}");
        r.has("a failing exec", |e| e.failed("execve", "ENOENT"));
        assert!(r.ended_with(127) > 0);
        let shell = r.process("sh-0");
        assert_eq!(shell.began(), "vfork");
        r.has("the shell's image", |e| {
            e.process() == "sh-0" && e.call() == "begin" && e.word("exe").ends_with("sh")
        });
    },
    daemonize: |r| {
        let [first, middle, daemon] = r.processes() else {
            panic!("{}", r.ask(&["ps"]));
        };
        assert_eq!(middle.parent(), Some(first.name()));
        assert_eq!(daemon.parent(), Some(middle.name()));
        r.calls(&["setsid"]);
        r.has("the daemon's sleep", |e| e.kind() == "sleep" && e.process() == daemon.name());
        // The recording lasts as long as the daemon, not as its parent.
        let end = |p: &harness::recorded::Process| p.number("start_ns") + p.number("duration_ns");
        assert!(end(daemon) > end(first) + 100_000_000);
        assert!(r.outcome.took.as_millis() >= 200);
    },
    thread_exit_group: |r| {
        r.has_many(20, "threads", |e| e.child_thread().is_some());
        for signal in ["SIGABRT", "SIGTERM"] {
            assert!(r.processes().iter().any(|p| p.signal() == Some(signal)));
        }
        // What was blocked when its process ended never returned.
        let ended: Vec<&str> = r.all(|e| e.phase() == "end").filter_map(Event::started).collect();
        r.has("a read without an end", |e| {
            e.call() == "read" && e.phase() == "start" && !ended.contains(&e.name())
        });
    },
    sigkill: |r| {
        let killed = r.processes().iter().filter(|p| p.signal() == Some("SIGKILL")).count();
        assert!(killed >= 8, "{}", r.ask(&["ps"]));
        r.has_many(5, "kills", |e| e.call() == "kill" && e.word("sig") == "SIGKILL");
        assert!(r.ended_with(137) == killed);
    },
    sigchld: |r| {
        r.has_many(5, "SIGCHLD", |e| e.delivers("SIGCHLD"));
        r.has("who it was", |e| {
            e.delivers("SIGCHLD") && e.arg("siginfo")["si_code"] == "CLD_EXITED"
        });
        assert!(r.processes().len() > 20);
    },
    ptys: |r| {
        for signal in ["SIGINT", "SIGWINCH", "SIGHUP"] {
            r.has(signal, |e| e.delivers(signal));
        }
        r.has("the terminal by name", moves("send", "/dev/ptmx"));
        r.has("the other side", moves("recv", "/dev/pts/"));
    },
    exit_42: |r| {
        one_thread(r);
        assert_eq!(r.processes()[0].status(), Some(42));
        r.has("exit_group(42)", |e| e.call() == "exit_group" && e.arg("status") == 42);
    },
    crash_segv: |r| {
        let fault = r.find("the fault", |e| e.delivers("SIGSEGV"));
        assert_eq!(fault.word("at"), "fault");
        assert_eq!(fault.arg("siginfo")["si_code"], "SEGV_MAPERR");
        assert_eq!(r.processes()[0].signal(), Some("SIGSEGV"));
    },
    crash_abort: |r| {
        r.has("the signal", |e| e.delivers("SIGABRT") && e.thread() != "main-0");
        assert_eq!(r.processes()[0].signal(), Some("SIGABRT"));
    },

    robust_locks: |r| {
        assert!(r.processes().iter().any(|p| p.signal() == Some("SIGTERM")));
        assert!(r.processes().iter().any(|p| p.signal() == Some("SIGSEGV")));
    },
    futexes: |r| {
        r.has_many(10, "waits for a lock that lends priority", |e| {
            e.call() == "futex" && e.word("op").contains("LOCK_PI")
        });
    },
    threads_mutex: |r| {
        r.has_many(30, "threads", |e| e.child_thread().is_some());
        r.has_many(30, "first events of threads", |e| e.call() == "thread-start");
        r.has_many(10, "waits on a lock", |e| e.kind() == "lock" && e.phase() == "end");
        r.has_many(10, "wakes", |e| e.kind() == "wake");
        r.has("a wait that timed out", |e| e.failed("futex", "ETIMEDOUT"));
    },
    atomics: |r| assert!(r.threads()["atomics-0"] >= 4),
    spinlock: |r| {
        assert!(r.threads()["spinlock-0"] >= 3);
        r.has_many(1, "preemptions", |e| e.call() == "preempt");
        assert!(r.info()["preemptions"].as_u64().unwrap() > 0);
    },
    interrupted: |r| {
        r.has_many(10, "preemptions", |e| e.call() == "preempt");
        r.has_many(10, "signals", |e| e.delivers("SIGALRM"));
    },
    copies: |r| {
        r.has_many(5, "preemptions", |e| e.call() == "preempt");
    },
    rounding: |r| {
        assert_eq!(r.info()["threads"], 4);
        r.has("a signal", |e| e.delivers("SIGUSR1"));
    },
    threads_many: |r| {
        assert_eq!(r.count(|e| e.child_thread().is_some()), 200);
        assert_eq!(r.info()["threads"], 201);
    },
    spam_alloc: |r| {
        assert_eq!(r.threads()["spam_alloc-0"], 5);
        r.calls(&["mmap", "munmap", "brk"]);
    },
    shared_memory: |r| {
        r.calls(&["memfd_create", "shmget", "shmat", "semtimedop", "sendmsg", "recvmsg"]);
        r.has("a memfd by name", |e| e.file("result") == "/memfd:shared");
        r.has("memory shared with a file", |e| {
            e.call() == "mmap" && e.word("flags").contains("MAP_SHARED") && !e.file("fd").is_empty()
        });
        assert!(r.processes().len() >= 5);
    },

    shared_views: |r| {
        r.has_many(1500, "mappings", |e| e.call() == "mmap" && e.succeeded());
        r.has_many(5, "moves", |e| e.call() == "mremap" && e.succeeded());
    },
    shared_bulk: |r| {
        assert_eq!(r.processes().len(), 4);
        r.has("memory that is shared", |e| e.call() == "mmap" && e.word("flags").contains("MAP_SHARED"));
    },

    shared_execs: |r| {
        assert_eq!(r.processes().len(), 19);
        let images: u64 = r.processes().iter().map(|p| p.number("images")).sum();
        assert!(images >= 7, "{images}");
    },

    signal_frames: |r| {
        r.has_many(3, "what comes in place of a signal", |e| e.delivers("SIGSEGV"));
    },
    signals_basic: |r| {
        for signal in ["SIGUSR1", "SIGUSR2"] {
            r.has(signal, |e| e.delivers(signal));
        }
        r.has("a queued value", |e| {
            e.call() == "signal" && e.arg("siginfo")["si_code"] == "SI_QUEUE"
        });
        r.has("a call that was interrupted", |e| e.error() == Some("EINTR"));
        r.calls(&["rt_sigtimedwait", "sigaltstack"]);
        r.has_many(30, "returns from handlers", |e| e.call() == "rt_sigreturn");
    },
    signals_async: |r| {
        r.has_many(10, "signals in computation", |e| {
            e.call() == "signal" && e.word("at") == "preempted"
        });
        r.has("an alarm", |e| e.delivers("SIGALRM"));
        r.calls(&["setitimer", "timer_create", "timer_settime", "alarm"]);
    },
    signals_fault: |r| {
        for signal in ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"] {
            r.has(signal, |e| e.delivers(signal) && e.word("at") == "fault");
        }
        for signal in ["SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXCPU"] {
            assert!(r.processes().iter().any(|p| p.signal() == Some(signal)), "{signal}");
        }
    },
    signalfd_eventfd_timerfd: |r| {
        for kind in ["signalfd", "eventfd", "timerfd"] {
            r.has(kind, |e| e.call() == "read" && e.file("fd").contains(kind));
        }
        r.calls(&["signalfd4", "timerfd_settime", "epoll_wait", "pidfd_open"]);
    },

    sockets_inet: |r| {
        let accept = r.find("an accept", |e| e.kind() == "accept" && e.succeeded());
        let server = accept.file("result");
        assert!(server.starts_with("127.0.0.1:"), "{server}");
        let (here, there) = server.split_once("->").unwrap();
        let client = format!("{there}->{here}");
        r.has("its connect", |e| e.kind() == "connect" && e.file("fd") == client);
        r.has("what the client sent", moves("send", &client));
        r.has("what the server received", moves("recv", server));
        assert_eq!(accept.arg("addr")["sa_family"], "AF_INET");
        r.has("an IPv6 address", |e| e.file("fd").starts_with("[::1]:"));
        let udp = r.find("a datagram", |e| e.call() == "recvmmsg" && e.succeeded());
        assert!(udp.result() > Some(0));
        r.has("a refused connection", |e| e.failed("connect", "ECONNREFUSED"));
        r.calls(&["bind", "listen", "getsockopt", "setsockopt", "shutdown", "sendmmsg"]);
    },
    sockets_unix: |r| {
        r.has("a named socket", |e| e.call() == "bind" && e.file("fd").starts_with("unix:/"));
        r.has("an abstract one", |e| e.call() == "bind" && e.file("fd").starts_with("unix:@"));
        r.has("descriptors in a message", |e| {
            e.call() == "recvmsg" && e.json().to_string().contains("SCM_RIGHTS")
        });
        r.has("netlink", |e| e.file("result") == "netlink");
        r.calls(&["socketpair", "connect", "accept", "sendmsg", "recvmsg", "sendto"]);
    },
    pipes: |r| {
        r.calls(&["splice", "tee", "vmsplice", "readv", "writev", "preadv2"]);
        r.has("a full pipe", |e| e.failed("write", "EAGAIN"));
        r.has("a pipe without a reader", |e| e.failed("write", "EPIPE"));
        r.has("and its signal", |e| e.delivers("SIGPIPE"));
        assert!(r.bytes(|e| e.call() == "read") >= 100_000);
        r.has("what vmsplice read", |e| {
            e.call() == "vmsplice" && e.returned() && e.json().to_string().contains("BACK!")
        });
    },
    epoll_poll_select: |r| {
        r.calls(&["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "pselect6"]);
        for (call, waits_for) in [("poll", "POLLIN"), ("ppoll", "POLLIN"), ("pselect6", "\"readfds\":[")] {
            r.has("what is waited for, at the start", |e| {
                e.call() == call && e.phase() == "start" && e.json().to_string().contains(waits_for)
            });
        }
        r.has("a wait in two halves", |e| {
            e.call() == "epoll_wait" && e.phase() == "end" && e.started().is_some()
        });
    },
    message_queues: |r| {
        r.has_many(50, "messages", |e| e.call() == "msgsnd" && e.succeeded());
        r.has_many(50, "and back", |e| e.call() == "msgrcv" && e.succeeded());
    },
    pipe_pingpong: |r| {
        let rounds = 5000;
        r.has_many(rounds * 2, "writes", |e| e.kind() == "send" && e.succeeded());
        r.has_many(rounds * 2, "reads", |e| e.kind() == "recv" && e.succeeded());
        // Both halves of what waits.
        let starts = r.count(|e| e.call() == "read" && e.phase() == "start");
        let ends = r.count(|e| e.call() == "read" && e.phase() == "end");
        assert_eq!(starts, ends);
    },
    tcp_pingpong: |r| {
        r.has_many(10_000, "sends", |e| e.kind() == "send" && e.succeeded());
        r.has("64 bytes", |e| e.kind() == "recv" && e.result() == Some(64));
    },

    files: |r| {
        r.calls(&["rename", "flock", "copy_file_range", "fallocate", "fsetxattr", "getdents64"]);
        r.has("a file by name", |e| e.kind() == "file" && e.file("fd").ends_with("/data"));
        r.has("a file that is not there", |e| e.failed("openat", "ENOENT"));
        r.has("inotify", |e| e.call() == "inotify_add_watch" && e.succeeded());
    },
    mmap_files: |r| {
        r.calls(&["mmap", "mremap", "mprotect", "madvise", "munmap", "msync", "memfd_create"]);
        r.has("a library that was loaded", |e| {
            e.call() == "mmap" && e.word("prot").contains("PROT_EXEC") && e.file("fd").contains(".so")
        });
        assert!(r.info()["files"].as_u64().unwrap() >= 4);
    },
    mmap_growth: |r| {
        r.calls(&["mmap", "mremap", "madvise", "ftruncate", "truncate", "fallocate", "writev"]);
        r.has_many(20, "accesses behind the end of a file", |e| e.delivers("SIGBUS"));
    },
    time: |r| {
        for clock in ["CLOCK_REALTIME", "CLOCK_MONOTONIC", "CLOCK_PROCESS_CPUTIME_ID"] {
            r.has(clock, |e| e.call() == "clock_gettime" && e.word("clock") == clock);
        }
        r.has("a sleep in two halves", |e| e.kind() == "sleep" && e.phase() == "end");
        r.calls(&["getrandom"]);
    },
    rdtsc: |r| {
        r.has_many(1000, "reads of the counter", |e| e.call() == "tsc");
        r.has_many(100, "answers", |e| e.call() == "cpuid" && e.word("leaf") == "0x1");
        // What cannot be seen is said.
        assert!(r.info()["not_seen"].to_string().contains("rdtsc"), "{}", r.info());
    },
    processor_answers: |r| {
        r.has_many(10, "questions to each core", |e| e.call() == "cpuid");
        r.has_many(10, "questions to each core", |e| e.call() == "lsl");
        // Where the processor has them: as programs find out, since /proc/cpuinfo leaves out what the
        // kernel does not trust (rdseed of some AMD processors).
        let (first, extended) = (__cpuid(1), __cpuid_count(7, 0));
        for (name, has_it) in [
            ("rdrand", first.ecx & 1 << 30 != 0),
            ("rdseed", extended.ebx & 1 << 18 != 0),
            ("rdpid", extended.ecx & 1 << 22 != 0),
        ] {
            assert_eq!(r.count(|e| e.call() == name) > 4, has_it, "{name}");
        }
    },
    moved_code: |r| {
        r.has_many(30, "questions to the processor", |e| e.call() == "cpuid");
        r.has_many(30, "reads of the counter", |e| e.call() == "tsc");
        r.has_many(2, "moves", |e| e.call() == "mremap" && e.result().is_some_and(|at| at > 0));
    },
    netfilter: |r| {
        if harness::is_root() {
            r.calls(&["unshare", "getsockopt"]);
        }
    },
    own_stops: |r| {
        assert_eq!(r.processes().len(), 9);
        // In two halves: others run between them.
        r.has_many(20, "calls that stop their process", |e| {
            matches!(e.call(), "kill" | "tgkill" | "tkill") && e.phase() == "start"
        });
    },
    own_killers: |r| {
        let kills = |e: &Event| matches!(e.call(), "kill" | "tgkill") && e.phase() == "start";
        r.has_many(4, "processes that kill themselves", kills);
    },
    waiting_calls: |r| {
        r.calls(&["recvmmsg", "epoll_wait", "poll", "msgrcv", "preadv2", "truncate"]);
        for call in ["close", "dup2", "close_range"] {
            r.has("one that waited", |e| e.call() == call && e.phase() == "end");
        }
    },
    served_files: |r| {
        // What the machine does not allow it leaves out.
        let did = |call: &str| r.count(|e| e.call() == call && e.result() == Some(0)) > 0;
        let waited = |calls: &[&str]| {
            for call in calls {
                r.has("one that waited", |e| e.call() == *call && e.phase() == "end");
            }
        };
        if did("fanotify_mark") {
            waited(&["read", "pread64", "sendfile", "close"]);
        }
        if did("mount") {
            waited(&["newfstatat", "getdents64", "getxattr", "ftruncate", "rename", "close_range"]);
            r.has("the script's image", |e| e.call() == "begin" && e.word("how") == "exec");
        } else {
            assert!(!harness::is_root() || !std::path::Path::new("/dev/fuse").exists());
        }
    },
    handed_device: |r| {
        // What the machine does not allow it leaves out.
        let mounts = |kind: &str| {
            let is_it = |e: &Event| e.call() == "mount" && e.word("fstype") == kind;
            r.count(|e| is_it(e) && e.phase() != "end")
        };
        let may = |path: &str| harness::is_root() && std::path::Path::new(path).exists();
        assert_eq!(mounts("fuse"), usize::from(may("/dev/fuse")));
        assert_eq!(mounts("autofs"), usize::from(harness::is_root()));
    },
    threads_yield: |r| assert_eq!(r.info()["threads"], 259),
    odd_mappings: |r| r.has_many(8, "failed mappings", |e| e.failed("mmap", "ENODEV")),
    own_descriptors: |r| {
        // Each of those that it started is there with its own image.
        let begun = |e: &Event| e.call() == "begin" && e.word("how") == "exec";
        r.has_many(5, "images", begun);
        for how in ["0", "1", "2", "3", "by posix_spawn"] {
            let is_it = |p: &&harness::recorded::Process| p.command().last() == Some(&how);
            let process = r.processes().iter().find(is_it);
            let name = process.unwrap_or_else(|| panic!("{how}: {}", r.ask(&["ps"]))).name();
            r.has("what it says", |e| {
                e.process() == name && e.call() == "write" && e.holds("buf", "started")
            });
        }
    },
    first_of_namespace: |r| r.calls(&["unshare"]),
    cleared_words: |r| {
        let killed = r.processes().iter().filter(|p| p.signal() == Some("SIGKILL")).count();
        assert_eq!(killed, 3, "{}", r.ask(&["ps"]));
    },
    tid_address: |r| r.calls(&["prctl", "set_tid_address"]),
    requests: |r| {
        r.has("a question about a card", |e| e.call() == "ioctl" && e.word("request") == "SIOCETHTOOL");
        for refused in ["ioctl 0x000054f8", "/dev/kvm"] {
            assert!(r.notes().contains(refused), "{refused}: {}", r.notes());
        }
    },
    sparse_files: |r| {
        let files = std::fs::read_dir(r.dir.join("files")).unwrap().flatten();
        let blocks = |e: std::fs::DirEntry| {
            std::os::unix::fs::MetadataExt::blocks(&e.metadata().unwrap()) * 512
        };
        let size: u64 = files.map(blocks).sum();
        assert!(size < 64 << 20, "{size} bytes on disk");
    },
    changed_files: |r| {
        let files = std::fs::read_dir(r.dir.join("files")).unwrap().flatten();
        let blocks = |e: std::fs::DirEntry| {
            std::os::unix::fs::MetadataExt::blocks(&e.metadata().unwrap()) * 512
        };
        // Two copies in full, twenty changes to each.
        let size: u64 = files.map(blocks).sum();
        assert!(size < 128 << 20, "{size} bytes on disk");
    },
    relay: |r| assert_eq!(r.processes().len(), 102, "{}", r.ask(&["ps"])),
    reused_files: |r| {
        r.has_many(24, "views of files that are new", |e| {
            e.call() == "mmap" && e.succeeded() && e.word("flags") == "MAP_SHARED"
        });
    },
    written_by_others: |r| {
        r.has_many(100, "writes", |e| e.call() == "pwrite64" && e.succeeded());
    },
    moved_bytes: |r| {
        for call in ["copy_file_range", "sendfile", "splice"] {
            r.has(call, |e| e.call() == call && e.succeeded());
        }
    },
    behind_end: |r| r.has_many(5, "faults", |e| e.delivers("SIGBUS")),
    written_back: |r| r.has("a size that is too large", |e| e.failed("sched_setattr", "E2BIG")),
    random_device: |r| r.has("a random number", |e| {
        matches!(e.call(), "rdrand" | "rdseed" | "getrandom" | "read" | "getentropy")
    }),
    counter_traps: |r| {
        r.has_many(50, "reads of the counter", |e| e.call() == "tsc");
        r.has_many(3, "its own traps", |e| e.delivers("SIGILL"));
        r.has("an alarm", |e| e.delivers("SIGALRM"));
    },
    poked_memory: |r| {
        r.has("a write to its own memory", |e| e.call() == "pwrite64" && e.succeeded());
        r.has("a vector", |e| e.call() == "process_vm_writev" && e.succeeded());
    },
    odd_ioctls: |r| {
        r.calls(&["ioctl"]);
    },
    seccomp: |r| {
        r.has("a filter", |e| e.call() == "seccomp" && e.succeeded());
        r.has("a call that was not made", |e| e.failed("getppid", "EDOM"));
        assert!(r.processes().iter().any(|p| p.signal() == Some("SIGSYS")));
    },
    rights: |r| {
        r.calls(&["keyctl", "name_to_handle_at", "landlock_create_ruleset"]);
    },
    odd_calls: |r| {
        let all = r.find("GETALL", |e| e.call() == "semctl" && e.word("cmd") == "GETALL");
        assert!(all.json().to_string().contains("\\u0003"), "{}", all.json());
        r.has("an option", |e| e.failed("getsockopt", "ENOPROTOOPT"));
        // Not taken for the calls that have these numbers in the 64-bit table.
        assert_eq!(r.count(|e| e.call() == "getpid"), 6);
        assert_eq!(r.count(|e| e.failed("int80_90", "ENOSYS")), 1);
        assert_eq!(r.count(|e| e.call() == "writev" || e.call() == "chmod"), 0);
        for refused in ["int 0x80", "SO_GET_FILTER", "ZEROCOPY"] {
            assert!(r.notes().contains(refused), "{refused}: {}", r.notes());
        }
        let told = r.outcome.stderr.lines().filter(|line| line.contains("int 0x80")).count();
        assert_eq!(told, 1, "{}", r.outcome.stderr);
    },
    // It checks for itself what the monitor takes.
    memory_advice: |r| {
        r.has("a call that failed half way", |e| e.failed("mprotect", "EACCES"));
        r.has("advice that failed half way", |e| e.failed("madvise", "ENOMEM"));
    },
    memory_use: |r| r.has_many(60_000, "calls", |e| e.call() == "getppid"),
    huge_pages: |r| {
        // What the machine does not allow it leaves out.
        let had = |e: &Event| e.call() == "mmap" && e.word("flags").contains("HUGETLB") && e.error().is_none();
        let pool = "/proc/sys/vm/nr_overcommit_hugepages";
        let may = std::fs::OpenOptions::new().write(true).open(pool).is_ok();
        assert!(!may || r.count(had) == 2);
    },
    lock_memory: |r| r.calls(&["mlockall", "munlockall", "mlock", "munlock"]),
    misc_calls: |r| {
        r.has("io_uring refused", |e| e.failed("io_uring_setup", "ENOSYS"));
        r.has("an unknown call", |e| e.failed("syscall_9999", "ENOSYS"));
        r.has("one by no number", |e| e.failed("syscall_-1", "ENOSYS"));
        let notes = r.info()["notes"].to_string();
        assert!(notes.contains("io_uring_setup") && notes.contains("9999"), "{notes}");
        let warnings = r.outcome.stderr.lines().filter(|line| line.contains("9999")).count();
        assert_eq!(warnings, 1, "{}", r.outcome.stderr);
        r.has("a bad pointer", |e| e.error() == Some("EFAULT"));
    },
    raw_calls: |r| r.calls(&["time", "gettimeofday", "alarm", "signalfd"]),
    busy_syscalls: |r| r.has_many(100_000, "calls", Event::returned),

    static_hello: |r| {
        r.has("its thread", |e| e.child_thread().is_some());
        r.has("its child", |e| e.child().is_some());
        assert_eq!(r.count(|e| e.file("fd").contains(".so")), 0);
    },
    static_pie: |r| assert_eq!(r.count(|e| e.file("fd").contains(".so")), 0),
    nolibc: |r| {
        r.has("its handler", |e| e.delivers("SIGUSR1") || e.call() == "rt_sigreturn");
        r.calls(&["pipe2", "read", "write", "wait4"]);
    },
    deep_stack_tiny_altstack: |r| r.has_many(10, "threads", |e| e.child_thread().is_some()),
    stack_limits: |r| r.has_many(2, "faults", |e| e.delivers("SIGSEGV")),
    syscall_registers: |r| r.has_many(50, "calls", |e| e.call() == "getppid"),
    syscall_sites: |r| r.has_many(1000, "calls", |e| e.call() == "getppid"),

    exceptions: |r| r.has_many(1000, "files", |e| e.kind() == "open" && e.succeeded()),
    threads_future: |r| r.has_many(10, "threads", |e| e.child_thread().is_some()),
}

languages! {
    rust_std, "rust-std", "cargo", |_| vec![program("rust-std")], |r| {
        r.has_many(8, "accepted connections", |e| e.kind() == "accept" && e.succeeded());
        r.has_many(8, "connections", |e| e.kind() == "connect" && e.succeeded());
        assert!(r.threads()["rust-std-0"] > 8);
        assert!(r.processes().iter().any(|p| p.command().last() == Some(&"child")));
    };
    rust_tokio, "rust-tokio", "cargo", |_| vec![program("rust-tokio")], |r| {
        r.has_many(50, "accepted connections", |e| e.kind() == "accept" && e.succeeded());
        r.has_many(50, "non-blocking connections", |e| e.failed("connect", "EINPROGRESS"));
        r.has_many(10, "waits", |e| e.call() == "epoll_wait" && e.returned());
        r.has_many(500, "messages", moves("recv", "->127.0.0.1:"));
    };
    go, "goroutines", "go", |_| vec![program("goroutines")], |r| {
        r.has("a thread made by the runtime", |e| e.child_thread().is_some());
        // Its clients share connections as they see fit.
        r.has("an accepted connection", |e| e.kind() == "accept" && e.succeeded());
        r.has_many(10, "requests", |e| e.kind() == "recv" && e.holds("buf", "HTTP/1.1"));
        r.has("the missing program", |e| e.failed("execve", "ENOENT"));
        assert!(r.processes().iter().any(|p| p.signal() == Some("SIGKILL")));
        assert!(r.processes().iter().any(|p| p.command().last() == Some(&"child")));
    };
    python, "threads_subprocess", "python3", |_| {
        // Debian's own: others may be scripts that choose among several.
        vec!["/usr/bin/python3".into(), script("python/threads_subprocess.py")]
    }, |r| {
        r.has_many(10, "threads", |e| e.child_thread().is_some());
        r.has_many(20, "accepted connections", |e| e.kind() == "accept" && e.succeeded());
        r.has("the script", |e| {
            e.kind() == "open" && e.file("result").ends_with("/threads_subprocess.py")
        });
        assert!(r.processes().len() >= 10);
        assert!(r.processes().iter().any(|p| p.status() == Some(3)));
    };
    python_that_computes, "compute", "python3", |_| {
        vec!["/usr/bin/python3".into(), script("python/compute.py")]
    }, |r| {
        r.has_many(3, "threads", |e| e.child_thread().is_some());
    };
    node, "http", "node", |node| vec![node, script("node/http.js")], |r| {
        r.has_many(30, "accepted connections", |e| e.kind() == "accept" && e.succeeded());
        r.has_many(4, "threads", |e| e.child_thread().is_some());
        let cat = r.process("cat-0");
        assert_eq!((cat.parent(), cat.status()), (Some("node-0"), Some(0)));
        r.has("its input", |e| e.process() == "cat-0" && e.word("buf") == "through cat");
        assert_eq!(r.process("sleep-0").signal(), Some("SIGTERM"));
    };
    shell, "pipeline", "sh", |_| vec![script("sh/pipeline.sh")], |r| {
        let first = r.processes()[0].name();
        assert_eq!(first, "pipeline.sh-0");
        r.has("a command", |e| {
            e.process() == "sort-0" && e.call() == "begin" && e.word("exe").ends_with("sort")
        });
        // What goes into a pipe at one end comes out of it at the other.
        r.has("what it read", |e| {
            e.process() == "sort-0" && e.kind() == "recv" && e.word("buf").starts_with("1\n2\n3")
        });
        r.has("what it wrote", |e| {
            e.process() == "sort-0" && e.call() == "write" && e.word("buf").starts_with("200\n199")
        });
        r.has("a trap", |e| e.process() == first && e.delivers("SIGUSR1"));
        assert!(r.processes().len() > 50);
    };
}

#[test]
fn every_program_has_a_test() {
    let mut expected: Vec<String> = std::fs::read_dir(programs::sources().join("expected"))
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            Some(
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".txt")?
                    .to_string(),
            )
        })
        // They have tests of their own.
        .filter(|name| !name.starts_with("ground_truth") && name != "attached_to")
        .collect();
    expected.sort();
    let mut tested = [PROGRAMS, LANGUAGES].concat();
    tested.sort_unstable();
    assert_eq!(tested, expected);
}

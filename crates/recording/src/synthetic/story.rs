//! A small program that never ran: a shell that starts a server and a client,
//! with files, sockets, pipes, threads and signals.

use std::path::Path;

use protocol::id::{ProcessNo, Ticks};
use protocol::record::{at, begin, kind, tag};

use super::{LogBuilder, image, manifest};
use crate::calls::nr;
use crate::error::WriteError;
use crate::model::{FileInfo, Note, Status, Summary};
use crate::writer::Writer;

/// `AT_FDCWD` as the register holds it.
const CWD: u64 = -100i64 as u64;

/// `127.0.0.1` at a port.
pub fn inet(port: u16) -> [u8; 16] {
    let [high, low] = port.to_be_bytes();
    [2, 0, high, low, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn sigchld(pid: u32) -> Vec<u8> {
    let mut info = vec![0; 48];
    let mut put = |at: usize, value: u32| {
        info.splice(at..at + 4, value.to_le_bytes());
    };
    put(0, 17);
    put(8, 1);
    put(16, pid);
    put(20, 1000);
    put(24, 3);
    info
}

fn stat(mode: u32, size: u64) -> Vec<u8> {
    let mut stat = vec![0; 144];
    stat.splice(24..28, mode.to_le_bytes());
    stat.splice(48..56, size.to_le_bytes());
    stat
}

/// Process 0: forks the other two and waits for one of them.
fn shell() -> LogBuilder {
    let mut log = LogBuilder::new(0, 4096);
    log.at(2_000).thread(0);
    log.other(kind::BEGIN, &[begin::FIRST, 0, 0, 100, 0, 0], &[]);
    log.call(
        nr::PIPE2,
        &[0x7ffc_0000, 0x80000],
        0,
        &[(0, &[3, 0, 0, 0, 4, 0, 0, 0])],
    );
    log.call(nr::OPENAT, &[CWD, 0x5000, 0], 5, &[(1, b"notes.txt")]);
    log.at(10_000);
    log.call(nr::FORK, &[], 101, &[(tag::CHILD, &1u64.to_le_bytes())]);
    log.at(20_000);
    log.start(nr::VFORK, &[], &[]);
    log.at(40_000)
        .end(nr::VFORK, 102, &[(tag::CHILD, &2u64.to_le_bytes())]);
    log.start(nr::WAIT4, &[u64::MAX, 0x7ffc_1000, 0, 0], &[]);
    log.at(900_000);
    log.end(nr::WAIT4, 102, &[(1, &0x300u32.to_le_bytes())]);
    let info = sigchld(102);
    log.other(kind::SIGNAL, &[17, at::CALL_EXIT], &[(tag::SIGINFO, &info)]);
    log.call(nr::CLOSE, &[5], 0, &[]);
    log.call(nr::CLOSE, &[5], -9, &[]);
    log.at(950_000).start(nr::EXIT_GROUP, &[0], &[]);
    log
}

/// Process 1: the server, with two threads; killed in the end.
fn server() -> LogBuilder {
    let mut log = LogBuilder::new(1, 300);
    log.at(12_000).thread(0);
    log.other(kind::BEGIN, &[begin::FORK, 0, 3, 101, 0, 0], &[]);
    log.call(nr::CLOSE, &[3], 0, &[]);
    log.start(
        nr::EXECVE,
        &[0x5000, 0x5100, 0x5200],
        &[(0, b"/usr/bin/server")],
    );
    log.at(15_000);
    log.other(kind::BEGIN, &[begin::EXEC, 0, 0, 101, 0, 0], &[]);
    log.call(nr::SOCKET, &[2, 1, 0], 4, &[]);
    log.call(
        nr::SETSOCKOPT,
        &[4, 1, 2, 0x6000, 4],
        0,
        &[(3, &[1, 0, 0, 0])],
    );
    log.call(nr::BIND, &[4, 0x6000, 16], 0, &[(1, &inet(6379))]);
    log.call(nr::LISTEN, &[4, 128], 0, &[]);
    log.call(
        nr::OPENAT,
        &[CWD, 0x5000, 0x80241, 0o644],
        6,
        &[(1, b"/var/log/server")],
    );
    let file = stat(0o100644, 12);
    log.call(5, &[6, 0x7ffd_0000], 0, &[(1, &file)]);
    log.start(nr::WRITE, &[6, 0x7000, 6], &[(1, b"ready\n")])
        .end(nr::WRITE, 6, &[]);
    let flags = 0x3d0f00;
    let thread = 1u64.to_le_bytes();
    log.call(
        nr::CLONE,
        &[flags, 0x7f00_0000, 0, 0, 0],
        111,
        &[(tag::CHILD, &thread)],
    );
    log.start(nr::ACCEPT4, &[4, 0x7ffd_1000, 0x7ffd_2000, 0x80000], &[]);
    log.thread(1);
    log.other(kind::THREAD_START, &[1, 111, 0x40_1000, 0], &[]);
    log.call(nr::OPENAT, &[CWD, 0x5000, 0], -2, &[(1, b"missing")]);
    log.start(nr::FUTEX, &[0x60_0000, 128, 2, 0], &[]);
    log.at(50_000).thread(0);
    let (own, peer) = (inet(6379), inet(50712));
    log.end(
        nr::ACCEPT4,
        7,
        &[
            (1, &peer),
            (2, &[16, 0, 0, 0]),
            (tag::LOCAL, &own),
            (tag::PEER, &peer),
        ],
    );
    log.start(nr::READ, &[7, 0x7ffd_3000, 16384], &[]);
    log.at(60_000).end(nr::READ, 6, &[(1, b"PING\r\n")]);
    log.call(nr::FUTEX, &[0x60_0000, 129, 1, 0], 1, &[]);
    let mut sent = b"+PONG and so on and so forth until it is long enough to be cut..".to_vec();
    sent.extend(1000u64.to_le_bytes());
    sent.extend(0xfeedu64.to_le_bytes());
    log.start(nr::WRITE, &[7, 0x7000, 1000], &[(1 | tag::PARTIAL, &sent)]);
    log.end(nr::WRITE, 1000, &[]);
    log.thread(1).end(nr::FUTEX, 0, &[]);
    log.at(70_000).other(kind::PREEMPT, &[], &[]);
    log.thread(0).start(nr::READ, &[7, 0x7ffd_3000, 16384], &[]);
    log
}

/// Process 2: the client, which exits with 3.
fn client() -> LogBuilder {
    let mut log = LogBuilder::new(2, 4096);
    log.at(22_000).thread(0);
    log.other(kind::BEGIN, &[begin::VFORK, 0, 4, 102, 0, 0], &[]);
    log.start(
        nr::EXECVE,
        &[0x5000, 0x5100, 0x5200],
        &[(0, b"/usr/bin/client")],
    );
    log.at(30_000);
    log.other(kind::BEGIN, &[begin::EXEC, 0, 0, 102, 0, 0], &[]);
    log.call(nr::SOCKET, &[2, 0x80001, 0], 3, &[]);
    log.at(45_000)
        .start(nr::CONNECT, &[3, 0x6000, 16], &[(1, &inet(6379))]);
    log.end(nr::CONNECT, 0, &[(tag::LOCAL, &inet(50712))]);
    log.start(nr::WRITE, &[3, 0x7000, 6], &[(1, b"PING\r\n")])
        .end(nr::WRITE, 6, &[]);
    log.at(800_000).start(nr::EXIT_GROUP, &[3], &[]);
    log
}

/// Writes the recording of it to `dir`. Its clock ticks once a nanosecond.
pub fn write(dir: &Path) -> Result<(), WriteError> {
    let writer = Writer::create(dir, &manifest(&["sh", "run it"]))?;
    writer.start(&image(0, 0, 100, &["sh", "run it"]))?;
    writer.start(&image(1, 0, 101, &["server", "--port", "6379"]))?;
    writer.start(&image(2, 0, 102, &["client"]))?;
    for log in [shell(), server(), client()] {
        for chunk in log.chunks() {
            writer.chunk(&chunk)?;
        }
    }
    writer.file(&FileInfo {
        id: 1,
        path: b"/usr/bin/server".to_vec(),
        size: 2000,
        ..FileInfo::default()
    })?;
    let text = "io_uring_setup".to_string();
    let note = Note {
        process: ProcessNo(1),
        kind: "refused".to_string(),
        text,
    };
    writer.note(&note)?;
    writer.note(&note)?;
    writer.status(&Status {
        process: None,
        pid: 101,
        wait_status: 9,
        time: Ticks(960_000),
    })?;
    writer.finish(&Summary {
        time: Ticks(1_001_000),
        complete: true,
        ..Summary::default()
    })
}

//! Conversations with a server of a program that is made up.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use gdb_remote::{
    Direction, File, Interrupt, Motion, Refused, Registers, Stop, StopKind, StopPoint, StopReason,
    Target, ThreadId, ThreadInfo,
};

/// Two processes, the second with two threads. Its memory holds its
/// addresses; it runs until it is interrupted.
#[derive(Default)]
struct Fake {
    stops: Vec<(u32, StopPoint)>,
    motions: Vec<Motion>,
    gone: Vec<u32>,
}

impl Target for Fake {
    fn current(&mut self) -> ThreadId {
        ThreadId::new(1, 1)
    }

    fn processes(&mut self) -> Vec<u32> {
        let all = [1, 2].into_iter();
        all.filter(|pid| !self.gone.contains(pid)).collect()
    }

    fn threads(&mut self, pid: u32) -> Vec<ThreadInfo> {
        let tids = match pid {
            1 => vec![1],
            2 => vec![2, 3],
            _ => Vec::new(),
        };
        let info = |tid| ThreadInfo {
            id: ThreadId::new(pid, tid),
            name: format!("<{pid}>"),
            about: "stands".to_string(),
        };
        tids.into_iter().map(info).collect()
    }

    fn registers(&mut self, thread: ThreadId) -> Option<Registers> {
        Some(Registers {
            rip: thread.tid.into(),
            ..Registers::default()
        })
    }

    fn read(&mut self, _: u32, address: u64, out: &mut [u8]) -> usize {
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = (address as usize + i) as u8;
        }
        match address {
            0x1000.. => out.len(),
            _ => 0,
        }
    }

    fn auxv(&mut self, _: u32) -> Option<Vec<u8>> {
        Some(b"$#}*".to_vec())
    }

    fn executable(&mut self, pid: u32) -> Option<Vec<u8>> {
        (pid == 2).then(|| b"/bin/two".to_vec())
    }

    fn file(&mut self, pid: Option<u32>, path: &[u8]) -> Option<File> {
        (pid == Some(2) && path == b"/bin/two").then(|| File::Bytes(vec![b'#'; 300_000]))
    }

    fn region(&mut self, _: u32, _: u64) -> (Range<u64>, String) {
        (0x1000..0x2000, "rx".to_string())
    }

    fn thread_local(&mut self, thread: ThreadId, offset: u64, module: u64) -> Option<u64> {
        Some(u64::from(thread.tid) + offset + module)
    }

    fn add_stop(&mut self, pid: u32, stop: StopPoint) -> Result<(), Refused> {
        match stop.kind {
            StopKind::Read => Err(Refused::Unsupported),
            StopKind::Access => Err(Refused::Errno(28)),
            _ => {
                self.stops.push((pid, stop));
                Ok(())
            }
        }
    }

    fn remove_stop(&mut self, _: u32, _: StopKind, address: u64, _: u64) -> Result<(), Refused> {
        self.stops.retain(|(_, stop)| stop.address != address);
        Ok(())
    }

    fn resume(&mut self, motion: &Motion, interrupt: &Interrupt) -> Result<Stop, Failure> {
        self.motions.push(motion.clone());
        let reason = match (motion.direction, &motion.step) {
            (Direction::Backwards, None) => StopReason::Beginning,
            (_, Some(_)) => StopReason::Arrived,
            (Direction::Forwards, None) => {
                let flag = interrupt.request();
                while !flag.load(std::sync::atomic::Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(interrupt.came());
                StopReason::Interrupted
            }
        };
        Ok(Stop {
            thread: motion.thread,
            reason,
        })
    }

    fn let_go(&mut self, pid: u32) -> bool {
        let known = self.processes().contains(&pid);
        self.gone.push(pid);
        known
    }

    fn take_up(&mut self, pid: u32) -> Option<ThreadId> {
        self.gone.retain(|gone| *gone != pid);
        Some(ThreadId::new(pid, pid))
    }

    fn restart(&mut self) -> Result<ThreadId, Failure> {
        Err("not here".to_string())
    }

    fn command(&mut self, line: &str) -> String {
        format!("<{line}>")
    }
}

struct Client(UnixStream);

impl Client {
    fn send(&mut self, data: &str) {
        let packet = gdb_remote::packet::frame(data.as_bytes());
        self.0.write_all(&packet).unwrap();
    }

    fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.0.read_exact(&mut byte).unwrap();
        byte[0]
    }

    fn receive(&mut self) -> Vec<u8> {
        while self.byte() != b'$' {}
        let mut data = Vec::new();
        loop {
            match self.byte() {
                b'#' => break,
                byte => data.push(byte),
            }
        }
        let sum = [self.byte(), self.byte()];
        let framed = gdb_remote::packet::frame(&data);
        assert!(framed.ends_with(&sum));
        data
    }

    fn ask(&mut self, data: &str) -> String {
        self.send(data);
        String::from_utf8_lossy(&self.receive()).into_owned()
    }
}

/// Has a conversation; what is left of the program.
fn converse(talk: impl FnOnce(&mut Client)) -> Fake {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let server = std::thread::spawn(move || {
        let mut fake = Fake::default();
        let interrupt = Arc::new(Interrupt::default());
        let from = theirs.try_clone().unwrap();
        // It may have something to say to a client that is gone.
        let _ = gdb_remote::serve(from, &theirs, &mut fake, &interrupt, &|| false);
        fake
    });
    let mut client = Client(ours);
    talk(&mut client);
    client.0.shutdown(std::net::Shutdown::Both).unwrap();
    server.join().unwrap()
}

const GDB: &str = "qSupported:multiprocess+;swbreak+;hwbreak+;exec-events+";

#[test]
fn several_processes_on_one_connection() {
    let fake = converse(|client| {
        let answer = client.ask(GDB);
        assert!(answer.contains("multiprocess+"), "{answer}");
        assert_eq!(client.ask("vMustReplyEmpty"), "");
        assert_eq!(client.ask("!"), "OK");
        assert!(client.ask("?").ends_with("thread:p1.1;"));
        let list = client.ask("qXfer:threads:read::0,fff");
        assert!(list.contains("<thread id=\"p2.3\" name=\"&lt;2&gt;\">stands</thread>"));
        assert_eq!(client.ask("qfThreadInfo"), "mp1.1,p2.2,p2.3");
        assert_eq!(client.ask("qsThreadInfo"), "l");
        assert_eq!(client.ask("Hgp2.3"), "OK");
        assert!(client.ask("g").contains("0300000000000000"));
        assert_eq!(client.ask("p10"), "0300000000000000");
        assert_eq!(client.ask("Hgp2.9"), "E03");
        assert_eq!(client.ask("Tp9.9"), "E03");
        assert_eq!(client.ask("Z0,1234,1"), "OK");
        assert_eq!(client.ask("qXfer:exec-file:read:2:0,fff"), "l/bin/two");
        assert_eq!(client.ask("qXfer:exec-file:read:1:0,fff"), "E00");
        assert_eq!(client.ask("D;1"), "OK");
        assert_eq!(client.ask("D;1"), "E03");
        assert_eq!(client.ask("qfThreadInfo"), "mp2.2,p2.3");
        assert!(client.ask("vAttach;1").ends_with("thread:p1.1;"));
    });
    assert_eq!(fake.stops[0].0, 2);
}

/// A client that knows no processes sees the one at hand.
#[test]
fn one_process() {
    converse(|client| {
        let answer = client.ask("qSupported:swbreak+");
        assert!(!answer.contains("multiprocess"), "{answer}");
        assert_eq!(client.ask("qfThreadInfo"), "m1");
        assert!(client.ask("?").ends_with("thread:1;"));
    });
}

#[test]
fn motion_says_who_and_how() {
    let fake = converse(|client| {
        client.ask(GDB);
        assert_eq!(client.ask("vCont?"), "vCont;c;C;s;S;r");
        client.ask("vCont;s:p2.3;c");
        client.ask("vCont;r10,20:p2.3;c:p2.-1");
        client.ask("Hcp2.-1");
        assert_eq!(
            client.ask("bc").split("replaylog").nth(1).unwrap(),
            ":begin;06:0000000000000000;07:0000000000000000;10:0300000000000000;thread:p2.3;"
        );
        client.ask("Hc0");
        client.ask("bs");
    });
    let motion = |i: usize| {
        let motion = &fake.motions[i];
        (
            motion.direction,
            motion.process,
            motion.thread.tid,
            motion.step.clone(),
        )
    };
    assert_eq!(motion(0), (Direction::Forwards, None, 3, Some(0..0)));
    assert_eq!(
        motion(1),
        (Direction::Forwards, Some(2), 3, Some(0x10..0x20))
    );
    assert_eq!(motion(2), (Direction::Backwards, Some(2), 3, None));
    assert_eq!(motion(3), (Direction::Backwards, None, 3, Some(0..0)));
}

#[test]
fn an_interruption_counts_for_the_motion_it_follows() {
    converse(|client| {
        client.ask(GDB);
        // One that comes when nothing runs.
        client.0.write_all(&[3]).unwrap();
        assert!(client.ask("vCont;s:p1.1").starts_with("T05"));
        // One that comes with the packet.
        client.send("vCont;c");
        client.0.write_all(&[3]).unwrap();
        assert!(client.receive().starts_with(b"T02"));
        client.send("vCont;c");
        std::thread::sleep(Duration::from_millis(20));
        client.0.write_all(&[3]).unwrap();
        assert!(client.receive().starts_with(b"T02"));
        // It is not kept for later.
        assert!(client.ask("vCont;s:p1.1").starts_with("T05"));
        // The client goes away: what runs ends.
        client.send("vCont;c");
    });
}

#[test]
fn nothing_can_be_changed() {
    converse(|client| {
        for packet in ["M1000,1:00", "X1000,0:", "G00", "P10=00"] {
            assert_eq!(client.ask(packet), "E1e", "{packet}");
        }
        assert_eq!(client.ask("m1000,4"), "00010203");
        assert_eq!(client.ask("m0,4"), "E0e");
        assert_eq!(client.ask("Z3,1000,4"), "");
        assert_eq!(client.ask("Z4,1000,4"), "E1c");
        assert_eq!(client.ask("qGetTLSAddr:p2.3,10,20"), "33");
        assert_eq!(
            client.ask("qMemoryRegionInfo:1234"),
            "start:1000;size:1000;permissions:rx;"
        );
    });
}

#[test]
fn files_come_in_pieces() {
    converse(|client| {
        let open = "vFile:open:2f62696e2f74776f,0,0";
        assert_eq!(client.ask(open), "F-1,2");
        assert_eq!(client.ask("vFile:setfs:2"), "F0");
        assert_eq!(client.ask(open), "F0");
        // All of it is escaped, so half as much fits.
        let mut offset = 0;
        loop {
            client.send(&format!("vFile:pread:0,20000,{offset:x}"));
            let answer = client.receive();
            assert!(answer.len() <= gdb_remote::packet::LONGEST);
            let at = answer.iter().position(|byte| *byte == b';').unwrap();
            let count = std::str::from_utf8(&answer[1..at]).unwrap();
            let count = usize::from_str_radix(count, 16).unwrap();
            let data = gdb_remote::packet::unescape(&answer[at + 1..]);
            assert_eq!(data, vec![b'#'; count]);
            offset += count;
            if count == 0 {
                break;
            }
        }
        assert_eq!(offset, 300_000);
        assert_eq!(client.ask("vFile:close:0"), "F0");
        assert_eq!(client.ask("vFile:close:0"), "F-1,9");
        client.send("qXfer:auxv:read::0,10");
        let answer = client.receive();
        assert_eq!(gdb_remote::packet::unescape(&answer), b"l$#}*");
    });
}

#[test]
fn the_users_commands() {
    converse(|client| {
        client.send("qRcmd,6869");
        assert_eq!(client.receive(), b"O3c68693e0a");
        assert_eq!(client.receive(), b"OK");
        client.send("vRun;");
        assert_eq!(client.receive(), b"O6e6f7420686572650a");
        assert_eq!(client.receive(), b"E01");
    });
}

#[test]
fn acknowledgements() {
    converse(|client| {
        client.0.write_all(b"$g#00").unwrap();
        assert_eq!(client.byte(), b'-');
        client.send("QStartNoAckMode");
        assert_eq!(client.byte(), b'+');
        assert_eq!(client.receive(), b"OK");
        client.send("qC");
        assert_eq!(client.byte(), b'$');
    });
}

//! Packets that no client sends: whatever comes, the server answers in packets
//! that are whole, one for each that arrived, and asks its target for nothing
//! that is out of bounds.
//!
//! `scripts/fuzz` goes on for longer; `MW_SEED` begins elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../../../tests/mutate.rs"]
mod mutate;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::io::Cursor;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use gdb_remote::packet::{self, Decoder, Input};
use gdb_remote::{
    Failure, File, Interrupt, Motion, Refused, Registers, Stop, StopKind, StopPoint, StopReason,
    Target, ThreadId, ThreadInfo,
};
use mutate::{Random, changed, goes_on};

/// Packets that clients send.
const PACKETS: &[&[u8]] = &[
    b"!",
    b"?",
    b"QStartNoAckMode",
    b"QThreadEvents:1",
    b"D;1",
    b"G00000000",
    b"Hc-1",
    b"Hgp1.1",
    b"M1000,4:00112233",
    b"P10=0000000000000000",
    b"R0",
    b"Tp2.3",
    b"X1000,3:a}]b",
    b"Z0,401136,1",
    b"Z0,401136,1;X5,2200342216;cmds:1,X3,ff0000",
    b"Z1,401136,1",
    b"Z2,7fffffffe000,8",
    b"Z3,1000,4",
    b"Z4,1000,4",
    b"bc",
    b"bs",
    b"c",
    b"c401136",
    b"g",
    b"k",
    b"m1000,40",
    b"m7fffffffe000,10",
    b"p10",
    b"qAttached:1",
    b"qC",
    b"qGetTLSAddr:p1.1,10,7ffff7ffe000",
    b"qMemoryRegionInfo:401136",
    b"qOffsets",
    b"qRcmd,676f746f2078",
    b"qSearch:memory:1000;100;abc",
    b"qSupported:multiprocess+;swbreak+;hwbreak+;qRelocInsn+;fork-events+;exec-events+;vContSupported+",
    b"qSymbol::",
    b"qThreadExtraInfo,p2.3",
    b"qTStatus",
    b"qXfer:auxv:read::0,1000",
    b"qXfer:exec-file:read:2:0,fff",
    b"qXfer:features:read:target.xml:0,ffb",
    b"qXfer:libraries-svr4:read::0,ffb",
    b"qXfer:threads:read::0,ffb",
    b"qfThreadInfo",
    b"qsThreadInfo",
    b"s",
    b"vAttach;2",
    b"vCont?",
    b"vCont;c",
    b"vCont;r401136,401140:p1.1;c:p2.-1",
    b"vCont;s:p1.1;c",
    b"vFile:close:3",
    b"vFile:fstat:3",
    b"vFile:open:2f62696e2f74776f,0,0",
    b"vFile:pread:3,1000,0",
    b"vFile:readlink:2f70726f63",
    b"vFile:setfs:2",
    b"vKill;1",
    b"vMustReplyEmpty",
    b"vRun;2f62696e2f74776f;61",
    b"x1000,40",
    b"z0,401136,1",
];

/// What the readers of packets look for.
const WORDS: &[&[u8]] = &[
    b",",
    b";",
    b":",
    b"=",
    b"-1",
    b"p",
    b".",
    b"p0.0",
    b"p-1.-1",
    b"0",
    b"ffffffff",
    b"ffffffffffffffff",
    b"10000000000000000",
    b"80000000",
    b"8000000000000000",
    b"}",
    b"}}",
    b"*",
    b"*\x7f",
    b"#",
    b"$",
    b"\x03",
    b"\x00",
    b"\xff",
    b"X",
    b"cmds:",
    b"read",
    b"../",
    b"2f",
];

/// Longer answers than a packet holds are a mistake of whoever asks for them.
const READ_MAX: usize = packet::LONGEST;

/// Two processes; nothing of it takes time.
struct Still;

impl Target for Still {
    fn current(&mut self) -> ThreadId {
        ThreadId::new(1, 1)
    }

    fn processes(&mut self) -> Vec<u32> {
        vec![1, 2]
    }

    fn threads(&mut self, pid: u32) -> Vec<ThreadInfo> {
        let info = |tid| ThreadInfo {
            id: ThreadId::new(pid, tid),
            name: "name".to_string(),
            about: "<&>".to_string(),
        };
        match pid {
            1 => vec![info(1)],
            2 => vec![info(2), info(3)],
            _ => Vec::new(),
        }
    }

    fn registers(&mut self, _: ThreadId) -> Option<Registers> {
        Some(Registers::default())
    }

    fn read(&mut self, _: u32, address: u64, out: &mut [u8]) -> usize {
        assert!(out.len() <= READ_MAX, "{} bytes at once", out.len());
        for (byte, i) in out.iter_mut().zip(0u64..) {
            *byte = address.wrapping_add(i) as u8;
        }
        out.len().min((u64::MAX - address) as usize)
    }

    fn auxv(&mut self, _: u32) -> Option<Vec<u8>> {
        Some(b"$#}*".repeat(40))
    }

    fn executable(&mut self, pid: u32) -> Option<Vec<u8>> {
        (pid == 2).then(|| b"/bin/two".to_vec())
    }

    fn file(&mut self, _: Option<u32>, path: &[u8]) -> Option<File> {
        (path == b"/bin/two").then(|| File::Bytes(vec![b'#'; 100_000]))
    }

    fn region(&mut self, _: u32, address: u64) -> (Range<u64>, String) {
        (address..address.saturating_add(1), "rx".to_string())
    }

    fn thread_local(&mut self, _: ThreadId, offset: u64, module: u64) -> Option<u64> {
        offset.checked_add(module)
    }

    fn add_stop(&mut self, _: u32, stop: StopPoint) -> Result<(), Refused> {
        match stop.kind {
            StopKind::Read => Err(Refused::Unsupported),
            StopKind::Access => Err(Refused::Words("no room # $ }".to_string())),
            _ => Ok(()),
        }
    }

    fn remove_stop(&mut self, _: u32, _: StopKind, _: u64, _: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn resume(&mut self, motion: &Motion, _: &Interrupt) -> Result<Stop, Failure> {
        Ok(Stop {
            thread: motion.thread,
            reason: StopReason::Arrived,
        })
    }

    fn let_go(&mut self, pid: u32) -> bool {
        pid <= 2
    }

    fn take_up(&mut self, pid: u32) -> Option<ThreadId> {
        Some(ThreadId::new(pid, pid))
    }

    fn restart(&mut self) -> Result<ThreadId, Failure> {
        Err("not here".to_string())
    }

    fn command(&mut self, line: &str) -> String {
        line.to_string()
    }
}

/// What a client would make of bytes: whole packets, and nothing corrupt.
fn packets(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut decoder = Decoder::new();
    let mut found = Vec::new();
    for byte in bytes {
        match decoder.take(*byte) {
            Some(Input::Packet(data)) => found.push(data),
            Some(Input::Corrupt) => panic!("a packet that is not whole"),
            Some(Input::Ack | Input::Nack | Input::Interrupt) | None => {}
        }
    }
    found
}

/// Bytes as they come from a client, and how many whole packets are in them.
fn conversation(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(30) {
        let data = changed(random, PACKETS, WORDS);
        match random.below(12) {
            // As it is: what is in it may end it early, or begin another.
            0 => {
                bytes.push(b'$');
                bytes.extend(&data);
            }
            1 => bytes.extend(&data),
            2 => {
                let mut framed = packet::frame(&packet::escape(&data));
                let at = random.below(framed.len());
                framed[at] ^= 1 << random.below(8);
                bytes.extend(framed);
            }
            // Escaped or not, whole.
            3..6 => bytes.extend(packet::frame(&packet::escape(&data))),
            _ => bytes.extend(packet::frame(&data)),
        }
        if random.once_in(10) {
            bytes.push(*random.pick(b"+-\x03"));
        }
    }
    bytes
}

fn talk(bytes: Vec<u8>) {
    let mut answers = Vec::new();
    let interrupt = Arc::new(Interrupt::default());
    gdb_remote::serve(
        Cursor::new(bytes),
        &mut answers,
        &mut Still,
        &interrupt,
        &|| false,
    )
    .unwrap();
    packets(&answers);
}

#[test]
fn a_server_answers_whatever_comes() {
    let first = seed::seed("packets", 1);
    let begun = Instant::now();
    let mut round = 0;
    while goes_on(begun, round, 3000) {
        let seed = first.wrapping_add(round);
        let bytes = conversation(&mut Random::new(seed));
        let shown = bytes.escape_ascii().to_string();
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| talk(bytes)));
        assert!(ended.is_ok(), "MW_SEED={seed}: {shown}");
        round += 1;
    }
    eprintln!("{round} conversations");
}

#[test]
fn what_is_framed_is_read_again() {
    let first = seed::seed("frames", 1);
    let begun = Instant::now();
    let mut round = 0;
    while goes_on(begun, round, 20_000) {
        let seed = first.wrapping_add(round);
        let data = changed(&mut Random::new(seed), PACKETS, WORDS);
        let escaped = packet::escape(&data);
        if escaped.len() <= packet::LONGEST {
            assert_eq!(
                packets(&packet::frame(&escaped)),
                [escaped],
                "MW_SEED={seed}"
            );
        }
        // Of noise, only that it is read to its end.
        let mut decoder = Decoder::new();
        for byte in &data {
            decoder.take(*byte);
        }
        round += 1;
    }
}

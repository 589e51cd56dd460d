//! `ioctl`: which requests write how much.
//!
//! Most requests say so in their number; the old ones of terminals and sockets
//! do not and are listed. What neither covers is refused as by a driver that
//! does not know it, because replay could not repeat its effect.

use protocol::syscall::Syscall;

use crate::arch;
use crate::capture::Blobs;
use crate::recorder::{self, topic};
use crate::state::Thread;
use crate::{log, sys};

/// `(request, bytes read, bytes written)` behind the argument.
const OLD: &[(u32, u32, u32)] = &[
    (0x5401, 0, 36),     // TCGETS
    (0x5402, 36, 0),     // TCSETS
    (0x5403, 36, 0),     // TCSETSW
    (0x5404, 36, 0),     // TCSETSF
    (0x5405, 0, 18),     // TCGETA
    (0x5406, 18, 0),     // TCSETA
    (0x5407, 18, 0),     // TCSETAW
    (0x5408, 18, 0),     // TCSETAF
    (0x5409, 0, 0),      // TCSBRK
    (0x540a, 0, 0),      // TCXONC
    (0x540b, 0, 0),      // TCFLSH
    (0x540c, 0, 0),      // TIOCEXCL
    (0x540d, 0, 0),      // TIOCNXCL
    (0x540e, 0, 0),      // TIOCSCTTY
    (0x540f, 0, 4),      // TIOCGPGRP
    (0x5410, 4, 0),      // TIOCSPGRP
    (0x5411, 0, 4),      // TIOCOUTQ
    (0x5412, 1, 0),      // TIOCSTI
    (0x5413, 0, 8),      // TIOCGWINSZ
    (0x5414, 8, 0),      // TIOCSWINSZ
    (0x5415, 0, 4),      // TIOCMGET
    (0x5416, 4, 0),      // TIOCMBIS
    (0x5417, 4, 0),      // TIOCMBIC
    (0x5418, 4, 0),      // TIOCMSET
    (0x5419, 0, 4),      // TIOCGSOFTCAR
    (0x541b, 0, 4),      // FIONREAD
    (0x541d, 0, 0),      // TIOCCONS
    (0x5420, 4, 0),      // TIOCPKT
    (0x5421, 4, 0),      // FIONBIO
    (0x5422, 0, 0),      // TIOCNOTTY
    (0x5423, 4, 0),      // TIOCSETD
    (0x5424, 0, 4),      // TIOCGETD
    (0x5425, 0, 0),      // TCSBRKP
    (0x5429, 0, 4),      // TIOCGSID
    (0x5450, 0, 0),      // FIONCLEX
    (0x5451, 0, 0),      // FIOCLEX
    (0x5452, 4, 0),      // FIOASYNC
    (0x5460, 0, 8),      // FIOQSIZE
    (0x8901, 4, 0),      // FIOSETOWN
    (0x8902, 4, 0),      // SIOCSPGRP
    (0x8903, 0, 4),      // FIOGETOWN
    (0x8904, 0, 4),      // SIOCGPGRP
    (0x8905, 0, 4),      // SIOCATMARK
    (0x8906, 0, 16),     // SIOCGSTAMP
    (0x8910, 40, 40),    // SIOCGIFNAME
    (0x8913, 40, 40),    // SIOCGIFFLAGS
    (0x8915, 40, 40),    // SIOCGIFADDR
    (0x8917, 40, 40),    // SIOCGIFDSTADDR
    (0x8919, 40, 40),    // SIOCGIFBRDADDR
    (0x891b, 40, 40),    // SIOCGIFNETMASK
    (0x891d, 40, 40),    // SIOCGIFMETRIC
    (0x8921, 40, 40),    // SIOCGIFMTU
    (0x8927, 40, 40),    // SIOCGIFHWADDR
    (0x8933, 40, 40),    // SIOCGIFINDEX
    (0x8942, 40, 40),    // SIOCGIFTXQLEN
    (0x4b33, 0, 1),      // KDGKBTYPE
    (0x4b3b, 0, 4),      // KDGETMODE
    (0x1260, 0, 8),      // BLKGETSIZE
    (0x1268, 0, 4),      // BLKSSZGET
    (0x127b, 0, 4),      // BLKPBSZGET
    (0x0001, 0, 4),      // FIBMAP
    (0x0002, 0, 4),      // FIGETBSZ
    (0x4004_9409, 0, 0), // FICLONE (the argument is a descriptor)
];

const SIOCGIFCONF: u32 = 0x8912;

/// `(read, written)`; None if the request is not known.
fn sizes(request: u32) -> Option<(u64, u64)> {
    if let Some((_, read, written)) = OLD.iter().find(|(r, _, _)| *r == request) {
        return Some((u64::from(*read), u64::from(*written)));
    }
    let size = u64::from(request >> 16 & 0x3fff);
    let group = (request >> 8) as u8;
    match request >> 30 {
        // No direction: nothing behind the argument, if the number is of the
        // new form at all. Terminals' and sockets' old numbers are not.
        0 if !matches!(group, b'T' | 0x89 | 0x12 | 0) => Some((0, 0)),
        1 => Some((size, 0)),
        2 => Some((0, size)),
        3 => Some((size, size)),
        _ => None,
    }
}

pub fn perform(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> i64 {
    let request = args[1] as u32;
    let number = u64::from(row.nr);
    let mut blobs = Blobs::new();
    let result = match sizes(request) {
        Some((read, written)) => {
            // SAFETY: the program's own call.
            let result = unsafe { arch::syscall(number, &args) };
            if written != 0 && args[2] != 0 && (result >= 0 || read != 0) {
                if crate::mem::is_readable(args[2], written) {
                    blobs.memory(2, args[2], written);
                }
            } else if read != 0 && args[2] != 0 {
                blobs.memory(2, args[2], read.min(256));
            }
            result
        }
        None if request == SIOCGIFCONF => {
            // SAFETY: the program's own call.
            let result = unsafe { arch::syscall(number, &args) };
            if let Some([len, buffer]) = crate::mem::read::<[u64; 2]>(args[2]) {
                blobs.memory(2, args[2], 16);
                if result == 0 && buffer != 0 {
                    blobs.memory(protocol::record::tag::PIECE, buffer, len & 0xffff_ffff);
                }
            }
            result
        }
        None => {
            // Asked of something that is no terminal, the answer is the same.
            let text = b"an ioctl request that has no rule";
            recorder::note(thread, topic::IOCTL, 0, text);
            -sys::ENOTTY
        }
    };
    if let Some(entry) = log::call(thread, number, &args, row.args.len(), result, blobs.count()) {
        blobs.write(entry).commit();
    }
    result
}

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
use crate::{log, mem, sys};

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
    (0x4b2f, 0, 0),      // KIOCSOUND
    (0x4b30, 0, 0),      // KDMKTONE
    (0x4b31, 0, 1),      // KDGETLED
    (0x4b32, 0, 0),      // KDSETLED
    (0x4b33, 0, 1),      // KDGKBTYPE
    (0x4b3a, 0, 0),      // KDSETMODE
    (0x4b3b, 0, 4),      // KDGETMODE
    (0x4b40, 0, 256),    // GIO_SCRNMAP
    (0x4b41, 256, 0),    // PIO_SCRNMAP
    (0x4b44, 0, 4),      // KDGKBMODE
    (0x4b45, 0, 0),      // KDSKBMODE
    (0x4b46, 4, 4),      // KDGKBENT
    (0x4b47, 4, 0),      // KDSKBENT
    (0x4b48, 513, 513),  // KDGKBSENT
    (0x4b49, 513, 0),    // KDSKBSENT
    (0x4b4a, 0, 772),    // KDGKBDIACR
    (0x4b4b, 772, 0),    // KDSKBDIACR
    (0x4b4c, 8, 8),      // KDGETKEYCODE
    (0x4b4d, 8, 0),      // KDSETKEYCODE
    (0x4b4e, 0, 0),      // KDSIGACCEPT
    (0x4b52, 8, 8),      // KDKBDREP
    (0x4b60, 0, 8192),   // GIO_FONT
    (0x4b61, 8192, 0),   // PIO_FONT
    (0x4b62, 0, 4),      // KDGKBMETA
    (0x4b63, 0, 0),      // KDSKBMETA
    (0x4b64, 0, 1),      // KDGKBLED
    (0x4b65, 0, 0),      // KDSKBLED
    (0x4b68, 6, 0),      // PIO_UNIMAPCLR
    (0x4b69, 0, 512),    // GIO_UNISCRNMAP
    (0x4b6a, 512, 0),    // PIO_UNISCRNMAP
    (0x4b6d, 0, 0),      // PIO_FONTRESET
    (0x4b70, 0, 48),     // GIO_CMAP
    (0x4b71, 48, 0),     // PIO_CMAP
    (0x4bfa, 0, 3076),   // KDGKBDIACRUC
    (0x4bfb, 3076, 0),   // KDSKBDIACRUC
    (0x5600, 0, 4),      // VT_OPENQRY
    (0x5601, 0, 8),      // VT_GETMODE
    (0x5602, 8, 0),      // VT_SETMODE
    (0x5603, 0, 6),      // VT_GETSTATE
    (0x5604, 0, 0),      // VT_SENDSIG
    (0x5605, 0, 0),      // VT_RELDISP
    (0x5606, 0, 0),      // VT_ACTIVATE
    (0x5607, 0, 0),      // VT_WAITACTIVE
    (0x5608, 0, 0),      // VT_DISALLOCATE
    (0x5609, 6, 0),      // VT_RESIZE
    (0x560a, 12, 0),     // VT_RESIZEX
    (0x560b, 0, 0),      // VT_LOCKSWITCH
    (0x560c, 0, 0),      // VT_UNLOCKSWITCH
    (0x560d, 0, 2),      // VT_GETHIFONTMASK
    (0x560f, 12, 0),     // VT_SETACTIVATE
    (0x5309, 0, 0),      // CDROMEJECT
    (0x5319, 0, 0),      // CDROMCLOSETRAY
    (0x5325, 0, 0),      // CDROM_MEDIA_CHANGED
    (0x5326, 0, 0),      // CDROM_DRIVE_STATUS
    (0x5327, 0, 0),      // CDROM_DISC_STATUS
    (0x5331, 0, 0),      // CDROM_GET_CAPABILITY
    (0x1260, 0, 8),      // BLKGETSIZE
    (0x1268, 0, 4),      // BLKSSZGET
    (0x127b, 0, 4),      // BLKPBSZGET
    (0x0001, 0, 4),      // FIBMAP
    (0x0002, 0, 4),      // FIGETBSZ
    (0x4004_9409, 0, 0), // FICLONE (the argument is a descriptor)
    // Their numbers say less than they read and write.
    (0x4004_54ca, 40, 40), // TUNSETIFF
    (0x8004_54d2, 0, 40),  // TUNGETIFF
];

const SIOCGIFCONF: u32 = 0x8912;

/// Requests with a table behind what their number says: `(request, bytes before
/// it, where the number of entries that were written is, and the number of those
/// there is room for, size of an entry)`.
const TABLES: &[(u32, u64, u64, u64, u64)] = &[
    (0xc020_660b, 32, 20, 24, 56), // FS_IOC_FIEMAP
    (0xc0c0_583b, 192, 12, 8, 48), // FS_IOC_GETFSMAP
    (0xc018_9436, 24, 16, 16, 32), // FIDEDUPERANGE
];

/// How much a request has written, `said` by its number.
fn written_by(request: u32, at: u64, said: u64) -> u64 {
    let table = TABLES.iter().find(|table| table.0 == request);
    let Some(&(_, head, count, room, size)) = table else {
        return said;
    };
    let number = |offset: u64| {
        let field = mem::read::<u32>(at + offset).unwrap_or(0);
        // The one that counts in two bytes has others behind them.
        u64::from(if head == 24 { field & 0xffff } else { field })
    };
    head + number(count).min(number(room)) * size
}

/// `(read, written)`; None if the request is not known.
fn sizes(request: u32) -> Option<(u64, u64)> {
    if let Some((_, read, written)) = OLD.iter().find(|(r, _, _)| *r == request) {
        return Some((u64::from(*read), u64::from(*written)));
    }
    let size = u64::from(request >> 16 & 0x3fff);
    let group = (request >> 8) as u8;
    match request >> 30 {
        // No direction: nothing behind the argument, if the number is of the
        // new form at all. The old numbers of terminals, consoles, sockets and
        // disks are not.
        0 if !matches!(
            group,
            b'T' | b'K' | b'V' | b'S' | 0x89 | 0x22 | 0x12 | 3 | 2 | 0
        ) =>
        {
            Some((0, 0))
        }
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
                let written = written_by(request, args[2], written);
                if mem::is_readable(args[2], written) {
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
            if let Some([len, buffer]) = mem::read::<[u64; 2]>(args[2]) {
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

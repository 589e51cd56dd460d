//! `ioctl`: which requests write how much.
//!
//! Most requests say so in their number; the old ones of terminals and sockets
//! do not and are listed. What neither covers is refused as by a driver that
//! does not know it, because replay could not repeat its effect.
//!
//! Some lead to further memory by a pointer, and write there what only the driver
//! knows. Of that more is kept than can have been written: what was not is the
//! same in replay anyway.

use protocol::syscall::Syscall;

use crate::arch;
use crate::capture::Blobs;
use crate::recorder::{self, topic};
use crate::state::{Thread, space};
use crate::{call, log, mem, served, sys};

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
    (0x5427, 0, 0),      // TIOCSBRK
    (0x5428, 0, 0),      // TIOCCBRK
    (0x5429, 0, 4),      // TIOCGSID
    (0x5441, 0, 0),      // TIOCGPTPEER
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
    (0x541a, 4, 0),      // TIOCSSOFTCAR
    (0x541e, 0, 72),     // TIOCGSERIAL
    (0x541f, 72, 0),     // TIOCSSERIAL
    (0x542e, 0, 32),     // TIOCGRS485
    (0x542f, 32, 32),    // TIOCSRS485
    (0x5437, 0, 0),      // TIOCVHANGUP
    (0x5456, 0, 36),     // TIOCGLCKTRMIOS
    (0x5457, 36, 0),     // TIOCSLCKTRMIOS
    (0x5459, 0, 4),      // TIOCSERGETLSR
    (0x545c, 0, 0),      // TIOCMIWAIT (the argument is a set of bits)
    (0x545d, 0, 80),     // TIOCGICOUNT
    (0x8907, 0, 16),     // SIOCGSTAMPNS
    (0x890b, 120, 0),    // SIOCADDRT
    (0x890c, 120, 0),    // SIOCDELRT
    (0x8911, 40, 0),     // SIOCSIFLINK
    (0x8914, 40, 0),     // SIOCSIFFLAGS
    (0x8916, 40, 0),     // SIOCSIFADDR
    (0x8918, 40, 0),     // SIOCSIFDSTADDR
    (0x891a, 40, 0),     // SIOCSIFBRDADDR
    (0x891c, 40, 0),     // SIOCSIFNETMASK
    (0x891e, 40, 0),     // SIOCSIFMETRIC
    (0x891f, 40, 40),    // SIOCGIFMEM
    (0x8920, 40, 0),     // SIOCSIFMEM
    (0x8922, 40, 0),     // SIOCSIFMTU
    (0x8923, 40, 0),     // SIOCSIFNAME
    (0x8924, 40, 0),     // SIOCSIFHWADDR
    (0x8925, 40, 40),    // SIOCGIFENCAP
    (0x8926, 40, 0),     // SIOCSIFENCAP
    (0x8929, 40, 40),    // SIOCGIFSLAVE
    (0x8930, 40, 0),     // SIOCSIFSLAVE
    (0x8931, 40, 0),     // SIOCADDMULTI
    (0x8932, 40, 0),     // SIOCDELMULTI
    (0x8934, 40, 0),     // SIOCSIFPFLAGS
    (0x8935, 40, 40),    // SIOCGIFPFLAGS
    (0x8936, 40, 0),     // SIOCDIFADDR
    (0x8937, 40, 0),     // SIOCSIFHWBROADCAST
    (0x8938, 40, 40),    // SIOCGIFCOUNT
    (0x8940, 32, 32),    // SIOCGIFBR
    (0x8941, 32, 32),    // SIOCSIFBR
    (0x8943, 40, 0),     // SIOCSIFTXQLEN
    (0x8946, 40, 40),    // SIOCETHTOOL
    (0x8947, 40, 40),    // SIOCGMIIPHY
    (0x8948, 40, 40),    // SIOCGMIIREG
    (0x8949, 40, 40),    // SIOCSMIIREG
    (0x894b, 0, 4),      // SIOCOUTQNSD
    (0x894c, 0, 0),      // SIOCGSKNS
    (0x8953, 68, 0),     // SIOCDARP
    (0x8954, 68, 68),    // SIOCGARP
    (0x8955, 68, 0),     // SIOCSARP
    (0x8970, 40, 40),    // SIOCGIFMAP
    (0x8971, 40, 0),     // SIOCSIFMAP
    (0x8982, 56, 56),    // SIOCGIFVLAN
    (0x8983, 56, 56),    // SIOCSIFVLAN
    (0x8990, 40, 0),     // SIOCBONDENSLAVE
    (0x8991, 40, 0),     // SIOCBONDRELEASE
    (0x8992, 40, 0),     // SIOCBONDSETHWADDR
    (0x8993, 40, 40),    // SIOCBONDSLAVEINFOQUERY
    (0x8994, 40, 40),    // SIOCBONDINFOQUERY
    (0x8995, 40, 0),     // SIOCBONDCHANGEACTIVE
    (0x89a0, 16, 0),     // SIOCBRADDBR
    (0x89a1, 16, 0),     // SIOCBRDELBR
    (0x89a2, 40, 0),     // SIOCBRADDIF
    (0x89a3, 40, 0),     // SIOCBRDELIF
    (0x89b0, 40, 40),    // SIOCSHWTSTAMP
    (0x89b1, 40, 40),    // SIOCGHWTSTAMP
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

/// Virtual machines: what they do is in no log.
const KVM: u8 = 0xae;

/// How much is kept of memory that a driver may have written to.
const REACH: u64 = 4096;

/// Where a request keeps a pointer to further memory, if it does; and how long
/// what was written there may be.
fn further(request: u32, at: u64) -> Option<(u64, u64)> {
    const SIOCGIFBR: u32 = 0x8940;
    const SIOCSIFBR: u32 = 0x8941;
    const SIOCETHTOOL: u32 = 0x8946;
    let word = |offset: u64| mem::read::<u64>(at.wrapping_add(offset));
    match request {
        SIOCGIFCONF => Some((word(8)?, word(0)? & 0xffff_ffff)),
        // Its numbers of interfaces.
        SIOCGIFBR | SIOCSIFBR => Some((word(8)?, word(16)?.min(REACH) * 4)),
        SIOCETHTOOL => {
            let data = word(16)?;
            let number = |offset: u64| mem::read::<u32>(data.wrapping_add(offset)).unwrap_or(0);
            Some((data, ethtool_len(number(0), number)))
        }
        // Slaves, time stamps, and what is a driver's own.
        0x8993 | 0x8994 | 0x89b0 | 0x89b1 | 0x89f0..=0x89ff => Some((word(16)?, REACH)),
        _ => None,
    }
}

/// How long the answer to a question about a network card is: some have a table
/// behind them.
fn ethtool_len(command: u32, number: impl Fn(u64) -> u32) -> u64 {
    let (head, count, size) = match command {
        0x04 | 0x0b => (12, number(8), 1), // registers, EEPROM
        0x1b => (12, number(8), 32),       // names
        0x1d => (8, number(4), 8),         // statistics
        _ => (0, 0, 0),
    };
    (head + u64::from(count) * size).max(REACH)
}

/// Keeps what lies behind a pointer of a request.
fn keep_further(request: u32, at: u64, blobs: &mut Blobs) {
    let Some((address, len)) = further(request, at).filter(|(address, _)| *address != 0) else {
        return;
    };
    // As far as there is memory.
    let mut there = 0;
    while there < len {
        let page_end = ((address + there) | 4095) + 1 - address;
        let next = page_end.min(len);
        if !mem::is_writable(address + there, next - there) {
            break;
        }
        there = next;
    }
    if there != 0 {
        blobs.memory(protocol::record::tag::PIECE, address, there);
    }
}

/// Where replay puts that again.
pub fn further_memory(args: &[u64; 6]) -> Option<u64> {
    further(args[1] as u32, args[2]).map(|(address, _)| address)
}

/// Whether a request may wait: for a terminal's output to be gone, for a change
/// of a line, and, as far as its driver is concerned, for anything.
fn may_wait(request: u32, fd: u64) -> bool {
    const TCSETSW2: u32 = 0x402c_542c;
    const TCSETSF2: u32 = 0x402c_542d;
    const VT_WAITACTIVE: u32 = 0x5607;
    const CHARACTERS: u32 = 0x2000;
    match request {
        0x5403 | 0x5404 | 0x5407 | 0x5408 | 0x5409 | 0x5425 | 0x545c => true,
        TCSETSW2 | TCSETSF2 | VT_WAITACTIVE => true,
        _ if request >> 30 == 0 || request >> 8 & 0xff == u32::from(b'T') => false,
        _ => sys::fstat(fd).is_some_and(|stat| stat.mode & 0xf000 == CHARACTERS),
    }
}

/// `(read, written)`; None if the request is not known.
fn sizes(request: u32) -> Option<(u64, u64)> {
    if let Some((_, read, written)) = OLD.iter().find(|(r, _, _)| *r == request) {
        return Some((u64::from(*read), u64::from(*written)));
    }
    let size = u64::from(request >> 16 & 0x3fff);
    let group = (request >> 8) as u8;
    if group == KVM {
        return None;
    }
    match request >> 30 {
        // Of a protocol's or a driver's own: an interface's name and 24 bytes.
        0 if matches!(request, 0x89e0..=0x89ff) => Some((40, 40)),
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
    let known = sizes(request);
    if let Some((read, written)) = known
        && space().turns.get() != 0
        && (served::is_on() || may_wait(request, args[0]))
    {
        return call::waiting(
            thread,
            row,
            &args,
            Some((2, read.max(written))),
            |blobs, result| {
                keep(request, args[2], (read, written), result, blobs);
            },
        );
    }
    let result = match known {
        Some(sizes) => {
            // SAFETY: the program's own call.
            let result = unsafe { arch::syscall(number, &args) };
            keep(request, args[2], sizes, result, &mut blobs);
            result
        }
        None if request == SIOCGIFCONF => {
            // SAFETY: the program's own call.
            let result = unsafe { arch::syscall(number, &args) };
            blobs.memory(2, args[2], 16);
            if result == 0 {
                keep_further(request, args[2], &mut blobs);
            }
            result
        }
        None => {
            refuse(thread, request);
            -sys::ENOTTY
        }
    };
    if let Some(entry) = log::call(thread, number, &args, row.args.len(), result, blobs.count()) {
        blobs.write(entry).commit();
    }
    result
}

/// What a request has written, or read.
fn keep(request: u32, at: u64, (read, written): (u64, u64), result: i64, blobs: &mut Blobs) {
    if at == 0 {
        return;
    }
    if written != 0 && (result >= 0 || read != 0) {
        let written = written_by(request, at, written);
        if mem::is_readable(at, written) {
            blobs.memory(2, at, written);
        }
        if result >= 0 {
            keep_further(request, at, blobs);
        }
    } else if read != 0 {
        blobs.memory(2, at, read.min(256));
    }
}

/// Says which request had no rule, each once.
fn refuse(thread: &Thread, request: u32) {
    let kvm = *b"a virtual machine (/dev/kvm) cannot be recorded: ioctl 0x00000000 got ENOTTY";
    let other = *b"an ioctl request that has no rule got ENOTTY: ioctl 0x00000000";
    let is_kvm = (request >> 8) as u8 == KVM;
    let (mut text, len) = ([0; 80], if is_kvm { kvm.len() } else { other.len() });
    for (to, from) in text
        .iter_mut()
        .zip(if is_kvm { &kvm[..] } else { &other[..] })
    {
        *to = *from;
    }
    let digits = if is_kvm {
        kvm.len() - 19
    } else {
        other.len() - 8
    };
    for (i, place) in text[digits..digits + 8].iter_mut().enumerate() {
        let digit = (request >> (28 - 4 * i) & 15) as u8;
        *place = if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        };
    }
    // One after the other as long as there is room to remember them.
    let place = if is_kvm {
        0
    } else {
        1 + (request.wrapping_mul(0x9e37_79b9) >> 30)
    };
    recorder::note(thread, topic::IOCTL + u64::from(place), 0, &text[..len]);
}

//! The stopped process, seen from this crate: memory, registers, mappings.
//!
//! [`Process`] is the only way by which anything here learns about a process.
//! Who implements it decides what "stopped" means: a replayed process at a
//! cut, a traced one, a core file ([`crate::core`]). Nothing is ever written.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::id::Addr;

use crate::error::{Error, Result};

/// A thread of a stopped process, in the implementor's own numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// Where the bytes of a mapped file can be had.
#[derive(Debug, Clone)]
pub enum Content {
    /// Nothing is known but what the process's memory holds: anonymous memory,
    /// the vdso, code made at run time.
    Memory,
    /// In this file of the machine the debugger runs on. It need not be the
    /// path under which the process mapped it.
    File(PathBuf),
    /// Here.
    Bytes(Arc<[u8]>),
}

/// A range of a process's address space.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// First address.
    pub start: Addr,
    /// Address behind the last.
    pub end: Addr,
    /// Offset in the file of the byte at `start`.
    pub offset: u64,
    /// The path as the process sees it, or a name in brackets as in
    /// `/proc/PID/maps`, or nothing.
    pub name: String,
    /// Whether the process may execute it.
    pub executable: bool,
    /// Whether the process may write it.
    pub writable: bool,
    /// Where its file's bytes are.
    pub content: Content,
}

/// A process that stands still.
///
/// Reading must have no effect on the process. A process that moved is a new
/// `Process`, or the same with [`crate::Inspector::refresh`] called.
pub trait Process {
    /// Copies memory from `address` on into `buffer` and says how many bytes
    /// could be read; fewer than asked for if a page is missing.
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize;

    /// The threads, the one that stopped first if there is such a one.
    fn threads(&self) -> Vec<ThreadId>;

    /// The registers of a thread.
    fn registers(&self, thread: ThreadId) -> Result<Registers>;

    /// The mappings, in order of address.
    fn mappings(&self) -> Vec<Mapping>;
}

impl<P: Process + ?Sized> Process for &P {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        (**self).read(address, buffer)
    }
    fn threads(&self) -> Vec<ThreadId> {
        (**self).threads()
    }
    fn registers(&self, thread: ThreadId) -> Result<Registers> {
        (**self).registers(thread)
    }
    fn mappings(&self) -> Vec<Mapping> {
        (**self).mappings()
    }
}

/// Reads exactly `buffer.len()` bytes.
pub fn read_exact(process: &dyn Process, address: Addr, buffer: &mut [u8]) -> Result<()> {
    let read = process.read(address, buffer);
    if read < buffer.len() {
        // The first page that is missing is what the user can act upon.
        let missing = address.plus(read as u64);
        let address = if read == 0 { address } else { missing };
        return Err(Error::Memory { address });
    }
    Ok(())
}

/// Reads a 64-bit word.
pub fn read_u64(process: &dyn Process, address: Addr) -> Result<u64> {
    let mut word = [0; 8];
    read_exact(process, address, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

/// Reads a pointer.
pub fn read_pointer(process: &dyn Process, address: Addr) -> Result<Addr> {
    read_u64(process, address).map(Addr)
}

/// Reads a string that ends in a zero byte, of at most `limit` bytes.
pub fn read_string(process: &dyn Process, address: Addr, limit: usize) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut chunk = [0; 64];
    while text.len() < limit {
        let at = address.plus(text.len() as u64);
        // Do not ask beyond a page: the next may be missing.
        let most = chunk.len().min(limit - text.len()) as u64;
        let room = (0x1000 - at.within(0x1000)).min(most) as usize;
        let Some(part) = chunk.get_mut(..room) else {
            break;
        };
        let read = process.read(at, part);
        if read == 0 {
            if text.is_empty() {
                return Err(Error::Memory { address: at });
            }
            break;
        }
        let part = part.get(..read).unwrap_or(&[]);
        if let Some(end) = part.iter().position(|&b| b == 0) {
            text.extend_from_slice(part.get(..end).unwrap_or(&[]));
            break;
        }
        text.extend_from_slice(part);
    }
    text.truncate(limit);
    Ok(text)
}

/// The sixteen general registers in the order of DWARF's numbers.
pub const GENERAL: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// DWARF's number of `rbx`.
pub const RBX: u16 = 3;
/// DWARF's number of `rbp`.
pub const RBP: u16 = 6;
/// DWARF's number of `rsp`.
pub const RSP: u16 = 7;
/// DWARF's number of the return address, used for `rip`.
pub const RIP: u16 = 16;

/// The registers of a thread.
///
/// The general ones are in DWARF's order, see [`GENERAL`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registers {
    /// `rax rdx rcx rbx rsi rdi rbp rsp r8`..`r15`.
    pub general: [u64; 16],
    /// The instruction that comes next.
    pub rip: u64,
    /// Flags.
    pub eflags: u64,
    /// `cs ss ds es fs gs`.
    pub segments: [u16; 6],
    /// Where thread-local storage hangs.
    pub fs_base: u64,
    /// The other segment base.
    pub gs_base: u64,
    /// The number of the system call in progress, or -1.
    pub orig_rax: u64,
    /// The FXSAVE image, with `st0`..`st7`, `xmm0`..`xmm15` and their control
    /// words, if it is known.
    pub fxsave: Option<Box<[u8; 512]>>,
    /// The upper halves of `ymm0`..`ymm15`, if they are known.
    pub ymm_high: Option<Box<[[u8; 16]; 16]>>,
}

impl Registers {
    /// The stack pointer.
    pub fn sp(&self) -> Addr {
        // As in `GENERAL`.
        let [_, _, _, _, _, _, _, rsp, ..] = self.general;
        Addr(rsp)
    }

    /// The instruction that comes next.
    pub fn pc(&self) -> Addr {
        Addr(self.rip)
    }

    /// The 16 bytes of `xmmN`.
    pub fn xmm(&self, number: usize) -> Option<[u8; 16]> {
        let image = self.fxsave.as_ref()?;
        let start = 160 + number.checked_mul(16)?;
        if number >= 16 {
            return None;
        }
        image.get(start..start + 16)?.try_into().ok()
    }

    /// The ten bytes of `stN`.
    pub fn st(&self, number: usize) -> Option<[u8; 10]> {
        let image = self.fxsave.as_ref()?;
        let start = 32 + number.checked_mul(16)?;
        if number >= 8 {
            return None;
        }
        image.get(start..start + 10)?.try_into().ok()
    }
}

//! The search for bytes that may be one of the instructions.
//!
//! It looks at every byte of every file that is captured while a program waits to
//! start, so that its speed is what matters here; what it finds is judged elsewhere.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use protocol::instruction::{ESCAPE, Form, Instruction};

/// The longest of the instructions from its opcode on, less one.
const OVERLAP: usize = 2;

/// How much is searched at a time: it stays in the cache.
const BLOCK: usize = 64 * 1024;

/// Bytes that may be one, from the opcode on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Find {
    /// Where the opcode is in the file.
    pub(super) offset: u64,
    /// As long as it is without prefixes. Of [`Instruction::Rdseed`] only they
    /// tell whether it is an [`Instruction::Rdpid`].
    pub(super) form: Form,
}

/// How many places are looked at in one go: the compiler makes a few vector
/// instructions of it.
const STRIDE: usize = 64;

/// Where the bytes occur in a stretch of the file.
pub(super) fn search(file: &File, offset: u64, len: u64) -> io::Result<Vec<Find>> {
    let mut block = vec![0; BLOCK.min(usize::try_from(len).unwrap_or(BLOCK))];
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let want = usize::try_from(len - at).unwrap_or(BLOCK).min(block.len());
        let got = read_up_to(file, block.get_mut(..want).unwrap_or(&mut []), offset + at)?;
        let bytes = block.get(..got).unwrap_or(&[]);
        let is_last = got < want || got <= OVERLAP || at + got as u64 == len;
        // What begins at the end of a block is found whole in the next one.
        let starts = if is_last { got } else { got - OVERLAP };
        search_block(bytes, starts, |place, form| {
            found.push(Find {
                offset: offset + at + place as u64,
                form,
            });
        });
        if is_last {
            break;
        }
        at += starts as u64;
    }
    Ok(found)
}

/// Finds what begins in the first `starts` bytes.
fn search_block(bytes: &[u8], starts: usize, mut found: impl FnMut(usize, Form)) {
    let mut look = |place: usize| {
        let rest = bytes.get(place..).unwrap_or(&[]);
        if let Some(form) = form_of(rest) {
            found(place, form);
        }
    };
    let mut at = 0;
    while at < starts {
        let here = bytes.get(at..).and_then(|b| b.first_chunk::<STRIDE>());
        let next = bytes.get(at + 1..).and_then(|b| b.first_chunk::<STRIDE>());
        let is_worth_it = match (here, next) {
            (Some(here), Some(next)) => {
                let mut any = 0;
                for (first, second) in here.iter().zip(next) {
                    let is_one = (*second == 0x31)
                        | (*second == 0x01)
                        | (*second == 0xa2)
                        | (*second == 0xc7)
                        | (*second == 0xae)
                        | (*second == 0x03);
                    any |= u8::from(*first == ESCAPE) & u8::from(is_one);
                }
                any != 0
            }
            _ => true,
        };
        if is_worth_it {
            (at..starts.min(at + STRIDE)).for_each(&mut look);
        }
        at += STRIDE;
    }
}

/// The instruction whose opcode is at the beginning of the bytes.
fn form_of(bytes: &[u8]) -> Option<Form> {
    let operand = bytes.get(2).copied();
    let (what, len) = match (bytes.first_chunk()?, operand) {
        ([ESCAPE, 0x31], _) => (Instruction::Counter, 2),
        ([ESCAPE, 0x01], Some(0xf9)) => (Instruction::Counter, 3),
        ([ESCAPE, 0xa2], _) => (Instruction::Cpuid, 2),
        ([ESCAPE, 0xc7], Some(0xf0..=0xf7)) => (Instruction::Rdrand, 3),
        ([ESCAPE, 0xc7], Some(0xf8..)) => (Instruction::Rdseed, 3),
        ([ESCAPE, 0x03], Some(0xc0..)) => (Instruction::Lsl, 3),
        ([ESCAPE, 0xae], Some(0xd8..=0xdf)) => (Instruction::Wrgsbase, 3),
        _ => return None,
    };
    Some(Form { what, len })
}

/// The instruction with these prefixes. None: the counter and `cpuid` need
/// none, and whoever writes some means something else.
pub(super) fn with_prefixes(form: Form, prefixes: &[u8]) -> Option<Form> {
    const OPERAND_SIZE: u8 = 0x66;
    const REP: u8 = 0xf3;
    let len = form.len + u8::try_from(prefixes.len()).ok()?;
    let is_rep = prefixes.contains(&REP);
    let is_known = |byte: &u8| matches!(*byte, OPERAND_SIZE | REP | 0x40..=0x4f);
    let what = match form.what {
        Instruction::Counter | Instruction::Cpuid if !prefixes.is_empty() => return None,
        Instruction::Rdseed if is_rep => Instruction::Rdpid,
        Instruction::Wrgsbase if is_rep => Instruction::Wrgsbase,
        // Without the prefix it is none.
        Instruction::Wrgsbase => return None,
        _ if is_rep || !prefixes.iter().all(is_known) => return None,
        what => what,
    };
    Some(Form { what, len })
}

pub(super) fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..)
        && !rest.is_empty()
    {
        match file.read_at(rest, at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

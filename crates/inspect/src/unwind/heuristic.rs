//! Callers without rules: what gdb reads from a function's prologue.

use protocol::id::Addr;

use crate::target::{Process, RBP};

use super::step::FrameRegisters;

/// What was found about a frame.
pub struct Guess {
    /// The caller's stack pointer.
    pub cfa: Addr,
    /// Where the caller's `rbp` is, if it was pushed.
    pub saved_rbp: Option<Addr>,
}

/// `endbr64`
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `mov %rsp,%rbp`, in its two encodings.
const MOVES: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
/// `push %rbp`
const PUSH: u8 = 0x55;
/// `ret`
const RET: u8 = 0xc3;

/// How far a prologue has run at `pc`.
enum Prologue {
    /// No frame pointer, or not pushed yet.
    Nothing,
    /// Pushed.
    Pushed,
    /// Pushed and set.
    Set,
}

fn prologue(process: &dyn Process, start: Addr, pc: Addr) -> Prologue {
    let mut code = [0u8; 12];
    let read = process.read(start, &mut code);
    let code = code.get(..read).unwrap_or(&[]);
    let (skipped, rest) = match code.strip_prefix(&ENDBR) {
        Some(rest) => (4, rest),
        None => (0, code),
    };
    if rest.first() != Some(&PUSH) || pc <= start.plus(skipped) {
        return Prologue::Nothing;
    }
    let after = start.plus(skipped + 1);
    let sets = rest.get(1..4).is_some_and(|b| MOVES.iter().any(|m| m == b));
    if sets && pc > after {
        Prologue::Set
    } else {
        Prologue::Pushed
    }
}

/// Where the code behind a prologue with a frame pointer is, or `start`.
pub fn after_prologue(process: &dyn Process, start: Addr) -> Addr {
    let mut code = [0u8; 12];
    let read = process.read(start, &mut code);
    let code = code.get(..read).unwrap_or(&[]);
    let (skipped, rest) = match code.strip_prefix(&ENDBR) {
        Some(rest) => (4, rest),
        None => (0, code),
    };
    let sets =
        rest.first() == Some(&PUSH) && rest.get(1..4).is_some_and(|b| MOVES.iter().any(|m| m == b));
    if sets { start.plus(skipped + 4) } else { start }
}

/// The caller's frame as far as it can be told without rules.
pub fn guess(
    process: &dyn Process,
    registers: &FrameRegisters,
    function: Option<Addr>,
    innermost: bool,
) -> Option<Guess> {
    let pc = registers.pc()?;
    let rsp = registers.sp()?;
    // About to return: the frame is gone already.
    let mut instruction = [0u8; 1];
    if innermost && process.read(pc, &mut instruction) == 1 && instruction == [RET] {
        return Some(Guess {
            cfa: rsp.plus(8),
            saved_rbp: None,
        });
    }
    let state = function.map_or(Prologue::Nothing, |start| prologue(process, start, pc));
    Some(match state {
        Prologue::Nothing => Guess {
            cfa: rsp.plus(8),
            saved_rbp: None,
        },
        Prologue::Pushed => Guess {
            cfa: rsp.plus(16),
            saved_rbp: Some(rsp),
        },
        Prologue::Set => {
            let rbp = Addr(registers.get(RBP)?);
            Guess {
                cfa: rbp.plus(16),
                saved_rbp: Some(rbp),
            }
        }
    })
}

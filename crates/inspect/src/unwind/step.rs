//! One step from a frame to its caller.

use std::sync::Arc;

use gimli::{CfaRule, RegisterRule};

use protocol::id::Addr;

use super::cfi::{Cfi, Rules};
use super::{heuristic, signal};
use crate::location::{Machine, evaluate_word};
use crate::target::{Process, RBP, RIP, RSP, Registers, read_u64};

/// How many registers are followed through frames: the general ones and the
/// return address.
const FOLLOWED: usize = 17;

/// The registers as they were in a frame.
#[derive(Debug, Clone)]
pub struct FrameRegisters {
    values: [Option<u64>; FOLLOWED],
    /// Where a caller's register was saved.
    saved: [Option<Addr>; FOLLOWED],
    /// The thread's registers now, for what is not followed.
    pub now: Arc<Registers>,
}

impl FrameRegisters {
    /// The registers of the innermost frame.
    pub fn new(now: Registers) -> Self {
        let mut values = [None; FOLLOWED];
        for (slot, value) in values.iter_mut().zip(now.general.iter().chain([&now.rip])) {
            *slot = Some(*value);
        }
        Self {
            values,
            saved: [None; FOLLOWED],
            now: Arc::new(now),
        }
    }

    /// A general register or the return address, by DWARF's number.
    pub fn get(&self, register: u16) -> Option<u64> {
        self.values.get(usize::from(register)).copied().flatten()
    }

    /// Where it was saved, if it was.
    pub fn saved_at(&self, register: u16) -> Option<Addr> {
        self.saved.get(usize::from(register)).copied().flatten()
    }

    /// The instruction pointer, of an outer frame the return address.
    pub fn pc(&self) -> Option<Addr> {
        self.get(RIP).map(Addr)
    }

    /// The stack pointer.
    pub fn sp(&self) -> Option<Addr> {
        self.get(RSP).map(Addr)
    }

    pub(crate) fn set(&mut self, register: u16, value: Option<u64>) {
        if let Some(slot) = self.values.get_mut(usize::from(register)) {
            *slot = value;
        }
        if let Some(slot) = self.saved.get_mut(usize::from(register)) {
            *slot = None;
        }
    }

    pub(crate) fn set_saved(&mut self, register: u16, value: u64, place: Addr) {
        self.set(register, Some(value));
        if let Some(slot) = self.saved.get_mut(usize::from(register)) {
            *slot = Some(place);
        }
    }
}

/// Why there is no caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The outermost frame, as its rules or its name say.
    Outermost,
    /// Memory that is needed is not there.
    Memory(Addr),
    /// The rules cannot be followed.
    Rules,
    /// The caller would be deeper in the stack than the callee.
    Inner,
    /// The next frame is this one again.
    Identical,
    /// As many as were asked for.
    Limit,
}

/// A caller.
#[derive(Debug, Clone)]
pub struct Step {
    /// The registers in the caller.
    pub registers: FrameRegisters,
    /// The callee's canonical frame address.
    pub cfa: Addr,
    /// Whether the callee is the frame of a signal's delivery.
    pub signal: bool,
}

/// What is known about the code of the frame.
pub struct Code<'a> {
    /// The rules of its module, and what to add to link-time addresses.
    pub cfi: Option<(&'a Cfi, u64)>,
    /// Where its function begins.
    pub function: Option<Addr>,
    /// Address at which to look for rules: a return address may be behind its
    /// function's end.
    pub lookup: Addr,
    /// Whether it is the innermost frame.
    pub innermost: bool,
}

/// The rules of a frame, if it has any.
pub fn rules<'a>(code: &Code<'a>) -> Option<(Rules, &'a Cfi, u64)> {
    let (cfi, bias) = code.cfi?;
    let rules = cfi.rules(code.lookup.linked(bias))?;
    Some((rules, cfi, bias))
}

/// Unwinds one frame.
pub fn step(
    process: &dyn Process,
    registers: &FrameRegisters,
    code: &Code<'_>,
) -> Result<Step, Stop> {
    if let Some((rules, cfi, bias)) = rules(code) {
        return by_rules(process, registers, &rules, cfi, bias);
    }
    let rsp = registers.sp().ok_or(Stop::Rules)?;
    if registers
        .pc()
        .is_some_and(|pc| signal::is_trampoline(process, pc))
    {
        let caller = signal::interrupted(process, rsp, registers).ok_or(Stop::Memory(rsp))?;
        return Ok(Step {
            registers: caller,
            cfa: rsp,
            signal: true,
        });
    }
    let guess =
        heuristic::guess(process, registers, code.function, code.innermost).ok_or(Stop::Rules)?;
    let place = guess.cfa.minus(8);
    let pc = read_u64(process, place).map_err(|_| Stop::Memory(place))?;
    let mut caller = registers.clone();
    caller.set_saved(RIP, pc, place);
    caller.set(RSP, Some(guess.cfa.0));
    if let Some(place) = guess.saved_rbp {
        let value = read_u64(process, place).map_err(|_| Stop::Memory(place))?;
        caller.set_saved(RBP, value, place);
    }
    Ok(Step {
        registers: caller,
        cfa: guess.cfa,
        signal: false,
    })
}

/// The canonical frame address of a frame.
pub fn frame_address(
    process: &dyn Process,
    registers: &FrameRegisters,
    code: &Code<'_>,
) -> Option<Addr> {
    match rules(code) {
        Some((rules, cfi, bias)) => cfa(process, registers, &rules, cfi, bias).ok(),
        None => heuristic::guess(process, registers, code.function, code.innermost).map(|g| g.cfa),
    }
}

fn cfa(
    process: &dyn Process,
    registers: &FrameRegisters,
    rules: &Rules,
    cfi: &Cfi,
    bias: u64,
) -> Result<Addr, Stop> {
    match &rules.cfa {
        CfaRule::RegisterAndOffset { register, offset } => {
            let base = registers.get(register.0).map(Addr);
            Ok(base.ok_or(Stop::Rules)?.offset(*offset))
        }
        CfaRule::Expression(expression) => {
            let expression = cfi.expression(rules, expression).ok_or(Stop::Rules)?;
            evaluate_word(
                &Machine::unwinding(process, registers, bias),
                expression,
                rules.encoding,
                None,
            )
            .map(Addr)
            .map_err(|_| Stop::Rules)
        }
    }
}

fn by_rules(
    process: &dyn Process,
    registers: &FrameRegisters,
    rules: &Rules,
    cfi: &Cfi,
    bias: u64,
) -> Result<Step, Stop> {
    let cfa = cfa(process, registers, rules, cfi, bias)?;
    let mut caller = registers.clone();
    // What is not said about: the stack pointer is the frame address, the
    // rest is as it was.
    caller.set(RSP, Some(cfa.0));
    let mut outermost = false;
    let mut found_return = false;
    for (register, rule) in &rules.registers {
        let target = if *register == rules.return_register {
            found_return = true;
            RIP
        } else {
            *register
        };
        if usize::from(target) >= FOLLOWED {
            continue;
        }
        let evaluate = |expression: &gimli::UnwindExpression<usize>| {
            let expression = cfi.expression(rules, expression).ok_or(Stop::Rules)?;
            evaluate_word(
                &Machine::unwinding(process, registers, bias),
                expression,
                rules.encoding,
                Some(cfa.0),
            )
            .map_err(|_| Stop::Rules)
        };
        match rule {
            RegisterRule::Undefined => {
                caller.set(target, None);
                outermost |= target == RIP;
            }
            RegisterRule::SameValue => caller.set(target, registers.get(*register)),
            RegisterRule::Offset(offset) => {
                let place = cfa.offset(*offset);
                match read_u64(process, place) {
                    Ok(value) => caller.set_saved(target, value, place),
                    Err(_) if target == RIP => return Err(Stop::Memory(place)),
                    Err(_) => caller.set(target, None),
                }
            }
            RegisterRule::ValOffset(offset) => {
                caller.set(target, Some(cfa.offset(*offset).0));
            }
            RegisterRule::Register(other) => caller.set(target, registers.get(other.0)),
            RegisterRule::Expression(expression) => {
                let place = Addr(evaluate(expression)?);
                match read_u64(process, place) {
                    Ok(value) => caller.set_saved(target, value, place),
                    Err(_) if target == RIP => return Err(Stop::Memory(place)),
                    Err(_) => caller.set(target, None),
                }
            }
            RegisterRule::ValExpression(expression) => {
                caller.set(target, Some(evaluate(expression)?));
            }
            RegisterRule::Constant(value) => caller.set(target, Some(*value)),
            _ => caller.set(target, None),
        }
    }
    if outermost || !found_return {
        return Err(Stop::Outermost);
    }
    Ok(Step {
        registers: caller,
        cfa,
        signal: rules.signal,
    })
}

//! What a debugger must know to step: where a line's code is, where a
//! function's code is, what the next instruction does.

use std::ops::Range;

use iced_x86::{FlowControl, OpKind, Register};

use protocol::id::Addr;

use crate::disassemble::decode;
use crate::dwarf::blocks::BlockKind;
use crate::dwarf::die::Die;
use crate::frames::{Frame, FrameKind, SourceLocation, Stack};
use crate::inspector::Inspector;
use crate::target::read_pointer;
use crate::unwind::FrameRegisters;

/// What an instruction does to the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Goes on behind it.
    Next,
    /// Calls; the address, if it can be told from registers and memory.
    Call(Option<Addr>),
    /// Jumps, perhaps only if a condition holds.
    Jump {
        /// Where to, if it can be told.
        target: Option<Addr>,
        /// Whether it may also go on behind it.
        conditional: bool,
    },
    /// Returns.
    Return,
    /// Enters the kernel.
    SystemCall,
}

/// An instruction, as far as stepping is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    /// Where it is.
    pub address: Addr,
    /// Its length.
    pub length: u64,
    /// What it does.
    pub flow: Flow,
}

/// The line that a frame is in, for `step` and `next`.
#[derive(Debug, Clone)]
pub struct StepRange {
    /// The place in the source.
    pub place: SourceLocation,
    /// The addresses of the line around the program counter: stepping goes on
    /// while it is in one of them and the frame is the same.
    pub ranges: Vec<(Addr, Addr)>,
    /// The addresses of the frame's function.
    pub function: Vec<(Addr, Addr)>,
}

/// The ways out of the code of an inlined function.
#[derive(Debug, Clone)]
pub struct Exits {
    /// Its code.
    pub ranges: Vec<Range<Addr>>,
    /// Where its instructions lead that is not its code.
    pub addresses: Vec<Addr>,
    /// Its jumps to where only registers and memory tell.
    pub jumps: Vec<Addr>,
    /// Where the function that it is inlined into returns to, and the frame
    /// address that tells this return from one of a recursion.
    pub returns: Option<(Addr, Addr)>,
    /// The frame address of the function that it is inlined into.
    pub cfa: Addr,
    /// The function that it was called by, which may be inlined as well.
    pub caller: Die,
}

impl Exits {
    /// Whether an address is still inside.
    pub fn is_inside(&self, address: Addr) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    fn lead_to(&mut self, address: Addr) {
        if !self.is_inside(address) && !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }
}

/// The ways into the code of an inlined function.
#[derive(Debug, Clone)]
pub struct Entries {
    /// Its code.
    pub ranges: Vec<Range<Addr>>,
    /// The instructions of the function that it is inlined into that are not its
    /// code and can lead to it: one of them is what was executed before it.
    pub addresses: Vec<Addr>,
    /// The frame address of the function that it is inlined into.
    pub cfa: Addr,
}

impl Entries {
    /// Whether an address is inside.
    pub fn is_inside(&self, address: Addr) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}

impl Inspector<'_> {
    /// The instruction at an address. `registers` tell where one through a
    /// pointer goes.
    pub fn instruction(
        &self,
        address: Addr,
        registers: Option<&FrameRegisters>,
    ) -> Option<Instruction> {
        let (instruction, bytes) = decode(self, address)?;
        let target = || -> Option<Addr> {
            match instruction.op0_kind() {
                OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16 => {
                    Some(Addr(instruction.near_branch_target()))
                }
                OpKind::Register => registers?
                    .get(number(instruction.op0_register())?)
                    .map(Addr),
                OpKind::Memory => {
                    let place =
                        instruction.virtual_address(0, 0, |register, _, _| match register {
                            Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
                            register => registers?.get(number(register)?),
                        })?;
                    read_pointer(self.process, Addr(place)).ok()
                }
                _ => None,
            }
        };
        let flow = match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                // System calls are calls to the decoder.
                if instruction.mnemonic() == iced_x86::Mnemonic::Syscall {
                    Flow::SystemCall
                } else {
                    Flow::Call(target())
                }
            }
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Flow::Jump {
                target: target(),
                conditional: false,
            },
            FlowControl::ConditionalBranch => Flow::Jump {
                target: target(),
                conditional: true,
            },
            FlowControl::Return => Flow::Return,
            FlowControl::Interrupt => Flow::SystemCall,
            _ if instruction.mnemonic() == iced_x86::Mnemonic::Syscall => Flow::SystemCall,
            _ => Flow::Next,
        };
        Some(Instruction {
            address,
            length: bytes.len() as u64,
            flow,
        })
    }

    /// The line of a frame. `None` without line information: then `step` is
    /// `finish`, and `next` goes instruction by instruction.
    pub fn step_range(&self, frame: &Frame) -> Option<StepRange> {
        let code = self.code_at(frame.lookup)?;
        let table = code.unit.lines(code.info);
        let at = code.loaded.to_link(frame.lookup);
        let here = table.at(at)?;
        let mut ranges = vec![(here.start, here.end)];
        // The pieces that follow without a gap and are of the same line, and
        // those of line 0, belong to it.
        let mut end = here.end;
        while let Some(next) = table.at(end) {
            if next.line != here.line || next.file != here.file || next.end <= end {
                break;
            }
            ranges.push((next.start, next.end));
            end = next.end;
        }
        let to_process = |list: &[(u64, u64)]| {
            list.iter()
                .map(|&(s, e)| (code.loaded.to_process(s), code.loaded.to_process(e)))
                .collect::<Vec<_>>()
        };
        let function = frame
            .function_block()
            .map_or(Vec::new(), |b| to_process(&b.ranges));
        Some(StepRange {
            place: SourceLocation {
                file: table.files.get(here.file)?.clone(),
                line: here.line,
            },
            ranges: to_process(&ranges),
            function,
        })
    }

    /// Where lines begin in the function of an address, inlined ones included.
    pub fn line_starts(&self, address: Addr) -> Vec<Addr> {
        let Some(code) = self.code_at(address) else {
            return Vec::new();
        };
        let ranges = code.function.map_or(&[][..], |f| f.ranges.as_slice());
        let table = code.unit.lines(code.info);
        let mut found = Vec::new();
        for (rows, &(start, end)) in table
            .rows
            .iter()
            .flat_map(|rows| ranges.iter().map(move |range| (rows, range)))
        {
            let from = rows.partition_point(|row| row.address < start);
            let inside = rows.iter().skip(from).take_while(|row| row.address < end);
            let begins = inside.filter(|row| row.is_stmt && row.line != 0);
            found.extend(begins.map(|row| code.loaded.to_process(row.address)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether an address is in the prologue of its function: variables are
    /// not at their places yet.
    pub fn in_prologue(&self, address: Addr) -> bool {
        let Some(place) = self.code_at(address) else {
            return false;
        };
        let Some(function) = place.function else {
            return false;
        };
        let body = self.body_of(&place.loaded, function.entry);
        let start = place.loaded.to_process(function.entry);
        start <= address && address < body
    }

    /// Where a call through the procedure linkage table arrives, if `address`
    /// is in it and the slot was resolved.
    pub fn behind_plt(&self, address: Addr) -> Option<Addr> {
        let module = self.module_at(address)?;
        let section = module.module.image.section_at(module.to_link(address))?;
        if !section.name.starts_with(".plt") {
            return None;
        }
        // `endbr64`, perhaps, and then the jump.
        let mut at = address;
        for _ in 0..3 {
            let instruction = self.instruction(at, None)?;
            if let Flow::Jump { .. } = instruction.flow {
                let (raw, _) = decode(self, at)?;
                if raw.is_ip_rel_memory_operand() {
                    let slot = Addr(raw.ip_rel_memory_address());
                    let target = read_pointer(self.process, slot).ok()?;
                    // Not resolved yet: it leads back into the table.
                    return (self.module_at(target)?.start != module.start).then_some(target);
                }
                return None;
            }
            at = at.plus(instruction.length);
        }
        None
    }

    /// Where `finish` stops: the address that a frame returns to, and the
    /// frame address that tells this return from one of a recursion. Of an
    /// inlined frame, those of the function that it is inlined into: nothing
    /// returns from itself, see [`Inspector::exits`].
    pub fn return_place(&self, stack: &Stack, level: usize) -> Option<(Addr, Addr)> {
        let frame = stack.frames.get(level)?;
        let caller = stack.frames.iter().find(|f| f.physical > frame.physical)?;
        Some((caller.pc, frame.cfa?))
    }

    /// The ways out of an inlined frame. `None` of one that was called.
    pub fn exits(&self, stack: &Stack, level: usize) -> Option<Exits> {
        let frame = stack.frames.get(level)?;
        if frame.kind != FrameKind::Inlined {
            return None;
        }
        let (block, module) = (frame.function_block()?, frame.module?);
        let to_process = |&(start, end): &(u64, u64)| {
            let (start, end) = (module.to_process(start), module.to_process(end));
            start..end
        };
        let ranges: Vec<Range<Addr>> = block.ranges.iter().map(to_process).collect();
        let caller = stack.frames.get(level + 1)?;
        let mut exits = Exits {
            ranges: ranges.clone(),
            addresses: Vec::new(),
            jumps: Vec::new(),
            returns: self.return_place(stack, level),
            cfa: frame.cfa?,
            caller: caller.function_block()?.die,
        };
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let instruction = self.instruction(at, None)?;
                let next = at.checked_plus(instruction.length)?;
                let goes_on = match instruction.flow {
                    Flow::Jump {
                        target,
                        conditional,
                    } => {
                        match target {
                            Some(target) => exits.lead_to(target),
                            None => exits.jumps.push(at),
                        }
                        conditional
                    }
                    Flow::Return => false,
                    Flow::Next | Flow::Call(_) | Flow::SystemCall => true,
                };
                if goes_on {
                    exits.lead_to(next);
                }
                at = next;
            }
        }
        Some(exits)
    }

    /// The ways into the code of a frame's function, if it is inlined.
    pub fn entries(&self, stack: &Stack, level: usize) -> Option<Entries> {
        let frame = stack.frames.get(level)?;
        if frame.kind != FrameKind::Inlined {
            return None;
        }
        let module = frame.module?;
        let to_process = |&(start, end): &(u64, u64)| {
            let (start, end) = (module.to_process(start), module.to_process(end));
            start..end
        };
        let mut entries = Entries {
            ranges: frame
                .function_block()?
                .ranges
                .iter()
                .map(to_process)
                .collect(),
            addresses: Vec::new(),
            cfa: frame.cfa?,
        };
        let mut outer = stack.frames.iter().skip(level + 1);
        let whole = outer.find(|outer| outer.kind != FrameKind::Inlined)?;
        for range in whole.function_block()?.ranges.iter().map(to_process) {
            let mut at = range.start;
            while at < range.end {
                let instruction = self.instruction(at, None)?;
                let next = at.checked_plus(instruction.length)?;
                let leads = match instruction.flow {
                    // Nobody knows where to.
                    Flow::Jump { target: None, .. } => true,
                    Flow::Jump {
                        target: Some(target),
                        conditional,
                    } => entries.is_inside(target) || conditional && entries.is_inside(next),
                    Flow::Return => false,
                    Flow::Next | Flow::Call(_) | Flow::SystemCall => entries.is_inside(next),
                };
                if leads && !entries.is_inside(at) {
                    entries.addresses.push(at);
                }
                at = next;
            }
        }
        Some(entries)
    }

    /// The functions that begin to be inlined exactly at an address, outermost
    /// first: a step into them moves no instruction.
    pub fn inlined_at_start(&self, frame: &Frame) -> Vec<String> {
        let (Some(function), Some(module)) = (frame.function, frame.module) else {
            return Vec::new();
        };
        let at = module.to_link(frame.pc);
        let mut names: Vec<String> = function
            .chain(at)
            .into_iter()
            .filter_map(|index| function.blocks.get(index))
            .filter(|b| matches!(b.kind, BlockKind::Inlined { .. }))
            .filter(|b| b.ranges.iter().any(|(start, _)| *start == at))
            .filter_map(|b| crate::dwarf::scopes::function_name(&b.die.read()?))
            .collect();
        names.reverse();
        names
    }
}

/// DWARF's number of a register.
fn number(register: Register) -> Option<u16> {
    Some(match register {
        Register::RAX => 0,
        Register::RDX => 1,
        Register::RCX => 2,
        Register::RBX => 3,
        Register::RSI => 4,
        Register::RDI => 5,
        Register::RBP => 6,
        Register::RSP => 7,
        Register::R8 => 8,
        Register::R9 => 9,
        Register::R10 => 10,
        Register::R11 => 11,
        Register::R12 => 12,
        Register::R13 => 13,
        Register::R14 => 14,
        Register::R15 => 15,
        Register::RIP => 16,
        _ => return None,
    })
}

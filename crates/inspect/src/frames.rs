//! Stacks: frames with what is inlined into them.
//!
//! Where a stack ends, which address a line is looked up at (the call, not
//! the place behind it), and how inlined functions become frames are as in
//! gdb.

use std::collections::HashSet;

use protocol::id::Addr;

use crate::dwarf::Language;
use crate::dwarf::blocks::{Block, BlockKind, Function};
use crate::dwarf::lines::{SourceFile, normalized};
use crate::dwarf::scopes;
use crate::error::Result;
use crate::inspector::{Inspector, Loaded};
use crate::lookup::Location;
use crate::target::{RSP, ThreadId};
use crate::unwind::{Code, FrameRegisters, Step, Stop, frame_address, step};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A function that was called.
    Normal,
    /// A function whose code is inside of its caller's.
    Inlined,
    /// The kernel's, between a signal handler and what it interrupted.
    Signal,
    /// A function that has left the stack by calling another as its last act.
    TailCall,
}

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file.
    pub file: SourceFile,
    /// The line.
    pub line: u32,
}

/// A frame.
#[derive(Debug, Clone)]
pub struct Frame {
    /// 0 is the innermost.
    pub level: usize,
    /// What it is.
    pub kind: FrameKind,
    /// Where it goes on.
    pub pc: Addr,
    /// The address that stands for it: the call, where it waits for one.
    pub lookup: Addr,
    /// The name of its function.
    pub name: Option<String>,
    /// The place in the source.
    pub place: Option<SourceLocation>,
    /// Whether `pc` is inside of a line, not at its start.
    pub inside_line: bool,
    /// The registers in it.
    pub registers: FrameRegisters,
    /// Its canonical frame address.
    pub cfa: Option<Addr>,
    /// The module.
    pub module: Option<Loaded>,
    /// The function that its code is in.
    pub function: Option<&'static Function>,
    /// The block of `function` that is this frame's function.
    pub block: usize,
    /// The innermost block in it.
    pub innermost: Option<usize>,
    /// The index, among the frames that are not inlined, of the one it is
    /// part of.
    pub physical: usize,
}

impl Frame {
    /// The language of its function.
    pub fn language(&self) -> Language {
        self.function.map_or(Language::C, |f| f.die.language())
    }

    /// The block that is its function.
    pub fn function_block(&self) -> Option<&'static Block> {
        self.function?.blocks.get(self.block)
    }
}

/// The stack of a thread.
#[derive(Debug, Clone)]
pub struct Stack {
    /// The frames, innermost first.
    pub frames: Vec<Frame>,
    /// Why there are no more.
    pub stop: Stop,
}

impl Stack {
    /// The stack as the function of a [`Location`] is entered: without the
    /// functions inlined into it whose code is at that address too. As it is,
    /// if it does not stand there.
    pub fn entering(mut self, location: &Location) -> Self {
        if let Some(level) = frame_of(&self, location) {
            self.frames.drain(..level);
            for frame in &mut self.frames {
                frame.level -= level;
            }
        }
        self
    }

    /// What gdb says at the end of a stack that ended too soon.
    pub fn complaint(&self) -> Option<String> {
        match &self.stop {
            Stop::Outermost | Stop::Limit => None,
            Stop::Memory(address) => Some(format!("Cannot access memory at address {address:#x}")),
            Stop::Rules => Some("the rules for unwinding cannot be followed".to_string()),
            Stop::Inner => Some("previous frame inner to this frame (corrupt stack?)".to_string()),
            Stop::Identical => {
                Some("previous frame identical to this frame (corrupt stack?)".to_string())
            }
        }
    }
}

/// Whether a source file is one of the toolchain's: of the standard library of
/// Rust or C++, or of the crates that the former is made with.
pub fn is_library_source(path: &str) -> bool {
    let rust = path.starts_with("/rustc/")
        || path.starts_with("/rust/deps/")
        || path.contains("/lib/rustlib/src/rust/library/");
    let cpp = path.contains("/include/c++/")
        || path.contains("/libstdc++-v3/")
        || path.contains("/libcxx/include/");
    rust || cpp
}

/// The level of the frame to show first at a stop: the innermost, or, in code
/// of the toolchain's library that is inlined into the user's, the innermost
/// of the user's there.
///
/// A function of the library that was called is shown as itself.
pub fn user_frame(stack: &Stack) -> usize {
    let in_library = |frame: &Frame| {
        let place = frame.place.as_ref();
        place.is_some_and(|place| is_library_source(&normalized(&place.file.path)))
    };
    let here = stack.frames.iter().take_while(|f| f.physical == 0);
    let found = here.enumerate().find(|(_, frame)| !in_library(frame));
    found.map_or(0, |(level, _)| level)
}

/// The level of the frame of the function that a [`Location`] is in, if the
/// stack stands there: of an inlined function the frame of that instance, even
/// where the code at the address is of another one inside of it.
pub fn frame_of(stack: &Stack, location: &Location) -> Option<usize> {
    if stack.frames.first()?.pc != location.address {
        return None;
    }
    let Some(instance) = location.instance else {
        return Some(0);
    };
    stack.frames.iter().position(|frame| {
        let block = frame.function_block();
        frame.physical == 0 && block.is_some_and(|block| block.die == instance)
    })
}

impl Inspector<'_> {
    /// The stack of a thread, of at most `limit` frames.
    pub fn stack(&self, thread: ThreadId, limit: usize) -> Result<Stack> {
        let registers = FrameRegisters::new(self.process.registers(thread)?);
        Ok(self.stack_from(registers, limit))
    }

    /// The stack that these registers are the innermost frame of.
    pub fn stack_from(&self, registers: FrameRegisters, limit: usize) -> Stack {
        let mut frames = Vec::new();
        let mut registers = registers;
        let mut after_call = false;
        let mut seen = HashSet::new();
        let mut physical = 0;
        let main = self.main_function();
        let stop = loop {
            let Some(pc) = registers.pc() else {
                break Stop::Outermost;
            };
            let lookup = if after_call { pc.minus(1) } else { pc };
            let place = self.code_at(lookup);
            let module = self.module_at(lookup).or_else(|| self.module_at(pc));
            let function = place.as_ref().and_then(|p| p.function);
            let start = function
                .zip(module)
                .map(|(f, m)| m.to_process(f.entry))
                .or_else(|| self.function_name(lookup).map(|(_, start)| start));
            let code = Code {
                cfi: module.map(|m| (m.module.cfi(), m.bias)),
                function: start,
                lookup,
                innermost: physical == 0,
            };
            let cfa = frame_address(self.process, &registers, &code);
            let next = step(self.process, &registers, &code);
            let signal = matches!(&next, Ok(Step { signal: true, .. }));
            let base = Frame {
                level: frames.len(),
                kind: if signal {
                    FrameKind::Signal
                } else {
                    FrameKind::Normal
                },
                pc,
                lookup,
                name: None,
                place: None,
                inside_line: true,
                registers: registers.clone(),
                cfa,
                module,
                function,
                block: 0,
                innermost: None,
                physical,
            };
            self.expand(base, &mut frames);
            if frames.len() >= limit {
                frames.truncate(limit);
                break Stop::Limit;
            }
            let last = start.is_some() && (start == main || self.is_entry(start));
            // Nobody calls from address 0; a signal may come there.
            let nowhere = pc.is_null() && after_call;
            if !signal && last || nowhere {
                break Stop::Outermost;
            }
            let next = match next {
                Ok(next) => next,
                Err(stop) => break stop,
            };
            if !seen.insert((next.cfa, next.registers.pc())) {
                break Stop::Identical;
            }
            // A handler may run on a stack of its own; a callee may not.
            let inner = next.registers.get(RSP) < registers.get(RSP);
            if inner && !signal && physical > 0 {
                break Stop::Inner;
            }
            after_call = !signal;
            registers = next.registers;
            physical += 1;
            if after_call {
                self.tail_frames(&mut frames, &registers, function, physical);
            }
        };
        Stack { frames, stop }
    }

    /// The address of the program's main function, at which stacks end.
    fn main_function(&self) -> Option<Addr> {
        let main = self.main_module()?;
        let symbol = main.module.symbols().named("main").next()?;
        let address = main.to_process(symbol.address);
        // In Rust it is only what calls the program's own.
        let ours = self
            .code_at(address)
            .is_none_or(|place| place.function.is_none())
            && main.module.info().is_some_and(|info| {
                let some = info.units.iter().take(64);
                some.into_iter().any(|u| u.language(info) == Language::Rust)
            });
        (!ours).then_some(address)
    }

    fn is_entry(&self, start: Option<Addr>) -> bool {
        self.main_module().is_some_and(|m| {
            m.module.image.entry != 0 && start == Some(m.to_process(m.module.image.entry))
        })
    }

    /// Adds a frame and the functions inlined at its address.
    pub(crate) fn expand(&self, base: Frame, frames: &mut Vec<Frame>) {
        let line = self.line_at(base.lookup);
        let mut place = line.as_ref().map(|l| SourceLocation {
            file: l.file.clone(),
            line: l.line,
        });
        // In the middle of a line, unless it is the first frame of a stop at
        // the line's start.
        let mut inside_line = line
            .as_ref()
            .is_none_or(|l| l.start != base.pc || !l.is_stmt);
        if base.kind == FrameKind::Signal {
            frames.push(Frame {
                level: frames.len(),
                place,
                ..base
            });
            return;
        }
        let (Some(function), Some(module)) = (base.function, base.module) else {
            let name = self.function_name(base.lookup).map(|(name, _)| name);
            frames.push(Frame {
                level: frames.len(),
                name,
                place,
                inside_line,
                ..base
            });
            return;
        };
        let chain = function.chain(module.to_link(base.lookup));
        let mut innermost = chain.first().copied();
        for &index in &chain {
            let Some(block) = function.blocks.get(index) else {
                continue;
            };
            match block.kind {
                BlockKind::Lexical => continue,
                BlockKind::Inlined {
                    call_file,
                    call_line,
                } => {
                    let name = block.die.read().and_then(|e| scopes::function_name(&e));
                    frames.push(Frame {
                        level: frames.len(),
                        kind: FrameKind::Inlined,
                        name,
                        place: place.clone(),
                        inside_line,
                        block: index,
                        innermost,
                        ..base.clone()
                    });
                    let table = block.die.unit.lines(block.die.info);
                    place = table.file(call_file).map(|file| SourceLocation {
                        file: file.clone(),
                        line: u32::try_from(call_line).unwrap_or(0),
                    });
                    // A call that the compiler made up is in no line.
                    if call_line == 0 {
                        place = None;
                    }
                    inside_line = false;
                    innermost = block.parent;
                }
                BlockKind::Function => {
                    let name = function_display_name(function)
                        .or_else(|| self.function_name(base.lookup).map(|(n, _)| n));
                    frames.push(Frame {
                        level: frames.len(),
                        name,
                        place: place.clone(),
                        inside_line,
                        block: index,
                        innermost,
                        ..base.clone()
                    });
                }
            }
        }
        if chain.is_empty() {
            frames.push(Frame {
                level: frames.len(),
                name: function_display_name(function),
                place,
                inside_line,
                ..base
            });
        }
    }
}

fn function_display_name(function: &Function) -> Option<String> {
    (!function.name.is_empty()).then(|| function.name.clone())
}

//! What only a program that is alive allows: variables and registers get other
//! values, and functions are called.

use inspect::types::Kind;
use inspect::value::Value;
use protocol::id::{Addr, ProcessId, ThreadNo};
use target::{Arrival, Cancel, Happening, Registers, Stops};

use crate::group::Group;
use crate::reason::Seen;
use crate::view::{FrameRef, seen_in};
use crate::{Error, Result};

/// DWARF's encoding of floating point numbers.
const FLOAT: u8 = 4;

/// What a function that was called gave.
#[derive(Clone, Debug)]
pub enum Called {
    Nothing,
    Value(Seen),
}

/// Below the stack pointer, this much belongs to the function that stands there.
pub(crate) const RED_ZONE: u64 = 128;

/// A call that is set up.
struct Setup {
    function: Addr,
    arguments: Vec<u64>,
    result: Option<inspect::types::Ty>,
    /// Where it returns to: code that nobody executes any more.
    back: Addr,
}

impl Group {
    /// Gives a variable, or a register (`$rax`), in a frame another value: that of an
    /// expression there. Returns what it is then.
    pub fn assign(&mut self, frame: FrameRef, place: &str, expression: &str) -> Result<Seen> {
        let process = frame.thread.process;
        if let Some(name) = place.strip_prefix('$') {
            return self.set_register(frame, name, expression);
        }
        let view = self.at(process)?;
        let (address, bytes) = view.in_frame(frame.thread.thread, frame.level, |scope| {
            let to = scope.evaluate(place)?;
            let from = scope.evaluate(expression)?;
            let process = scope.inspector.process;
            Ok((to.address(), bytes_for(&to, &from, process)?))
        })?;
        drop(view);
        let address = address.ok_or_else(|| Error::NotInMemory(place.to_string()))?;
        let written = self.alive(process)?.write_memory(address, &bytes)?;
        if written < bytes.len() {
            return Err(Error::NotWritten(address));
        }
        self.evaluate(frame, place)
    }

    fn set_register(&mut self, frame: FrameRef, name: &str, expression: &str) -> Result<Seen> {
        let process = frame.thread.process;
        let Addr(value) = {
            let view = self.at(process)?;
            view.in_frame(frame.thread.thread, frame.level, |scope| {
                scope
                    .evaluate(expression)?
                    .to_address(scope.inspector.process)
            })?
        };
        let (thread, mut registers) = self.registers_of(frame)?;
        let place = registers.by_name(name);
        let place = place.filter(|_| frame.level == 0);
        *place.ok_or_else(|| Error::NoRegister(name.to_string()))? = value;
        // What it was in is not begun again.
        registers.orig_rax = u64::MAX;
        self.alive(process)?.write_registers(thread, &registers)?;
        self.evaluate(frame, &format!("${name}"))
    }

    /// The thread of a frame, and its registers.
    fn registers_of(&mut self, frame: FrameRef) -> Result<(ThreadNo, Registers)> {
        let view = self.at(frame.thread.process)?;
        let target = view.target();
        let thread = frame.thread.thread.unwrap_or(target.thread());
        let state = target.thread_state(thread).ok_or(Error::NoFrame)?;
        Ok((thread, state.registers))
    }

    /// Calls a function in the process of a frame, by its thread: `f(1, x)`. All
    /// threads of the process run meanwhile, no other process does. Afterwards the
    /// thread stands where it stood.
    pub fn call(&mut self, frame: FrameRef, text: &str, cancel: &Cancel) -> Result<Called> {
        let process = frame.thread.process;
        let setup = self.set_up(frame, text)?;
        let (thread, before) = self.registers_of(frame)?;
        let mut registers = before;
        let room = before.sp().minus(RED_ZONE + 256);
        let stack = room.minus(room.within(16));
        registers.rsp = stack.minus(8).0;
        registers.rip = setup.function.0;
        // No vector registers are used for what varies.
        registers.rax = 0;
        registers.orig_rax = u64::MAX;
        let r = &mut registers;
        let places = [
            &mut r.rdi, &mut r.rsi, &mut r.rdx, &mut r.rcx, &mut r.r8, &mut r.r9,
        ];
        for (place, argument) in places.into_iter().zip(&setup.arguments) {
            *place = *argument;
        }
        let alive = self.alive(process)?;
        let signal = alive.pending(thread);
        alive.set_pending(thread, None)?;
        alive.choose(thread)?;
        alive.write_memory(stack.minus(8), &setup.back.0.to_le_bytes())?;
        alive.write_registers(thread, &registers)?;
        let came = self.run_call(process, thread, &setup, stack, cancel);
        // Whatever came of it, it is over.
        let gave = self.registers_of(frame).map(|(_, registers)| registers.rax);
        let alive = self.alive(process)?;
        alive.write_registers(thread, &before)?;
        alive.set_pending(thread, signal)?;
        alive.choose(thread)?;
        let i = self.index(process)?;
        self.here(i)?;
        came?;
        let gave = gave?;
        let Some(ty) = setup.result else {
            return Ok(Called::Nothing);
        };
        let value = Value::from_integer(ty, i128::from(gave));
        let view = self.at(process)?;
        let seen = view.in_frame(frame.thread.thread, frame.level, |scope| {
            Ok(seen_in(scope, &value))
        });
        Ok(Called::Value(seen?))
    }

    /// What a call is made of.
    fn set_up(&mut self, frame: FrameRef, text: &str) -> Result<Setup> {
        let (name, arguments) = parts(text).ok_or_else(|| Error::NoCall(text.to_string()))?;
        let view = self.at(frame.thread.process)?;
        let main = view.inspector().main_module();
        let back = main.map(|main| main.to_process(main.module.image.entry));
        let back = back.ok_or_else(|| Error::NoCall(text.to_string()))?;
        let found = view.in_frame(frame.thread.thread, frame.level, |scope| {
            let process = scope.inspector.process;
            let function = scope.evaluate(name)?;
            let result = match &function.ty.peeled().kind {
                Kind::Function { result, .. } => result.get(),
                _ => return Ok(None),
            };
            let result = match &result.peeled().kind {
                Kind::Void => None,
                _ => Some(result),
            };
            let mut values = Vec::new();
            for argument in &arguments {
                let value = scope.evaluate(argument)?;
                let fits = match &value.ty.peeled().kind {
                    Kind::Base(encoding) => encoding.0 != FLOAT,
                    Kind::Enum(_) | Kind::Pointer(_) | Kind::Array { .. } => true,
                    Kind::Function { .. } => true,
                    _ => false,
                };
                if !fits {
                    return Ok(None);
                }
                values.push(value.to_address(process)?.0);
            }
            let fits = |ty: &inspect::types::Ty| match &ty.peeled().kind {
                Kind::Base(encoding) => encoding.0 != FLOAT,
                Kind::Enum(_) | Kind::Pointer(_) => true,
                _ => false,
            };
            let is_plain = result.as_ref().is_none_or(fits) && values.len() <= 6;
            Ok(function
                .address()
                .filter(|_| is_plain)
                .map(|function| Setup {
                    function,
                    arguments: values,
                    result,
                    back,
                }))
        })?;
        found.ok_or_else(|| Error::NoCall(text.to_string()))
    }

    /// Runs until the function has returned.
    fn run_call(
        &mut self,
        process: ProcessId,
        thread: ThreadNo,
        setup: &Setup,
        stack: Addr,
        cancel: &Cancel,
    ) -> Result<()> {
        let i = self.index(process)?;
        let member = self.members.get_mut(i).ok_or(Error::NoProcesses)?;
        member.living()?.accompany(&[]);
        let breakpoints = [setup.back];
        let stops = Stops {
            breakpoints: &breakpoints,
            ..Stops::default()
        };
        loop {
            let arrival = member
                .target_mut()?
                .run(&stops, target::Position::END, cancel)?;
            match arrival {
                Arrival::Breakpoint
                    if member.thread()? == thread
                        && member.stack_pointer()?.is_some_and(|rsp| rsp >= stack) =>
                {
                    return Ok(());
                }
                Arrival::Breakpoint => {}
                Arrival::Happened(Happening::Signal(number)) => {
                    return Err(Error::CallFailed(signal_words(number)));
                }
                Arrival::Interrupted => {
                    return Err(Error::CallFailed("it was interrupted".to_string()));
                }
                _ => return Err(Error::CallFailed("the process has ended".to_string())),
            }
        }
    }
}

fn signal_words(number: u32) -> String {
    let name = protocol::names::signal_name(u64::from(number));
    format!("{} came", name.map_or(number.to_string(), str::to_string))
}

/// The function and the arguments of `f(a, g[1])`.
fn parts(text: &str) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = text.trim().split_once('(')?;
    let inner = rest.trim_end().strip_suffix(')')?;
    let mut arguments = Vec::new();
    let (mut depth, mut from) = (0i32, 0);
    let mut quote = None;
    for (at, letter) in inner.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                arguments.push(inner.get(from..at)?.trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    let last = inner.get(from..)?.trim();
    if !last.is_empty() || !arguments.is_empty() {
        arguments.push(last);
    }
    let is_whole = depth == 0 && !name.trim().is_empty() && arguments.iter().all(|a| !a.is_empty());
    is_whole.then_some((name.trim(), arguments))
}

/// A value in the bytes of another one's type.
fn bytes_for(to: &Value, from: &Value, process: &dyn inspect::Process) -> inspect::Result<Vec<u8>> {
    let size = to.size() as usize;
    let (kind, other) = (to.ty.peeled(), from.ty.peeled());
    let is_float = |kind: &Kind| matches!(kind, Kind::Base(encoding) if encoding.0 == FLOAT);
    let refused = |why: &str| inspect::Error::Other(why.to_string());
    if to.bits.is_some() {
        return Err(refused("a bit-field cannot be set"));
    }
    if is_float(&kind.kind) {
        let number = match (is_float(&other.kind), from.bytes(process)?.as_slice()) {
            (true, bytes) if bytes.len() == 4 => {
                f64::from(f32::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
            (true, bytes) if bytes.len() == 8 => {
                f64::from_le_bytes(bytes.try_into().unwrap_or_default())
            }
            (true, _) => return Err(refused("a number of that size cannot be set")),
            (false, _) => from.integer(process)? as f64,
        };
        return match size {
            4 => Ok((number as f32).to_le_bytes().to_vec()),
            8 => Ok(number.to_le_bytes().to_vec()),
            _ => Err(refused("a number of that size cannot be set")),
        };
    }
    match &kind.kind {
        Kind::Base(_) | Kind::Enum(_) | Kind::Pointer(_) if size <= 16 => {
            let number = match &other.kind {
                Kind::Array { .. } | Kind::Function { .. } => {
                    i128::from(from.to_address(process)?.0)
                }
                _ => from.integer(process)?,
            };
            Ok(number
                .to_le_bytes()
                .get(..size)
                .unwrap_or_default()
                .to_vec())
        }
        _ if from.size() as usize == size => from.bytes(process),
        _ => Err(refused("the value is of another kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn calls_are_taken_apart() {
        assert_eq!(parts("f()"), Some(("f", vec![])));
        assert_eq!(parts("f(1, g[2, 3])"), Some(("f", vec!["1", "g[2, 3]"])));
        assert_eq!(parts("f(\"a,b\", c)"), Some(("f", vec!["\"a,b\"", "c"])));
        for bad in ["f", "f(", "(1)", "f(1,)", "f(1))", ""] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }
}

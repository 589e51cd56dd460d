//! Frames that are gone: functions that ended by jumping to another.
//!
//! A call site says whom it calls. If the function that runs is another one,
//! and there is just one way from the one to the other by calls that replace
//! their frame, the functions on that way are shown, as gdb does.

use gimli::constants as c;

use crate::dwarf::blocks::{CallSite, Function};
use crate::dwarf::die::Die;
use crate::frames::{Frame, FrameKind};
use crate::inspector::{Inspector, Loaded};
use crate::unwind::FrameRegisters;

/// The function with code that a call site's entry names.
///
/// What is only declared is found by its symbol, so that aliases lead to the
/// function they are of.
pub(crate) fn function_of(
    inspector: &Inspector<'_>,
    module: &Loaded,
    target: Die,
) -> Option<(&'static Function, Loaded)> {
    let entry = target.read()?;
    let address = if entry.flag(c::DW_AT_declaration) {
        let name = entry.linkage_name().or_else(|| entry.name())?;
        let in_module = |m: &Loaded| {
            let symbol = m.module.symbols().named(name).find(|s| s.code)?;
            Some(m.to_process(symbol.address))
        };
        in_module(module).or_else(|| inspector.modules().iter().find_map(in_module))?
    } else {
        module.to_process(entry.ranges().first()?.0)
    };
    let place = inspector.code_at(address)?;
    let function = place.function?;
    (place.loaded.to_process(function.entry) == address).then_some((function, place.loaded))
}

/// Whom a call site calls, if it says so directly.
pub(crate) fn target_of(site: &CallSite) -> Option<Die> {
    let entry = site.die.read()?;
    entry
        .reference(c::DW_AT_call_origin)
        .or_else(|| entry.reference(c::DW_AT_abstract_origin))
}

/// Whether a function can reach itself by calls that replace its frame: then
/// what its caller passed is not what it was entered with.
pub(crate) fn may_call_itself_last(
    inspector: &Inspector<'_>,
    module: &Loaded,
    function: &'static Function,
) -> bool {
    let mut seen: Vec<Die> = vec![function.die];
    let mut waiting: Vec<(&'static Function, Loaded)> = vec![(function, *module)];
    while let Some((at, module)) = waiting.pop() {
        for site in at.calls.iter().filter(|site| site.tail) {
            // What goes through a pointer is not known.
            let Some((next, module)) =
                target_of(site).and_then(|t| function_of(inspector, &module, t))
            else {
                continue;
            };
            if next.die == function.die {
                return true;
            }
            if !seen.contains(&next.die) && seen.len() < 64 {
                seen.push(next.die);
                waiting.push((next, module));
            }
        }
    }
    false
}

/// How far a chain is followed, and how many ways are tried.
const MAX_CHAIN: usize = 16;
const MAX_TRIES: usize = 500;

/// The tail calls on the only way from `from` to `to`: caller and site.
fn chain(
    inspector: &Inspector<'_>,
    module: &Loaded,
    from: &'static Function,
    to: &'static Function,
) -> Option<Vec<(&'static Function, CallSite)>> {
    let mut found: Option<Vec<(&'static Function, CallSite)>> = None;
    let mut path: Vec<(&'static Function, CallSite)> = Vec::new();
    let mut tries = 0;
    let unique = search(
        inspector, module, from, to, &mut path, &mut found, &mut tries,
    );
    if unique { found } else { None }
}

/// Whether no second way was found.
fn search(
    inspector: &Inspector<'_>,
    module: &Loaded,
    at: &'static Function,
    to: &'static Function,
    path: &mut Vec<(&'static Function, CallSite)>,
    found: &mut Option<Vec<(&'static Function, CallSite)>>,
    tries: &mut usize,
) -> bool {
    *tries += 1;
    if path.len() >= MAX_CHAIN || *tries > MAX_TRIES {
        return *tries <= MAX_TRIES;
    }
    for site in at.calls.iter().filter(|s| s.tail) {
        let Some(target) = target_of(site) else {
            continue;
        };
        // Chains across modules go through pointers and are not followed.
        let Some((next, _)) = function_of(inspector, module, target) else {
            continue;
        };
        if path.iter().any(|(f, _)| f.die == next.die) || next.die == at.die {
            continue;
        }
        path.push((at, *site));
        if next.die == to.die {
            if found.is_some() {
                path.pop();
                return false;
            }
            *found = Some(path.clone());
        } else if !search(inspector, module, next, to, path, found, tries) {
            path.pop();
            return false;
        }
        path.pop();
    }
    true
}

impl Inspector<'_> {
    /// Adds the functions that left the stack between the frame added last,
    /// whose function is `callee`, and its caller.
    pub(crate) fn tail_frames(
        &self,
        frames: &mut Vec<Frame>,
        caller: &FrameRegisters,
        callee: Option<&'static Function>,
        physical: usize,
    ) {
        let _ = self.try_tail_frames(frames, caller, callee, physical);
    }

    fn try_tail_frames(
        &self,
        frames: &mut Vec<Frame>,
        caller: &FrameRegisters,
        callee: Option<&'static Function>,
        physical: usize,
    ) -> Option<()> {
        let callee = callee?;
        let pc = caller.pc()?;
        let place = self.code_at(pc.minus(1))?;
        let function = place.function?;
        let link = place.loaded.to_link(pc);
        let site = function.calls.iter().find(|s| s.return_address == link)?;
        let (called, _) = function_of(self, &place.loaded, target_of(site)?)?;
        if called.die == callee.die {
            return None;
        }
        let template = frames.last()?.clone();
        let module = self.module_at(template.pc)?;
        for (tail, site) in chain(self, &module, called, callee)?.into_iter().rev() {
            let pc = module.to_process(site.return_address);
            let base = Frame {
                kind: FrameKind::TailCall,
                pc,
                lookup: pc.minus(1),
                name: None,
                place: None,
                inside_line: true,
                function: Some(tail),
                module: Some(module),
                block: 0,
                innermost: None,
                registers: caller.clone(),
                cfa: caller.sp(),
                physical: physical.saturating_sub(1),
                ..template.clone()
            };
            // gdb shows one frame for each: of functions that are inlined
            // there, the innermost.
            let at = frames.len();
            self.expand(base, frames);
            frames.truncate(at + 1);
            if let Some(frame) = frames.last_mut() {
                frame.kind = FrameKind::TailCall;
            }
        }
        Some(())
    }
}

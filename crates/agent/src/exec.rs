//! An exec under way: attach, wait, describe the new image, inject.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};

use inject::{Attached, ExecStop, Injection, Map, Outcome};
use protocol::id::{ImageNo, ProcessNo};
use protocol::shared::{CONTROL_OFFSET, Control, EXEC_SLOTS, ExecSlot};
use recording::{ImageStart, Mapping};

use crate::Error;
use crate::arena::ticks;
use crate::capture::{Captured, open_file};
use crate::control::Inject;
use crate::service::Shared;

/// Follows the exec of one of a process's threads, for a thread of ours that
/// has no children. `ready` is called as soon as the process may go on.
pub fn follow(shared: &Shared, tid: i32, slot: usize, ready: impl FnOnce(bool)) {
    match Attached::to(tid) {
        Ok(attached) => {
            ready(true);
            wait_for(shared, attached, tid, slot);
        }
        // Who debugs it traces it, and asks what to do (`adopted`).
        Err(_) if is_debugged(shared, tid) => {
            shared.adopting().insert(tid, slot);
            ready(true);
        }
        Err(error) => {
            shared.note_unrecorded(tid, &error.to_string());
            ready(false);
        }
    }
}

/// Whether a thread is traced by the debugger that holds the program.
fn is_debugged(shared: &Shared, tid: i32) -> bool {
    let debugger = shared.tracing.get().and_then(|tracing| tracing.tracer());
    let debugger = debugger.and_then(|tracer| i32::try_from(tracer).ok());
    debugger.is_some() && inject::tracer_of(tid, tid) == debugger
}

/// A process that a debugger traces has executed a program: what the debugger is to
/// put the monitor into it with.
pub fn adopted(
    shared: &Shared,
    process: u32,
    thread: u32,
    registers: &[u64],
) -> Result<Inject, Error> {
    let unknown = || {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        Error::System("the program was not said to execute anything", error)
    };
    let slot = shared
        .adopting()
        .remove(&(thread as i32))
        .ok_or_else(unknown)?;
    let place = shared.arena.control().execs.get(slot % EXEC_SLOTS);
    let place = place.ok_or_else(unknown)?;
    let registers: &[u64; 27] = registers.try_into().map_err(|_| unknown())?;
    let stop = ExecStop::of_other(process as i32, from_registers(registers))?;
    let described = match stop.is_64_bit() {
        true => describe_image(shared, &stop, &executable(stop.pid()), slot, place),
        false => {
            shared.note_unrecorded(stop.pid(), "it is not x86-64 code");
            Err(unknown())
        }
    };
    match described {
        Ok((injection, (auxv_at, auxv))) => Ok(Inject {
            slot: injection.slot,
            arena_fd: injection.arena_fd,
            image_len: injection.image_len,
            entry: injection.entry,
            vdso: injection.vdso,
            vdso_at: inject::vdso_at(auxv_at, &auxv),
        }),
        Err(error) => {
            place.taken.store(0, Release);
            Err(error)
        }
    }
}

/// Waits for the exec of a thread and injects the monitor.
pub fn wait_for(shared: &Shared, attached: Attached, tid: i32, slot: usize) {
    let outcome = attached.wait();
    let place = shared.arena.control().execs.get(slot % EXEC_SLOTS);
    match (outcome, place) {
        (Ok(Outcome::Exec(stop)), Some(place)) => {
            let pid = stop.pid();
            if let Err(error) = enter(shared, stop, slot, place) {
                place.taken.store(0, Release);
                shared.note_unrecorded(pid, &error.to_string());
            }
        }
        (Ok(Outcome::Gone), Some(place)) => place.taken.store(0, Release),
        (Err(error), Some(place)) => {
            place.taken.store(0, Release);
            shared.note_unrecorded(tid, &error.to_string());
        }
        _ => {}
    }
}

fn enter(shared: &Shared, stop: ExecStop, slot: usize, place: &ExecSlot) -> Result<(), Error> {
    let pid = stop.pid();
    let exe = executable(pid);
    if !stop.is_64_bit() {
        place.taken.store(0, Release);
        shared.note_unrecorded(pid, &format!("{} is not x86-64 code", exe.display()));
        return Ok(());
    }
    let (injection, (auxv_at, auxv)) = describe_image(shared, &stop, &exe, slot, place)?;
    let failures = std::mem::offset_of!(Control, exec_failures);
    let failure_at = CONTROL_OFFSET + (failures + 8 * (slot % EXEC_SLOTS)) as u64;
    stop.land(&injection, (auxv_at, &auxv), failure_at)?;
    Ok(())
}

fn executable(pid: i32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default()
}

/// The auxiliary vector: where it is, and its pairs.
type Auxv = (u64, Vec<(u64, u64)>);

/// Writes down how an image begins, and tells its monitor what that needs.
fn describe_image(
    shared: &Shared,
    stop: &ExecStop,
    exe: &Path,
    slot: usize,
    place: &ExecSlot,
) -> Result<(Injection, Auxv), Error> {
    let pid = stop.pid();
    let maps = inject::read_maps(pid)?;
    let rsp = stop.regs().rsp;
    let stack = match maps.iter().find(|m| (m.start..m.end).contains(&rsp)) {
        Some(map) => stop.read(rsp, (map.end - rsp) as usize)?,
        None => Vec::new(),
    };
    let (auxv_at, auxv) = stop.auxv(&stack);
    let vdso = auxv
        .iter()
        .find(|(key, _)| *key == libc::AT_SYSINFO_EHDR)
        .map_or(0, |(_, v)| *v);
    let ignored = ignored_signals(pid);
    let start = ImageStart {
        process: ProcessNo(place.process.load(Relaxed)),
        image: ImageNo(place.image.load(Relaxed)),
        pid: pid as u32,
        sigmask: place.sigmask.load(Relaxed),
        ignored,
        name: executed_name(&stack, rsp, &auxv),
        exe: exe.as_os_str().as_bytes().to_vec(),
        argv: lines(pid, "cmdline"),
        envp: lines(pid, "environ"),
        cwd: std::fs::read_link(format!("/proc/{pid}/cwd"))
            .map(|p| p.as_os_str().as_bytes().to_vec())
            .unwrap_or_default(),
        maps: describe_all(shared, stop, &maps, place),
        regs: registers(stop.regs()),
        auxv: auxv.clone(),
        time: ticks(),
    };
    shared.written(shared.writer.start(&start))?;
    if let Some(observations) = &shared.observations {
        observations.started(&start);
    }
    tracing::debug!(
        target: "record",
        pid,
        process = start.process.0,
        image = start.image.0,
        exe = %exe.display(),
        "an exec"
    );
    let clock = shared
        .clock_offset
        .filter(|_| vdso != 0)
        .map_or(0, |offset| vdso + offset);
    place.entry.store(stop.regs().rip, Relaxed);
    place.stack.store(rsp, Relaxed);
    place.vdso.store(clock, Relaxed);
    place.interprets.store(interprets_code(exe).into(), Relaxed);
    let kernels = inject::kernel_pages(&maps);
    place.kernel_start.store(kernels.start, Relaxed);
    place.kernel_end.store(kernels.end, Relaxed);
    place
        .image_len
        .store(shared.image.bytes.len() as u64, Relaxed);
    place.ignored.store(ignored, Release);
    let injection = Injection {
        slot: slot as u64,
        arena_fd: place.arena_fd.load(Relaxed) as i32,
        image_len: shared.image.bytes.len() as u64,
        entry: shared.image.entry,
        vdso: shared.image.vdso,
    };
    Ok((injection, (auxv_at, auxv)))
}

/// Whether a program is one of those that read the machine code of others, and
/// run it in their own way: what stands in the place of instructions means
/// nothing to them.
fn interprets_code(exe: &Path) -> bool {
    const NAMES: [&str; 4] = [
        "qemu-x86_64",
        "qemu-x86_64-static",
        "box64",
        "FEXInterpreter",
    ];
    let in_valgrind = exe.parent().and_then(Path::file_name) == Some("valgrind".as_ref());
    let name = exe.file_name().and_then(|name| name.to_str());
    in_valgrind || name.is_some_and(|name| NAMES.contains(&name))
}

/// The name given to execve, which the kernel keeps above the stack.
fn executed_name(stack: &[u8], rsp: u64, auxv: &[(u64, u64)]) -> Vec<u8> {
    let address = auxv
        .iter()
        .find(|(key, _)| *key == libc::AT_EXECFN)
        .map_or(0, |(_, v)| *v);
    let at = usize::try_from(address.wrapping_sub(rsp)).unwrap_or(usize::MAX);
    let bytes = stack.get(at..).unwrap_or(&[]);
    bytes.split(|b| *b == 0).next().unwrap_or(&[]).to_vec()
}

fn lines(pid: i32, what: &str) -> Vec<Vec<u8>> {
    let bytes = inject::read_proc(&format!("/proc/{pid}/{what}")).unwrap_or_default();
    let mut items: Vec<Vec<u8>> = bytes.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
    items.pop();
    items
}

/// Describes what is mapped, and tells the monitor in which of it instructions
/// are to be replaced.
fn describe_all(shared: &Shared, stop: &ExecStop, maps: &[Map], slot: &ExecSlot) -> Vec<Mapping> {
    const PROT_EXEC: u32 = 4;
    let mut places = slot.code.iter();
    // A program is mapped in pieces, one behind the other: each file is asked for once.
    let mut last: Option<(&Map, Option<Captured>)> = None;
    let described = maps.iter().flat_map(|map| {
        let known = last.filter(|(other, _)| is_same_file(other, map));
        let captured = known.map_or_else(|| capture(shared, stop, map), |(_, captured)| captured);
        last = Some((map, captured));
        let mappings = describe(stop, map, captured);
        let place = captured.and_then(|captured| captured.place);
        let has_sites = |place: &usize| !shared.arena.control().counter_sites_of(*place).is_empty();
        if map.prot & PROT_EXEC != 0
            && !map.shared
            && let Some(place) = place.filter(has_sites)
            && let Some(code) = places.next()
        {
            code.start.store(map.start, Relaxed);
            code.offset.store(map.offset, Relaxed);
            code.prot.store(u64::from(map.prot), Relaxed);
            code.place.store(place as u64, Relaxed);
            code.len.store(map.end - map.start, Relaxed);
        }
        mappings
    });
    let described = described.collect();
    for unused in places {
        unused.len.store(0, Relaxed);
    }
    described
}

fn is_same_file(one: &Map, other: &Map) -> bool {
    (one.device, one.inode, &one.name) == (other.device, other.inode, &other.name)
}

/// The copy of a mapping's file.
fn capture(shared: &Shared, stop: &ExecStop, map: &Map) -> Option<Captured> {
    let file = open_file(&map.path(stop.pid())?).ok()?;
    shared.capture(&file, Path::new(&map.name))
}

/// A mapping; in two pieces, if a file has most of its bytes, but not all.
fn describe(stop: &ExecStop, map: &Map, captured: Option<Captured>) -> Vec<Mapping> {
    const PAGE: u64 = 4096;
    let file = captured.map(|captured| captured.id);
    let piece = |start: u64, contents: Option<Vec<u8>>| Mapping {
        start,
        end: map.end,
        prot: map.prot,
        shared: map.shared,
        offset: map.offset + (start - map.start),
        file,
        name: map.name.clone().into_bytes(),
        contents,
    };
    let contents_from = |at: u64| stop.read(at, (map.end - at) as usize).ok();
    let is_readable = map.prot & 1 != 0;
    let is_writable = map.prot & 2 != 0;
    if file.is_none() {
        // What no file holds has to be kept itself, the stack as far as it is
        // used. The kernel's own pages are replaced by ours.
        let from = if map.name == "[stack]" {
            stop.regs().rsp & !(PAGE - 1)
        } else {
            map.start
        };
        let own = is_readable
            && !map.name.starts_with("[v")
            && (map.inode != 0 || stop.is_touched(map.start..map.end));
        vec![piece(map.start, own.then(|| contents_from(from)).flatten())]
    } else if is_readable && is_writable && !map.shared {
        // Data, as the file has it: no instruction has run. But the kernel has
        // cleared what lies behind it on its last page.
        let last = map.end - PAGE;
        let mut pieces = vec![piece(last, contents_from(last))];
        if last > map.start {
            let mut before = piece(map.start, None);
            before.end = last;
            pieces.insert(0, before);
        }
        pieces
    } else {
        vec![piece(map.start, None)]
    }
}

/// From the kernel's order.
fn from_registers(words: &[u64; 27]) -> libc::user_regs_struct {
    let [
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    ] = *words;
    libc::user_regs_struct {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    }
}

fn registers(regs: &libc::user_regs_struct) -> Vec<u64> {
    vec![
        regs.r15,
        regs.r14,
        regs.r13,
        regs.r12,
        regs.rbp,
        regs.rbx,
        regs.r11,
        regs.r10,
        regs.r9,
        regs.r8,
        regs.rax,
        regs.rcx,
        regs.rdx,
        regs.rsi,
        regs.rdi,
        regs.orig_rax,
        regs.rip,
        regs.cs,
        regs.eflags,
        regs.rsp,
        regs.ss,
        regs.fs_base,
        regs.gs_base,
        regs.ds,
        regs.es,
        regs.fs,
        regs.gs,
    ]
}

fn ignored_signals(pid: i32) -> u64 {
    let status = inject::read_proc(&format!("/proc/{pid}/status")).unwrap_or_default();
    String::from_utf8_lossy(&status)
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

//! Where exactly a thread was interrupted: its registers, and enough of memory
//! to tell one pass through a loop from the next.
//!
//! One function looks in recording, at the interruption, and in replay, each
//! time the thread comes by. It must see what makes progress, wherever
//! that is: in registers, on the stack, in what the instructions around use,
//! in what pointers lead to, in what *those* lead to. Memory that cannot be
//! read is skipped, and each part of the search given up after a few faults,
//! because each costs microseconds.

use protocol::record::{Record, digest, tag};
use protocol::replay::match_depth;
use translate::{Condition, Effect, Flow};

use crate::pointer_walk::{AROUND, BEFORE, PointerWalk};
use crate::state::{Thread, space};
use crate::{log, mem, mode, patcher, sys, traps};

/// Where things are among the kernel's names for registers in a signal frame:
/// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags.
pub const RDI: usize = 8;
pub const RSI: usize = 9;
pub const RAX: usize = 13;
pub const RCX: usize = 14;
pub const RSP: usize = 15;
pub const RIP: usize = 16;
pub const FLAGS: usize = 17;
pub type Registers = [u64; 18];

/// General registers by their numbers in instructions.
const BY_NUMBER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];

pub fn by_number(registers: &Registers) -> [u64; 16] {
    BY_NUMBER.map(|i| registers[i])
}

/// Flags that a trap leaves, not the program: RF and TF.
const TRACE_BITS: u64 = 0x1_0100;

/// Whether flags are the same to the program.
pub fn are_same_flags(then: u64, now: u64) -> bool {
    (then ^ now) & !TRACE_BITS == 0
}

// Digests, the cheap ones first, in the order of `match_depth`.
const STACK: usize = 0;
const VECTORS: usize = 1;
const OPERANDS: usize = 2;
const FRAMES: usize = 3;
const POINTED: usize = 4;
const BEHIND: usize = 5;
const REACH: usize = 6;
const PARTS: usize = 7;
const _: () = assert!(match_depth::REGISTERS + PARTS as u32 == match_depth::HERE);

const WITNESSES: usize = 16;
const VECTOR_WORDS: usize = 32;
/// In the log: the digests, halves of the vector registers, witnesses.
const WORDS: usize = PARTS + VECTOR_WORDS + 2 * WITNESSES;

/// A place in a run.
#[derive(Clone, Copy)]
pub struct InterruptionSite {
    pub registers: Registers,
    words: [u64; WORDS],
}

impl InterruptionSite {
    pub const NOWHERE: InterruptionSite = InterruptionSite {
        registers: [0; 18],
        words: [0; WORDS],
    };

    /// From the log.
    pub fn of_record(record: &Record<'_>) -> Option<InterruptionSite> {
        let mut place = InterruptionSite::NOWHERE;
        let registers = record.blob(tag::REGISTERS)?.bytes;
        let words = record.blob(tag::DIGEST)?.bytes;
        if registers.len() != core::mem::size_of_val(&place.registers)
            || words.len() != core::mem::size_of_val(&place.words)
        {
            return None;
        }
        for (to, from) in [
            (place.registers.as_mut_ptr() as u64, registers),
            (place.words.as_mut_ptr() as u64, words),
        ] {
            mem::copy(to, from.as_ptr() as u64, from.len() as u64);
        }
        Some(place)
    }

    /// What can be tried in a few instructions.
    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        let registers = (0u8..).zip(by_number(&self.registers));
        let vectors = (0u8..).zip(self.words[PARTS..][..VECTOR_WORDS].iter());
        registers
            .map(|(number, value)| Condition::Register(number, value))
            .chain(
                self.words[PARTS + VECTOR_WORDS..]
                    .chunks_exact(2)
                    .filter(|pair| pair[0] != 0)
                    .map(|pair| Condition::Memory(pair[0], pair[1])),
            )
            .chain(vectors.map(|(number, value)| Condition::Vector(number, *value)))
    }

    /// Whether registers and flags are those of this place.
    pub fn has_equal_registers(&self, registers: &Registers) -> bool {
        self.registers
            .iter()
            .zip(registers)
            .enumerate()
            .all(|(i, (then, now))| then == now || i == FLAGS && are_same_flags(*then, *now))
    }

    /// How far a thread with these registers, and with its vector registers in
    /// an XSAVE image, looks as at this place.
    pub fn match_depth(&self, registers: &Registers, image: u64, missing: &mut Missing) -> u32 {
        if !self.has_equal_registers(registers) {
            return match_depth::NONE;
        }
        let mut look = Look::new(registers, image, missing);
        let equal = (0..PARTS).take_while(|part| look.part(*part) == self.words[*part]);
        match_depth::REGISTERS + equal.count() as u32
    }

    pub fn is_here(&self, registers: &Registers, image: u64, missing: &mut Missing) -> bool {
        self.match_depth(registers, image, missing) == match_depth::HERE
    }
}

/// Writes down where the thread is.
pub fn write<'a>(entry: log::Entry<'a>, registers: &Registers, image: u64) -> log::Entry<'a> {
    let mut missing = Missing::NONE;
    let mut look = Look::new(registers, image, &mut missing);
    let mut words = [0; WORDS];
    for (part, word) in words.iter_mut().enumerate().take(PARTS) {
        *word = look.part(part);
    }
    words[PARTS..][..VECTOR_WORDS].copy_from_slice(&look.halves());
    words[PARTS + VECTOR_WORDS..].copy_from_slice(look.witnesses.as_flattened());
    entry
        .words(tag::REGISTERS, registers)
        .words(tag::DIGEST, &words)
}

/// How often memory may turn out not to be there before no more is looked for,
/// in each part: numbers that are taken for pointers in one must not make
/// another blind.
const FAULTS_MAX: u32 = 12;
/// How much of the stack is looked at.
const FRAMES_MAX: u64 = 0x8000;
/// How much code around is looked at.
const INSTS_MAX: usize = 96;
const PATHS_MAX: usize = 12;
/// How far one way is followed before another is.
const STEPS_MAX: usize = 12;

/// A way that the code may take.
#[derive(Clone, Copy)]
struct Path {
    at: u64,
    general: [u64; 16],
}

/// Pages that turned out not to be there. As long as the thread makes no call
/// that stays so.
pub struct Missing {
    pages: [u64; 32],
    used: usize,
}

impl Missing {
    pub const NONE: Missing = Missing {
        pages: [0; 32],
        used: 0,
    };

    fn has(&self, page: u64) -> bool {
        self.pages[..self.used].contains(&page)
    }

    fn add(&mut self, page: u64) {
        if self.used < self.pages.len() {
            self.pages[self.used] = page;
            self.used += 1;
        }
    }
}

struct Look<'a> {
    registers: &'a Registers,
    image: u64,
    faults: u32,
    missing: &'a mut Missing,
    /// A debugger has breakpoints in the code.
    has_traps: bool,
    /// Addresses of operands that could be read, and what is there.
    witnesses: [[u64; 2]; WITNESSES],
    used: usize,
}

impl<'a> Look<'a> {
    fn new(registers: &'a Registers, image: u64, missing: &'a mut Missing) -> Self {
        Look {
            registers,
            image,
            faults: 0,
            missing,
            has_traps: !mode::is_replay() && traps::are_in(&(0..u64::MAX)),
            witnesses: [[0; 2]; WITNESSES],
            used: 0,
        }
    }

    fn part(&mut self, part: usize) -> u64 {
        self.faults = 0;
        match part {
            STACK => self.stack(),
            VECTORS => self.vectors(),
            OPERANDS => self.operands(),
            FRAMES => self.frames(),
            POINTED => self.pointed(),
            BEHIND => self.behind(),
            REACH => self.reach(),
            _ => 0,
        }
    }

    /// Reads memory of the program that is likely to be there.
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u64; N]> {
        let plausible = (0x1_0000..0x7fff_ffff_0000).contains(&address);
        let ours = mem::is_ours(address, 8 * N as u64) || patcher::in_stub(address);
        if !plausible || ours || self.faults == FAULTS_MAX {
            return None;
        }
        let (first, last) = (address & !4095, (address + 8 * N as u64 - 1) & !4095);
        let kernel = space().kernel_start.get()..space().kernel_end.get();
        let is_kernels = kernel.contains(&first) || kernel.contains(&last);
        let mut words = if is_kernels || self.missing.has(first) || self.missing.has(last) {
            None
        } else {
            mem::read::<[u64; N]>(address)
        };
        if let Some(words) = &mut words
            && self.has_traps
        {
            traps::hide_in_words(address, words);
        }
        if words.is_none() {
            self.faults += 1;
            if first == last && !is_kernels && !self.missing.has(first) {
                self.missing.add(first);
            }
        }
        words
    }

    /// The stack, and what leaf functions keep below it.
    fn stack(&mut self) -> u64 {
        let mut sum = 0u64;
        let from = self.registers[RSP].wrapping_sub(128);
        for piece in 0..5 {
            if let Some(words) = self.read::<16>(from.wrapping_add(128 * piece)) {
                sum = sum.rotate_left(5) ^ hash(&words);
            }
        }
        sum
    }

    /// The stack further up, to its end or far enough: in a recursion the last
    /// few frames often look the same.
    fn frames(&mut self) -> u64 {
        let mut sum = 0u64;
        let from = self.registers[RSP].wrapping_add(512);
        for piece in 0..FRAMES_MAX / 512 {
            let Some(words) = self.read::<64>(from.wrapping_add(512 * piece)) else {
                break;
            };
            sum = sum.rotate_left(5) ^ hash(&words);
        }
        sum
    }

    /// The halves of the vector registers, without what only AVX knows.
    fn halves(&self) -> [u64; VECTOR_WORDS] {
        let mut words = [0u64; VECTOR_WORDS];
        self.piece(1, 160, &mut words);
        words
    }

    /// x87, SSE, AVX and AVX-512 registers. A part that is not in use counts
    /// as zero, as it is.
    fn vectors(&mut self) -> u64 {
        // Where in each part of the image its registers are.
        const PIECES: [(usize, u64); 11] = [
            (0, 32),
            (1, 160),
            (2, 0),
            (5, 0),
            (6, 0),
            (6, 256),
            (7, 0),
            (7, 256),
            (7, 512),
            (7, 768),
            (9, 0),
        ];
        let mut sum = 0u64;
        for (number, skip) in PIECES {
            let mut words = [0u64; 32];
            if self.piece(number, skip, &mut words) && words.iter().any(|word| *word != 0) {
                sum = sum.rotate_left(7) ^ hash(&words) ^ number as u64 ^ skip;
            }
        }
        sum
    }

    /// Reads a piece of a part of the image, if that is in use.
    fn piece(&self, number: usize, skip: u64, into: &mut [u64; 32]) -> bool {
        let (start, size) = space().xstate_parts[number].get();
        let mut in_use = 0u64;
        let header = (&raw mut in_use) as u64;
        if self.image == 0 || size == 0 || !mem::copy(header, self.image + 512, 8) {
            return false;
        }
        let end = match number {
            0 => 160,
            1 => 416,
            _ => u64::from(size),
        };
        let len = end.saturating_sub(skip).min(256);
        let from = self.image + u64::from(start) + skip;
        in_use & 1 << number != 0 && mem::copy(into.as_mut_ptr() as u64, from, len)
    }

    /// What the instructions from here on use, on the ways that they may go, a
    /// few at a time on each. Pointers that they load are followed; other
    /// registers are taken as they are now. So it is not always what they will
    /// use, but always the same.
    fn operands(&mut self) -> u64 {
        let fs = fs_base();
        let mut sum = 0u64;
        let here = Path {
            at: self.registers[RIP],
            general: by_number(self.registers),
        };
        let mut paths = [here; PATHS_MAX];
        let (mut taken, mut known) = (0, 1);
        let mut path = here;
        let mut steps = STEPS_MAX;
        for _ in 0..INSTS_MAX {
            if path.at == 0 || steps == STEPS_MAX {
                if path.at != 0 && known < PATHS_MAX && taken != 0 {
                    paths[known] = path;
                    known += 1;
                }
                if taken == known {
                    break;
                }
                path = paths[taken];
                taken += 1;
                steps = 0;
            }
            steps += 1;
            let mut code = [0u8; 15];
            let len = self.fetch(path.at, &mut code);
            let Some(inst) = translate::inst(&code[..len], path.at) else {
                path.at = 0;
                continue;
            };
            let code = &code[..inst.len];
            let effect = inst.effect(code);
            let general = &mut path.general;
            if let Some(Effect::Copy(to, from)) = effect {
                general[usize::from(to) & 15] = general[usize::from(from) & 15];
            }
            if let Some(address) = inst.address(code, general, fs) {
                if let Some(Effect::Address(to)) = effect {
                    general[usize::from(to) & 15] = address;
                } else if let Some(words) = self.read::<2>(address) {
                    sum = sum.rotate_left(5) ^ hash(&words);
                    self.witness(address, words[0]);
                    if let Some(Effect::Load(to)) = effect {
                        general[usize::from(to) & 15] = words[0];
                    }
                }
            }
            let next = path.at + inst.len as u64;
            path.at = match inst.flow {
                Flow::Next | Flow::CallThrough => next,
                Flow::Branch(_, target) | Flow::Loop(_, target) | Flow::Call(target) => {
                    let seen = paths[..known].iter().any(|path| path.at == target);
                    if known < PATHS_MAX && !seen {
                        paths[known] = Path { at: target, ..path };
                        known += 1;
                    }
                    next
                }
                Flow::Jump(target) => target,
                Flow::JumpThrough | Flow::Return(_) => 0,
            };
        }
        sum
    }

    fn witness(&mut self, address: u64, word: u64) {
        let seen = self.witnesses[..self.used].iter().any(|w| w[0] == address);
        if self.used < WITNESSES && !seen {
            self.witnesses[self.used] = [address, word];
            self.used += 1;
        }
    }

    fn fetch(&mut self, address: u64, into: &mut [u8; 15]) -> usize {
        if mem::is_ours(address, 15) {
            return 0;
        }
        let mut len = 15;
        if address & 4095 > 4096 - 15 && mem::read::<u8>((address | 4095) + 1).is_none() {
            len = 4096 - (address & 4095);
        }
        let to = into.as_mut_ptr() as u64;
        if !mem::copy(to, address, len) {
            return 0;
        }
        if self.has_traps {
            traps::hide(address, &mut into[..len as usize]);
        }
        len as usize
    }

    /// What registers point to, and around.
    fn pointed(&mut self) -> u64 {
        let mut sum = 0u64;
        for i in 0..RIP {
            if i == RSP {
                continue;
            }
            let from = (self.registers[i] & !7).wrapping_sub(64);
            if let Some(words) = self.read::<32>(from) {
                sum = sum.rotate_left(5) ^ hash(&words);
            } else if let Some(words) = self.read::<8>(from.wrapping_add(64)) {
                sum = sum.rotate_left(5) ^ hash(&words);
            }
        }
        sum
    }

    /// What is behind the pointers on the stack, behind those that registers
    /// point to, and the thread's own variables.
    fn behind(&mut self) -> u64 {
        let mut sum = 0u64;
        let fs = fs_base();
        if let Some(words) = self.read::<32>((fs & !7).wrapping_sub(256)) {
            sum = hash(&words);
        }
        let further = self.registers[RSP].wrapping_add(128);
        let pointers = self.registers.iter().take(RIP).copied();
        for pointer in pointers.chain([further]) {
            let words = self.read::<16>(pointer & !7);
            for word in words.into_iter().flatten() {
                if let Some(words) = self.read::<8>(word & !7) {
                    sum = sum.rotate_left(5) ^ hash(&words);
                }
            }
        }
        sum
    }
}

impl Look<'_> {
    /// What can be reached from registers and the stack.
    fn reach(&mut self) -> u64 {
        let mut sum = 0u64;
        let mut walk = PointerWalk::new();
        for register in self.registers.iter().take(RIP) {
            walk.add(*register);
        }
        let top = self.registers[RSP].wrapping_sub(128);
        for piece in 0..9 {
            let words = self.read::<16>(top.wrapping_add(128 * piece));
            for word in words.into_iter().flatten() {
                walk.add(word);
            }
        }
        while let Some(pointer) = walk.next(self.faults < FAULTS_MAX) {
            // Faults that come though they were not likely count, too, but
            // must not end the search.
            let faults = self.faults;
            self.faults = faults.min(FAULTS_MAX - 1);
            if let Some(words) = self.read::<AROUND>(pointer.wrapping_sub(BEFORE)) {
                walk.found(pointer, &words);
                sum = sum.rotate_left(5) ^ hash(&words);
            } else if let Some(words) = self.read::<8>(pointer) {
                walk.found(pointer, &words);
                sum = sum.rotate_left(5) ^ hash(&words);
            }
            self.faults += faults - faults.min(FAULTS_MAX - 1);
        }
        sum
    }
}

fn hash(words: &[u64]) -> u64 {
    // SAFETY: u64s are made of bytes.
    digest(unsafe {
        core::slice::from_raw_parts(words.as_ptr().cast(), core::mem::size_of_val(words))
    })
}

fn fs_base() -> u64 {
    let mut fs = 0u64;
    const ARCH_GET_FS: u64 = 0x1003;
    let place = (&raw mut fs) as u64;
    sys::call(sys::nr::ARCH_PRCTL, ARCH_GET_FS, place, 0, 0, 0, 0);
    fs
}

/// The vector registers of a thread that came into the monitor, stored where
/// they are stored when it is switched from.
pub fn store_vectors(thread: &Thread, xmm: &[[u64; 2]; 16]) -> u64 {
    let image = thread.xstate_area();
    // SAFETY: 64-byte aligned, with room for everything; not in use while the
    // thread runs.
    unsafe { crate::arch::xsave(image, xmm, space().xstate_mask.get()) };
    image
}

//! Memory that is watched: translated code comes back right behind each
//! instruction that changed it, and behind no other.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

mod machine;
#[path = "../../../tests/seed.rs"]
mod seed;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};
use machine::{Machine, Memory, Numbers, RAX, RCX, RDI, RSI, RSP, State, end};
use translate::{Exit, Options, Piece};

const WATCHING: Options<'static> = Options {
    goal: None,
    count: true,
    watch: true,
};

fn code(bytes: &[u8]) -> Memory {
    let mut memory = Memory::new(8192);
    memory.bytes()[..bytes.len()].copy_from_slice(bytes);
    memory
}

fn begin(machine: &mut Machine) -> State {
    let mut state = State::new();
    state.gpr[RSP] = machine.fresh_stack();
    state
}

fn value(memory: &mut Memory, at: usize, length: u8) -> u64 {
    let mut bytes = [0; 8];
    let length = usize::from(length);
    bytes[..length].copy_from_slice(&memory.bytes()[at..at + length]);
    u64::from_le_bytes(bytes)
}

/// Counts in memory: xor eax, eax; inc rax; mov [rsi], rax; mov [rsi + 64],
/// rax; cmp rax, rdi; jne; ret
const LOOP: &[u8] = &[
    0x31, 0xc0, 0x48, 0xff, 0xc0, 0x48, 0x89, 0x06, 0x48, 0x89, 0x46, 0x40, 0x48, 0x39, 0xf8, 0x75,
    0xf1, 0xc3,
];

/// All changes of a piece of the counter, of each length and at each place in
/// it.
#[test]
fn every_change_of_a_piece() {
    let mut machine = Machine::new();
    let mut memory = code(LOOP);
    const AT: usize = 4096;
    const ROUNDS: u64 = 70_000;
    for (offset, length) in [
        (0, 8),
        (0, 4),
        (0, 2),
        (0, 1),
        (1, 1),
        (2, 1),
        (1, 2),
        (7, 8),
    ] {
        memory.bytes()[AT..AT + 128].fill(0);
        let address = memory.address() + (AT + offset) as u64;
        let mut state = begin(&mut machine);
        state.gpr[RDI] = ROUNDS;
        state.gpr[RSI] = memory.address() + AT as u64;
        let mut known = 0;
        // Another piece that cannot be read.
        let pieces = |value| {
            [
                Piece {
                    address: 4096,
                    length: 4,
                    value: None,
                    is_alone: false,
                },
                Piece {
                    address,
                    length,
                    value: Some(value),
                    is_alone: false,
                },
            ]
        };
        machine.cache().set_watches(pieces(known).into_iter());
        machine.cache().set_count(u64::MAX);
        let mut exit = machine.translated(&mut state, memory.address(), &WATCHING);
        let mut changes = 0u64;
        let mut seen = Vec::new();
        while let Exit::Changed { target } = exit {
            assert_eq!(target, memory.address() + 8);
            let now = value(&mut memory, AT + offset, length);
            assert_ne!(now, known);
            known = now;
            changes += 1;
            if changes < 1000 {
                seen.push(state.gpr[RAX]);
            }
            machine.cache().set_held(1, Some(known));
            exit = machine.after(&mut state, exit, &WATCHING);
        }
        assert_eq!(
            exit,
            Exit::Open {
                target: end(),
                site: None
            }
        );
        assert_eq!(state.gpr[RAX], ROUNDS);
        // One change for each time that the lowest byte of the piece is
        // carried into.
        let unit = 1u64 << (8 * offset);
        assert_eq!(changes, ROUNDS / unit, "{offset} {length}");
        let expected = (1..).map(|n: u64| n.wrapping_mul(unit));
        assert!(
            seen.iter().copied().eq(expected.take(seen.len())),
            "{offset} {length}"
        );
    }
}

/// A call writes where it returns to.
#[test]
fn calls_write() {
    let mut machine = Machine::new();
    // call past; past: pop rax; ret
    let memory = code(&[0xe8, 0, 0, 0, 0, 0x58, 0xc3]);
    let mut state = begin(&mut machine);
    let slot = |state: &State| state.gpr[RSP] - 8;
    let held = 0xa5a5_a5a5_a5a5_a5a5;
    let piece = |state: &State, value| Piece {
        address: slot(state),
        length: 8,
        value: Some(value),
        is_alone: true,
    };
    machine
        .cache()
        .set_watches([piece(&state, held)].into_iter());
    machine.cache().set_count(100);
    let before = state;
    let exit = machine.translated(&mut state, memory.address(), &WATCHING);
    let next = memory.address() + 5;
    assert_eq!(exit, Exit::Changed { target: next });
    assert_eq!(state.gpr[RSP], before.gpr[RSP] - 8);
    assert_eq!(machine.cache().count(), 99);
    machine.cache().set_held(0, Some(next));
    let exit = machine.after(&mut state, exit, &WATCHING);
    assert_eq!(
        exit,
        Exit::Open {
            target: end(),
            site: None
        }
    );
    assert_eq!(state.gpr[RAX], next);

    // The same through a register.
    let memory = code(&[0xff, 0xd1, 0x58, 0xc3]);
    let mut state = begin(&mut machine);
    state.gpr[RCX] = memory.address() + 2;
    let before = state;
    machine
        .cache()
        .set_watches([piece(&state, held)].into_iter());
    machine.cache().set_count(100);
    let exit = machine.translated(&mut state, memory.address(), &WATCHING);
    let next = memory.address() + 2;
    assert_eq!(exit, Exit::Changed { target: next });
    assert_eq!(state.gpr[RCX], before.gpr[RCX]);
    assert_eq!(machine.cache().count(), 99);
    machine.cache().set_held(0, Some(next));
    let exit = machine.after(&mut state, exit, &WATCHING);
    assert_eq!(
        exit,
        Exit::Open {
            target: end(),
            site: None
        }
    );
    assert_eq!(state.gpr[RAX], next);
}

/// No instruction that writes is taken for one that does not.
#[test]
fn what_writes_is_known() {
    let mut numbers = Numbers(seed::seed("accesses", 0x9e37_79b9_7f4a_7c15));
    let (mut writes, mut spared) = (0, 0);
    for round in 0..3_000_000u64 {
        let mut bytes = [0u8; 15];
        for byte in &mut bytes {
            *byte = numbers.next() as u8;
        }
        // All opcodes of the first two maps often enough, with a REX prefix
        // now and then.
        match round % 4 {
            0 => bytes[0] = 0x0f,
            1 => bytes[0] = 0xc5,
            2 => bytes[0] = 0x40 | bytes[0] & 15,
            _ => {}
        }
        let theirs = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
        if theirs.is_invalid() || theirs.flow_control() != FlowControl::Next {
            continue;
        }
        let Some(ours) = translate::inst(&bytes, 0x1000) else {
            continue;
        };
        let mut factory = InstructionInfoFactory::new();
        let does = factory.info(&theirs).used_memory().iter().any(|used| {
            !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
        });
        if does {
            writes += 1;
            assert!(
                ours.may_write(&bytes[..ours.len]),
                "{theirs:?} {bytes:02x?}"
            );
        } else if !ours.may_write(&bytes[..ours.len]) {
            spared += 1;
        }
    }
    assert!(writes > 100_000 && spared > 500_000, "{writes} {spared}");
}

/// Where the data is in a memory, around which registers point.
const DATA: usize = 0x8000;
const CODE: usize = 0x1000;

/// Bytes that are likely to be an instruction that writes to memory, through whatever
/// registers.
fn store(numbers: &mut Numbers) -> Vec<u8> {
    const VECTORS: [u8; 9] = [0x11, 0x13, 0x17, 0x29, 0x2b, 0x7e, 0x7f, 0xd6, 0xe7];
    const PLAIN: [u8; 12] = [
        0x01, 0x28, 0x31, 0x81, 0x83, 0x88, 0x89, 0xc6, 0xc7, 0xd3, 0xf7, 0xff,
    ];
    let byte = |numbers: &mut Numbers| numbers.next() as u8;
    let pick = |numbers: &mut Numbers, all: &[u8]| match numbers.below(4) {
        0 => numbers.next() as u8,
        _ => all[numbers.below(all.len() as u64) as usize],
    };
    let mut code = Vec::new();
    match numbers.below(8) {
        0 => code.extend([0xc5, byte(numbers) | 0x78, pick(numbers, &VECTORS)]),
        1 => {
            let first = byte(numbers) & 0xe0 | 1;
            let second = byte(numbers) | 0x78;
            code.extend([0xc4, first, second, pick(numbers, &VECTORS)]);
        }
        2 => {
            let first = byte(numbers) & 0xf0 | 1;
            let second = byte(numbers) & 0x83 | 0x7c;
            let third = (byte(numbers) & 3) << 5 | 8 | byte(numbers) & byte(numbers) & 7;
            code.extend([0x62, first, second, third, pick(numbers, &VECTORS)]);
        }
        kind => {
            if numbers.below(4) == 0 {
                code.push([0x66, 0xf2, 0xf3, 0x2e, 0xf0, 0x67][numbers.below(6) as usize]);
            }
            if numbers.below(2) == 0 {
                code.push(0x40 | byte(numbers) & 15);
            }
            match kind {
                3 => code.push([0x50, 0x51, 0x56, 0x68, 0x6a, 0x9c][numbers.below(6) as usize]),
                4 => code.extend([0x0f, pick(numbers, &VECTORS)]),
                5 => code.extend([0x0f, 0x90 | byte(numbers) & 15]),
                _ => code.push(pick(numbers, &PLAIN)),
            }
        }
    }
    // Operands of all forms, with displacements that do not lead far.
    let modrm = byte(numbers) & 0xbf;
    code.push(modrm);
    if modrm & 7 == 4 {
        code.push(byte(numbers));
    }
    let distance = match modrm & 0xc7 {
        // Relative to where it is: into the data.
        5 => (DATA - CODE) as i32 + numbers.below(512) as i32,
        _ => numbers.below(512) as i32 - 256,
    };
    match modrm >> 6 {
        1 => code.push(byte(numbers)),
        _ => code.extend(distance.to_le_bytes()),
    }
    code.extend(numbers.next().to_le_bytes());
    code.resize(16, 0x90);
    code
}

/// Whether it does the same each time and stays where registers lead.
fn stays_near(inst: &Instruction) -> bool {
    let wild = inst.is_invalid()
        || inst.flow_control() != FlowControl::Next
        || inst.is_privileged()
        || inst.is_save_restore_instruction()
        || inst.is_vsib()
        || (inst.has_rep_prefix() || inst.has_repne_prefix()) && inst.is_string_instruction()
        || matches!(inst.segment_prefix(), Register::FS | Register::GS);
    let moves_stack = inst.is_stack_instruction()
        && !matches!(inst.mnemonic(), Mnemonic::Push | Mnemonic::Pushfq);
    // These reach far beyond their operand, or say something else each time.
    let other = matches!(
        inst.mnemonic(),
        Mnemonic::Bts
            | Mnemonic::Btr
            | Mnemonic::Btc
            | Mnemonic::Rdtsc
            | Mnemonic::Rdtscp
            | Mnemonic::Rdrand
            | Mnemonic::Rdseed
            | Mnemonic::Rdpid
            | Mnemonic::Cpuid
            | Mnemonic::Std
            | Mnemonic::Fnstenv
            | Mnemonic::Fnsave
            | Mnemonic::Clzero
            | Mnemonic::Ldmxcsr
            | Mnemonic::Vldmxcsr
    );
    let writes_stack = (0..inst.op_count()).any(|op| {
        inst.op_kind(op) == iced_x86::OpKind::Register
            && inst.op_register(op).full_register() == Register::RSP
            && op == 0
    });
    let near = inst.is_ip_rel_memory_operand()
        || (inst.memory_displacement64() as i64).unsigned_abs() < 16384;
    !(wild || moves_stack || other || writes_stack) && near
}

/// Looking only at what is written near the watched memory finds what looking always
/// finds, and changes nothing else.
#[test]
fn near_is_enough() {
    let mut numbers = Numbers(seed::seed("near", 0x51ed_270b_7f4a_7c15));
    let mut machine = Machine::new();
    let mut memory = Memory::new(1 << 19);
    let (mut changes, mut stays) = (0, 0);
    for _ in 0..100_000 {
        let bytes = store(&mut numbers);
        let at = memory.address() + CODE as u64;
        let theirs = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE).decode();
        let ours = translate::inst(&bytes, at);
        let Some(ours) = ours.filter(|own| own.may_write(&bytes[..own.len])) else {
            continue;
        };
        if !stays_near(&theirs) {
            continue;
        }
        memory.bytes()[CODE..CODE + 16].copy_from_slice(&bytes);
        memory.bytes()[CODE + ours.len] = 0xcc;
        let data: Vec<u8> = (0..2048).map(|_| numbers.next() as u8).collect();
        let mut before = State::new();
        let pointer = memory.address() + DATA as u64;
        for register in &mut before.gpr {
            *register = match numbers.below(3) {
                0 => numbers.below(64),
                _ => pointer + numbers.below(256),
            };
        }
        for number in 0..16 {
            let mut half = || [numbers.next(), numbers.next()];
            before.set_vector(number, half(), half());
        }
        before.gpr[RSP] = machine.fresh_stack();
        let mut pieces: Vec<Piece> = Vec::new();
        for _ in 0..1 + numbers.below(2) {
            let length = 1 << numbers.below(4);
            let place = match numbers.below(8) {
                0 => before.gpr[RSP] - numbers.below(24),
                // Far from the other one, so that more is near.
                1 => pointer + 0x3_0000 * numbers.below(2) + 0x4000,
                _ => (pointer + numbers.below(640)).wrapping_sub(192),
            };
            pieces.push(Piece {
                address: place,
                length,
                value: None,
                is_alone: true,
            });
        }
        let mut outcomes = Vec::new();
        for is_alone in [true, false] {
            let mut state = before;
            state.gpr[RSP] = machine.fresh_stack();
            memory.bytes()[DATA - 1024..DATA + 1024].copy_from_slice(&data);
            let held = |piece: &Piece| {
                let mut bytes = [0; 8];
                let length = usize::from(piece.length);
                // SAFETY: in this memory or on the machine's stack, both of which are
                // there and which no code runs in now.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        piece.address as *const u8,
                        bytes.as_mut_ptr(),
                        length,
                    );
                }
                u64::from_le_bytes(bytes)
            };
            let known: Vec<u64> = pieces.iter().map(held).collect();
            let told = pieces.iter().zip(&known).map(|(piece, value)| Piece {
                value: Some(*value),
                is_alone,
                ..*piece
            });
            machine.cache().set_watches(told);
            machine.cache().set_count(1000);
            let exit = machine.translated(&mut state, at, &WATCHING);
            let changed = pieces.iter().map(held).ne(known.iter().copied());
            let data = memory.bytes()[DATA - 1024..DATA + 1024].to_vec();
            if state.fault == 0 {
                let target = at + ours.len as u64;
                let is_told = exit == Exit::Changed { target };
                assert_eq!(is_told, changed, "{theirs:?} {bytes:02x?} {exit:x?}");
            }
            state.fault_rip = 0;
            outcomes.push((state, data, changed));
        }
        assert!(outcomes[0] == outcomes[1], "{theirs:?} {bytes:02x?}");
        match outcomes[0] {
            (state, ..) if state.fault != 0 => {}
            (.., true) => changes += 1,
            (.., false) => stays += 1,
        }
    }
    assert!(changes > 1000 && stays > 5000, "{changes} {stays}");
}

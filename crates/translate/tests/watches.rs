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

use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess};
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
        // Another piece that does not change, and one that cannot be read.
        let pieces = |value| {
            [
                Piece {
                    address: 0,
                    length: 4,
                    value: 77,
                },
                Piece {
                    address,
                    length,
                    value,
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
            machine.cache().set_watches(pieces(known).into_iter());
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
        value,
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
    machine
        .cache()
        .set_watches([piece(&before, next)].into_iter());
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
    machine
        .cache()
        .set_watches([piece(&before, next)].into_iter());
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

//! Code that is written to while its translation is in use runs as it is, not
//! as it was.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

mod machine;

use machine::{Machine, Memory, RAX, RDI, RSI, RSP, State, end};
use translate::{Condition, Exit, Goal, Options};

const PLAIN: Options<'_> = Options {
    goal: None,
    count: false,
    watch: false,
};

fn code(bytes: &[u8]) -> Memory {
    let mut memory = Memory::new(3 * 4096);
    memory.bytes()[..bytes.len()].copy_from_slice(bytes);
    memory
}

fn begin(machine: &mut Machine) -> State {
    machine.made = true;
    let mut state = State::new();
    state.gpr[RSP] = machine.fresh_stack();
    state
}

fn has_ended(exit: Exit) -> bool {
    matches!(exit, Exit::Open { target, .. } if target == end())
}

/// What `mov eax, value; ret` gives, and then with another value, and another.
#[test]
fn a_new_value_is_seen() {
    let mut machine = Machine::new();
    let mut memory = code(&[0xb8, 0, 0, 0, 0, 0xc3]);
    let mut state = begin(&mut machine);
    machine.cache().clear(end());
    for value in [1, 1, 0xffff_ffff, 7] {
        memory.bytes()[1..5].copy_from_slice(&u32::to_le_bytes(value));
        state.gpr[RSP] = machine.fresh_stack();
        assert!(has_ended(machine.from(
            &mut state,
            memory.address(),
            &PLAIN
        )));
        assert_eq!(state.gpr[RAX], u64::from(value));
    }
}

/// A loop that changes the function it calls:
///
/// ```text
///  0: 31 c0           xor eax, eax
///  2: e8 19 00 00 00  call 32
///  7: 01 c8           add eax, ecx
///  9: 89 3d xx        mov [33], edi
///  f: ff cf           dec edi
/// 11: 75 ef           jne 2
/// 13: c3              ret
/// 32: b9 imm32        mov ecx, imm32
/// 37: c3              ret
/// ```
#[test]
fn a_loop_changes_what_it_calls() {
    let mut machine = Machine::new();
    let mut memory = code(&[
        0x31, 0xc0, 0xe8, 0x19, 0, 0, 0, 0x01, 0xc8, 0x89, 0x3d, 0x12, 0, 0, 0, 0xff, 0xcf, 0x75,
        0xef, 0xc3,
    ]);
    memory.bytes()[32..38].copy_from_slice(&[0xb9, 0, 0, 0, 0, 0xc3]);
    let mut state = begin(&mut machine);
    state.gpr[RDI] = 1000;
    let exit = machine.translated(&mut state, memory.address(), &PLAIN);
    assert!(has_ended(exit), "{exit:?}");
    // Each call gives what was in edi at the call before.
    assert_eq!(state.gpr[RAX], (2..=1000).sum::<u64>());
}

/// Translations are linked; the links lead to what is there now. Flags and all
/// registers are as they were.
#[test]
fn a_place_is_found_in_code_that_changes() {
    let mut machine = Machine::new();
    // 0: 48 ff c0  inc rax;  3: 48 39 f8  cmp rax, rdi;  6: 75 f8  jne 0;  8: c3
    let mut memory = code(&[0x48, 0xff, 0xc0, 0x48, 0x39, 0xf8, 0x75, 0xf8, 0xc3]);
    let conditions = [Condition::Register(0, 600)];
    let options = Options {
        goal: Some(Goal {
            address: memory.address() + 3,
            conditions: &conditions,
        }),
        ..PLAIN
    };
    let mut state = begin(&mut machine);
    state.gpr[RDI] = 1000;
    let exit = machine.translated(&mut state, memory.address(), &options);
    assert!(matches!(exit, Exit::Goal { .. }));
    assert_eq!(state.gpr[RAX], 600);
    // From now on it is `add rax, rsi` (48 01 f0).
    memory.bytes()[1..3].copy_from_slice(&[0x01, 0xf0]);
    state.gpr[RSI] = 100;
    let exit = machine.after(&mut state, exit, &options);
    assert!(has_ended(exit));
    assert_eq!(state.gpr[RAX], 1000);
}

/// A block at the end of a page, and one that lies across two.
#[test]
fn at_the_end_of_a_page() {
    let mut machine = Machine::new();
    let mut memory = code(&[]);
    machine.cache().clear(end());
    for start in [4096 - 6, 4096 - 3, 4096 - 1] {
        for value in [3u32, 5] {
            let mut bytes = [0xb8, 0, 0, 0, 0, 0xc3];
            bytes[1..5].copy_from_slice(&value.to_le_bytes());
            memory.bytes()[start..start + 6].copy_from_slice(&bytes);
            let mut state = begin(&mut machine);
            let from = memory.address() + start as u64;
            assert!(has_ended(machine.from(&mut state, from, &PLAIN)));
            assert_eq!(state.gpr[RAX], u64::from(value));
        }
    }
}

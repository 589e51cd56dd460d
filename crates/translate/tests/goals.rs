//! Code is stopped where it shall be, and goes on from there as if nothing had
//! been.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

mod machine;

use machine::{Machine, Memory, Own, RAX, RCX, RDI, RSI, RSP, State, end};
use translate::{CACHE_MIN, Condition, Exit, Goal, Options};

/// A loop: rax counts up to rdi.
///
/// ```text
/// 0: 31 c0        xor eax, eax
/// 2: 48 ff c0     inc rax
/// 5: 48 39 f8     cmp rax, rdi
/// 8: 75 f8        jne 2
/// a: c3           ret
/// ```
const LOOP: &[u8] = &[
    0x31, 0xc0, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xf8, 0x75, 0xf8, 0xc3,
];

fn code(bytes: &[u8]) -> Memory {
    let mut memory = Memory::new(4096);
    memory.bytes()[..bytes.len()].copy_from_slice(bytes);
    memory
}

fn begin(machine: &mut Machine) -> State {
    let mut state = State::new();
    state.gpr[RSP] = machine.fresh_stack();
    state
}

fn goal(address: u64, conditions: &[Condition]) -> Options<'_> {
    Options {
        goal: Some(Goal {
            address,
            conditions,
        }),
        count: false,
        watch: false,
    }
}

fn has_ended(exit: Exit) -> bool {
    matches!(exit, Exit::Open { target, .. } if target == end())
}

#[test]
fn stops_in_the_pass_that_is_wanted() {
    let mut machine = Machine::new();
    let memory = code(LOOP);
    for pass in [1, 2, 777, 100_000] {
        let conditions = [Condition::Register(0, pass)];
        let options = goal(memory.address() + 5, &conditions);
        let mut state = begin(&mut machine);
        state.gpr[RDI] = 100_000;
        let exit = machine.translated(&mut state, memory.address(), &options);
        assert!(matches!(exit, Exit::Goal { .. }), "{exit:?}");
        assert_eq!(state.gpr[RAX], pass);
        // It does not come again, and the loop ends as it should.
        let exit = machine.after(&mut state, exit, &options);
        assert!(has_ended(exit));
        assert_eq!(state.gpr[RAX], 100_000);
    }
}

#[test]
fn every_register_can_tell() {
    let mut machine = Machine::new();
    let memory = code(&[0x90, 0xc3]);
    for number in 0..16u8 {
        let mut state = begin(&mut machine);
        for (i, register) in state.gpr.iter_mut().enumerate() {
            if i != RSP {
                *register = 0x0123_4567_89ab_cdef * (i as u64 + 1);
            }
        }
        let value = state.gpr[usize::from(number)];
        for (wanted, stops) in [(value, true), (value ^ 1, false), (value ^ 1 << 63, false)] {
            let conditions = [Condition::Register(number, wanted)];
            let mut now = state;
            let options = goal(memory.address(), &conditions);
            let exit = machine.translated(&mut now, memory.address(), &options);
            assert_eq!(
                matches!(exit, Exit::Goal { .. }),
                stops,
                "register {number}"
            );
            let mut expected = state;
            if !stops {
                expected.gpr[RSP] += 8;
            }
            assert_eq!(now, expected, "register {number}");
        }
    }
}

#[test]
fn all_conditions_must_hold() {
    let mut machine = Machine::new();
    let memory = code(&[0x90, 0xc3]);
    let word = Box::new(0x55u64);
    let place = (&raw const *word) as u64;
    let mut state = begin(&mut machine);
    state.gpr[RCX] = 7;
    state.gpr[RSI] = 9;
    state.set_vector(11, [0xabc, 1], [2, 3]);
    state.flags = 0x8d7 | 0x200;
    let good = [
        Condition::Register(1, 7),
        Condition::Memory(place, 0x55),
        Condition::Vector(22, 0xabc),
        Condition::Vector(23, 1),
        Condition::Register(6, 9),
    ];
    let mut now = state;
    let exit = machine.translated(&mut now, memory.address(), &goal(memory.address(), &good));
    assert!(matches!(exit, Exit::Goal { .. }));
    assert_eq!(now, state);
    for (i, bad) in [
        Condition::Register(1, 8),
        Condition::Memory(place, 0x56),
        Condition::Vector(22, 0xabd),
        Condition::Vector(23, 2),
        Condition::Register(6, 8),
    ]
    .into_iter()
    .enumerate()
    {
        let mut conditions = good;
        conditions[i] = bad;
        let mut now = state;
        let options = goal(memory.address(), &conditions);
        let exit = machine.translated(&mut now, memory.address(), &options);
        assert!(has_ended(exit), "condition {i}");
        assert_eq!(now.flags, state.flags);
    }
}

#[test]
fn counts_control_transfers() {
    let mut machine = Machine::new();
    let memory = code(LOOP);
    let options = Options {
        goal: None,
        count: true,
        watch: false,
    };
    for count in [1, 5, 999] {
        let mut state = begin(&mut machine);
        state.gpr[RDI] = 1000;
        machine.cache().set_count(count);
        let exit = machine.translated(&mut state, memory.address(), &options);
        let target = memory.address() + 2;
        assert_eq!(exit, Exit::Counted { target });
        assert_eq!(state.gpr[RAX], count);
        assert_eq!(machine.cache().count(), 0);
    }
    // 999 jumps and the return.
    let mut state = begin(&mut machine);
    state.gpr[RDI] = 1000;
    machine.cache().set_count(1000);
    let exit = machine.translated(&mut state, memory.address(), &options);
    assert_eq!(exit, Exit::Counted { target: end() });
}

/// A position is reached by (transfers, address): first the count, then
/// straight on to the address.
#[test]
fn stops_at_a_count_and_an_address() {
    let mut machine = Machine::new();
    let memory = code(LOOP);
    let counting = Options {
        goal: None,
        count: true,
        watch: false,
    };
    let mut state = begin(&mut machine);
    state.gpr[RDI] = 1000;
    machine.cache().set_count(500);
    let exit = machine.translated(&mut state, memory.address(), &counting);
    let Exit::Counted { target } = exit else {
        panic!("{exit:?}");
    };
    let there = Options {
        goal: Some(Goal {
            address: memory.address() + 8,
            conditions: &[],
        }),
        count: true,
        watch: false,
    };
    machine.cache().set_count(1);
    let exit = machine.translated(&mut state, target, &there);
    assert!(matches!(exit, Exit::Goal { .. }), "{exit:?}");
    assert_eq!(state.gpr[RAX], 501);
    // What is not on the straight way is not reached by chance.
    let nowhere = Options {
        goal: Some(Goal {
            address: memory.address(),
            conditions: &[],
        }),
        count: true,
        watch: false,
    };
    machine.cache().set_count(1);
    let exit = machine.translated(&mut state, memory.address() + 8, &nowhere);
    assert!(matches!(exit, Exit::Counted { .. }), "{exit:?}");
}

extern "C" fn work(n: u64) -> u64 {
    let mut values: [u64; 64] = std::array::from_fn(|i| (i as u64).wrapping_mul(n | 1) % 97);
    values.sort_unstable();
    let text: u64 = values.iter().map(|v| v.count_ones() as u64 * v).sum();
    if n == 0 { text } else { text ^ work(n - 1) }
}

/// The transfers of a whole function are the same number however often it is
/// stopped on the way.
#[test]
fn counting_can_be_interrupted() {
    let mut machine = Machine::new();
    let function = work as *const () as u64;
    let options = Options {
        goal: None,
        count: true,
        watch: false,
    };
    let mut run = |step: u64| {
        let mut state = begin(&mut machine);
        state.gpr[RDI] = 20;
        let mut count = 0;
        let mut at = function;
        machine.cache().clear(end());
        loop {
            machine.cache().set_count(step);
            match machine.from(&mut state, at, &options) {
                Exit::Counted { target } => {
                    count += step;
                    at = target;
                    if target == end() {
                        return (count, state.gpr[RAX]);
                    }
                }
                exit => panic!("{exit:?}"),
            }
        }
    };
    let (all, result) = run(1);
    assert_eq!(result, work(20));
    assert!(all > 1000);
    // The last step ends at the return, if the steps come out even.
    let step = (2..).find(|step| all % step == 0).unwrap();
    assert_eq!(run(step), (all, result));
}

#[test]
fn one_step_of_a_repeated_instruction() {
    let mut machine = Machine::new();
    let memory = code(&[0xf3, 0xa4, 0xc3]); // rep movsb; ret
    let mut from = *b"0123456789";
    let mut to = [b'.'; 10];
    let mut state = begin(&mut machine);
    state.gpr[RSI] = from.as_mut_ptr() as u64;
    state.gpr[RDI] = to.as_mut_ptr() as u64;
    state.gpr[RCX] = 4;
    machine.cache().clear(end());
    state.go = machine.cache().step(memory.address(), &mut Own).unwrap();
    machine.go(&mut state);
    let target = memory.address() + 2;
    assert_eq!(machine.cache().exit(), Exit::Stepped { target });
    assert_eq!(&to, b"0123......");
    assert_eq!(state.gpr[RCX], 0);
    assert_eq!(state.gpr[RDI], to.as_ptr() as u64 + 4);
}

#[test]
fn loops_by_rcx() {
    let mut machine = Machine::new();
    // 0: inc rax; 3: loop 0; 5: jrcxz 9; 7: ud2; 9: mov ecx, 3; e: inc rax; 11: loopne e; 13: ret 16
    let memory = code(&[
        0x48, 0xff, 0xc0, 0xe2, 0xfb, 0xe3, 0x02, 0x0f, 0x0b, 0xb9, 3, 0, 0, 0, 0x48, 0xff, 0xc0,
        0xe0, 0xfb, 0xc2, 16, 0,
    ]);
    let mut state = begin(&mut machine);
    state.gpr[RCX] = 10;
    let rsp = state.gpr[RSP];
    let exit = machine.translated(&mut state, memory.address(), &goal(1, &[]));
    assert!(has_ended(exit));
    assert_eq!(state.gpr[RAX], 13);
    assert_eq!(state.gpr[RSP], rsp + 24);
}

#[test]
fn what_cannot_be_translated_is_refused() {
    let mut machine = Machine::new();
    for bytes in [
        &[0x0f, 0x05][..],         // syscall
        &[0xcd, 0x80],             // int 0x80
        &[0xcc],                   // int3
        &[0x0f, 0x0b],             // ud2
        &[0xf4],                   // hlt
        &[0x48, 0xcf],             // iretq
        &[0xcb],                   // far return
        &[0xff, 0x28],             // far jump
        &[0xc7, 0xf8, 0, 0, 0, 0], // xbegin
    ] {
        let memory = code(bytes);
        machine.cache().clear(end());
        let entered = machine
            .cache()
            .enter(memory.address(), &mut Own, &goal(1, &[]));
        assert_eq!(entered, None, "{bytes:02x?}");
    }
}

/// More code than there is room for: what was translated is forgotten and
/// translated again.
#[test]
fn a_full_cache() {
    const BLOCKS: usize = 5_000;
    let mut machine = Machine::with_cache(CACHE_MIN);
    let mut memory = Memory::new(BLOCKS * 16 + 4096);
    // Each block: inc rax; lea rdx, [rip]; then a jump to the next block.
    let bytes = memory.bytes();
    for block in 0..BLOCKS {
        let at = block * 16;
        bytes[at..at + 10].copy_from_slice(&[0x48, 0xff, 0xc0, 0x48, 0x8d, 0x15, 0, 0, 0, 0]);
        bytes[at + 10..at + 12].copy_from_slice(&[0xeb, 4]);
    }
    // dec rdi; jnz the first block; ret
    let at = BLOCKS * 16;
    bytes[at..at + 3].copy_from_slice(&[0x48, 0xff, 0xcf]);
    bytes[at + 3..at + 5].copy_from_slice(&[0x0f, 0x85]);
    let back = -(at as i32 + 9);
    bytes[at + 5..at + 9].copy_from_slice(&back.to_le_bytes());
    bytes[at + 9] = 0xc3;
    let mut state = begin(&mut machine);
    state.gpr[RDI] = 5;
    let exit = machine.translated(&mut state, memory.address(), &goal(1, &[]));
    assert!(has_ended(exit), "{exit:?}");
    assert_eq!(state.gpr[RAX], 5 * BLOCKS as u64);
    // Each block takes more than twice its own size.
    assert!(machine.cache().used() < BLOCKS * 32);
}

//! Whole functions, compiled ones and the C library's, give the same result
//! and leave the same registers natively and translated.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

mod machine;

use machine::{Machine, RAX, RDI, RDX, RSI, RSP, State};
use translate::Options;

const PLAIN: Options<'static> = Options {
    goal: None,
    count: false,
    watch: false,
};

/// Runs a function with arguments both ways and compares everything that must
/// be equal.
fn both(machine: &mut Machine, function: u64, arguments: [u64; 4], prepare: impl Fn()) -> u64 {
    let mut state = State::new();
    state.gpr[RSP] = machine.fresh_stack();
    state.gpr[RDI] = arguments[0];
    state.gpr[RSI] = arguments[1];
    state.gpr[RDX] = arguments[2];
    state.gpr[1] = arguments[3];
    let begin = state;
    // Once for lazy binding and the like.
    prepare();
    machine.native(&mut state, function);
    assert_eq!(state.fault, 0, "natively, at {:x}", state.fault_rip);
    state = begin;
    state.gpr[RSP] = machine.fresh_stack();
    prepare();
    machine.native(&mut state, function);
    let native = state;
    let native_stack = machine.stack().to_vec();
    // Also as if it were code that may change.
    for made in [false, true] {
        machine.made = made;
        state = begin;
        state.gpr[RSP] = machine.fresh_stack();
        prepare();
        machine.translated(&mut state, function, &PLAIN);
        assert_eq!(state.fault, 0, "translated, at {:x}", state.fault_rip);
        assert_eq!(state, native);
        assert!(machine.stack() == native_stack);
    }
    machine.made = false;
    state.gpr[RAX]
}

extern "C" fn compare(a: *const i32, b: *const i32) -> i32 {
    // SAFETY: qsort passes elements of the array.
    unsafe { (*a).cmp(&*b) as i32 }
}

#[test]
fn qsort_with_a_callback() {
    let mut machine = Machine::new();
    // Few enough that no memory is allocated, whose address would differ.
    let mut numbers = vec![0i32; 200];
    let at = numbers.as_mut_ptr();
    let fill = || {
        for i in 0..200 {
            // SAFETY: inside the vector.
            unsafe { *at.add(i) = (i as i32 * 7919) % 1009 };
        }
    };
    both(
        &mut machine,
        libc::qsort as *const () as u64,
        [at as u64, 200, 4, compare as *const () as u64],
        fill,
    );
    assert!(numbers.is_sorted());
}

extern "C" fn fibonacci(n: u64) -> u64 {
    if n < 2 {
        n
    } else {
        fibonacci(n - 1) + fibonacci(n - 2)
    }
}

#[test]
fn recursion() {
    let mut machine = Machine::new();
    let result = both(
        &mut machine,
        fibonacci as *const () as u64,
        [20, 0, 0, 0],
        || {},
    );
    assert_eq!(result, 6765);
}

extern "C" fn tokens(text: *const u8, len: u64) -> u64 {
    let mut hash = 7u64;
    for i in 0..len as usize {
        // SAFETY: the test passes a text of that length.
        let byte = unsafe { *text.add(i) };
        // A jump table.
        hash = match byte {
            b'a' => hash + 1,
            b'b' => hash.rotate_left(3),
            b'c' => hash ^ 0x1234,
            b'd' => hash.wrapping_mul(31),
            b'e' => hash.swap_bytes(),
            b'f' => hash - 5,
            b'g' => hash | 1,
            b'h' => hash & !2,
            b'i' => hash.wrapping_sub(9),
            b'j' => hash.count_ones().into(),
            _ => hash.wrapping_add(u64::from(byte)),
        };
    }
    hash
}

#[test]
fn a_jump_table() {
    let mut machine = Machine::new();
    let text: Vec<u8> = (0..5000u32).map(|i| b'a' + (i * i % 13) as u8).collect();
    let result = both(
        &mut machine,
        tokens as *const () as u64,
        [text.as_ptr() as u64, text.len() as u64, 0, 0],
        || {},
    );
    assert_eq!(result, tokens(text.as_ptr(), text.len() as u64));
}

#[test]
fn formatting_of_numbers() {
    let mut machine = Machine::new();
    let mut buffer = vec![0u8; 256];
    let format = c"%ld and %s and %lx";
    both(
        &mut machine,
        libc::sprintf as *const () as u64,
        [
            buffer.as_mut_ptr() as u64,
            format.as_ptr() as u64,
            123_456_789,
            c"text".as_ptr() as u64,
        ],
        || {},
    );
    assert!(buffer.starts_with(b"123456789 and text and "));
}

extern "C" fn floats(n: u64) -> u64 {
    let mut sum = 0.0f64;
    for i in 1..=n {
        sum += (i as f64).sqrt() / (1.0 + (i as f64).sin().abs());
    }
    sum.to_bits()
}

#[test]
fn floating_point() {
    let mut machine = Machine::new();
    let result = both(
        &mut machine,
        floats as *const () as u64,
        [1000, 0, 0, 0],
        || {},
    );
    assert_eq!(result, floats(1000));
}

#[test]
fn strings_of_the_c_library() {
    let mut machine = Machine::new();
    let mut from: Vec<u8> = (0..4000u32).map(|i| (i % 251) as u8 + 1).collect();
    from.push(0);
    let mut to = vec![0u8; 4001];
    let (at, place) = (from.as_ptr() as u64, to.as_mut_ptr() as u64);
    for (function, arguments) in [
        (libc::strlen as *const () as u64, [at, 0, 0, 0]),
        (libc::memcpy as *const () as u64, [place, at, 4001, 0]),
        (libc::memcmp as *const () as u64, [place, at, 4001, 0]),
        (
            libc::memmove as *const () as u64,
            [place, place + 7, 3000, 0],
        ),
        (libc::memset as *const () as u64, [place, 0x41, 4000, 0]),
        (libc::strchr as *const () as u64, [at, 200, 0, 0]),
        (libc::strstr as *const () as u64, [at, at + 249, 0, 0]),
        (
            libc::strtol as *const () as u64,
            [c"  -98765".as_ptr() as u64, 0, 10, 0],
        ),
    ] {
        both(&mut machine, function, arguments, || {
            // SAFETY: the vector's bytes, which nothing refers to now.
            unsafe { std::ptr::write_bytes(place as *mut u8, 0x37, 4001) };
        });
    }
}

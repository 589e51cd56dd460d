//! Pads of breakpoints: the copies do what the instructions do, and whoever jumps into the jump
//! traps.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so and stops"
)]

use patch::decode::decode;
use patch::{Code, PAD_MAX, PadPlan, Refusal};

const BASE: u64 = 0x5555_0000_0000;
const MONITOR: u64 = 0x6f00_0000_1234;

/// The code, with room around it that nothing in jumps.
fn plan(code: &[u8], base: u64) -> Result<PadPlan, Refusal> {
    let mut bytes = vec![0x90; 64];
    bytes.extend_from_slice(code);
    bytes.extend([0x90; 64]);
    let window = Code {
        base: base - 64,
        bytes: &bytes,
    };
    PadPlan::new(window, base)
}

/// Bytes that trap where they are executed first.
fn traps(byte: u8) -> bool {
    byte == 0xcc || decode(&[byte, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90]).is_none()
}

/// The relative target of what is at `at` in a pad: a displacement in its last four bytes.
fn target(bytes: &[u8], pad: u64, at: u64) -> u64 {
    let from = (at - pad) as usize;
    let inst = decode(&bytes[from..]).unwrap();
    let end = from + inst.len;
    let disp = i32::from_le_bytes(bytes[end - 4..end].try_into().unwrap());
    (pad + end as u64).wrapping_add_signed(disp.into())
}

#[test]
fn wherever_an_instruction_begins_in_the_jump_it_traps() {
    let snippets: [&[u8]; 7] = [
        &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10], // push rbp; mov rbp, rsp; sub
        &[0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x7d, 0xf8], // sub rsp, 16; mov [rbp - 8], rdi
        &[0x50, 0x51, 0x52, 0x53, 0x56],                   // five pushes
        &[0x89, 0xf8, 0x89, 0xf1, 0x90],                   // two of two, and one
        &[0xc3, 0x90, 0x66, 0x90, 0x0f, 0x1f, 0x00],       // ret, and what fills the gap
        &[0x48, 0x8b, 0x05, 1, 0, 0, 0],                   // one that is long enough
        &[0x74, 0x10, 0x48, 0x89, 0xc7],                   // je; mov
    ];
    for (base, code) in [BASE, 0x40_1000]
        .iter()
        .flat_map(|b| snippets.map(|s| (*b, s)))
    {
        let plan = plan(code, base).unwrap();
        let inner: Vec<u64> = plan.inner().collect();
        let mut found = 0;
        for entry in plan.entries() {
            // (Some are where no memory can be.)
            let mut out = [0; PAD_MAX];
            let Some(pad) = plan.write(entry, MONITOR, 0x150, &mut out) else {
                panic!("{code:x?}: {entry:#x}");
            };
            found += 1;
            assert_eq!(pad.jump[0], 0xe9);
            for begin in &inner {
                let byte = pad.jump[(begin - base) as usize];
                assert!(traps(byte), "{code:x?}: {byte:#x} at {begin:#x}");
                let copy = pad.from_program(*begin).unwrap();
                assert_eq!(pad.to_program(copy), Some(*begin));
            }
            assert_eq!(pad.from_program(base), Some(pad.resume));
            assert_eq!(pad.to_program(pad.hit), Some(base));
        }
        assert!(found >= 8, "{code:x?}");
    }
}

#[test]
fn jumps_and_calls_lead_where_they_did() {
    // The instruction, and where it leads from its beginning.
    let calls: [(&[u8], i64, bool); 5] = [
        (&[0xe8, 0x00, 0x01, 0, 0], 0x105, true), // call
        (&[0xe9, 0x00, 0x01, 0, 0], 0x105, false),
        (&[0xeb, 0x20, 0x90, 0x90, 0x90], 0x22, false),
        (&[0x0f, 0x84, 0x00, 0x01, 0, 0], 0x106, false),
        (&[0x75, 0xe0, 0x48, 0x89, 0xc7], -0x1e, false),
    ];
    for (code, to, is_call) in calls {
        let plan = plan(code, BASE).unwrap();
        let mut out = [0; PAD_MAX];
        let entry = plan.entries().next().unwrap();
        let pad = plan.write(entry, MONITOR, 0x150, &mut out).unwrap();
        let mut at = pad.resume;
        if is_call {
            // Where it returns to is what the program would have pushed.
            let slot = target(&out, entry, at);
            let slot = (slot - entry) as usize;
            let pushed = u64::from_le_bytes(out[slot..slot + 8].try_into().unwrap());
            assert_eq!(pushed, BASE + 5);
            at += 6;
        }
        assert_eq!(
            target(&out, entry, at),
            BASE.wrapping_add_signed(to),
            "{code:x?}"
        );
    }
}

#[test]
fn what_cannot_be_elsewhere_is_refused() {
    let refused: [&[u8]; 6] = [
        &[0x0f, 0x05, 0x90, 0x90, 0x90],                   // syscall
        &[0xf0, 0x0f, 0xb1, 0x17, 0x90], // lock cmpxchg: some jump over the prefix
        &[0xc3, 0x48, 0x89, 0xc7, 0x90], // the next function behind a ret
        &[0xff, 0x54, 0x24, 0x08, 0x90], // call [rsp + 8]
        &[0x90, 0xcc, 0x90, 0x90, 0x90], // a trap of the program's own
        &[0x48, 0x89, 0xc7, 0x48, 0x89, 0xfe, 0xeb, 0xfb], // jumped into
    ];
    for code in refused {
        assert!(plan(code, BASE).is_err(), "{code:x?}");
    }
}

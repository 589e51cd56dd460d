//! Each way to patch a site, and each reason not to, on code made for it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

#[path = "../../../tests/seed.rs"]
mod seed;

use patch::{
    Code, JUMP_LEN, Plan, Refusal, STUB_MAX, Stub, jump_bytes, plan, plan_chosen, plan_trap,
    write_stub,
};

const BASE: u64 = 0x7f00_0000_0000;
/// Where the code under test begins, behind a run of `nop`.
const START: u64 = BASE + 256;
const STUB: u64 = BASE - 0x10_0000;
const ENTRY: u64 = 0x1122_3344_5566_7788;

const SYSCALL: &[u8] = &[0x0f, 0x05];
const RET: &[u8] = &[0xc3];
const MOV_EAX: &[u8] = &[0xb8, 0x27, 0, 0, 0];
const MOV_RAX: &[u8] = &[0x48, 0xc7, 0xc0, 0x27, 0, 0, 0];
const MOV_EAX_R8D: &[u8] = &[0x44, 0x89, 0xc0];
const MOV_EDI_ESI: &[u8] = &[0x89, 0xf7];
const CMP_RAX: &[u8] = &[0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff];
const LEA_RDX_RIP: &[u8] = &[0x48, 0x8d, 0x15, 0x00, 0x10, 0, 0];
const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

/// The parts, one after another, amidst `nop`s.
fn amidst_nops(parts: &[&[u8]]) -> Vec<u8> {
    let nops: &[u8] = &[0x90; 256];
    [nops, &parts.concat(), nops].concat()
}

/// Plans the `syscall` behind `before`.
fn plan_between(before: &[&[u8]], after: &[&[u8]]) -> Result<Plan, Refusal> {
    let before = before.concat();
    let bytes = amidst_nops(&[&before, SYSCALL, &after.concat()]);
    plan_at(&bytes, START + before.len() as u64)
}

fn plan_at(bytes: &[u8], site: u64) -> Result<Plan, Refusal> {
    plan(Code { base: BASE, bytes }, site)
}

fn stub_of(plan: &Plan) -> (Stub, Vec<u8>) {
    let mut out = [0; STUB_MAX];
    let stub = write_stub(plan, STUB, ENTRY, &mut out).expect("the stub is near");
    (stub, out[..stub.len].to_vec())
}

#[test]
fn one_long_instruction_before_gives_its_place_and_the_syscall_stays() {
    let plan = plan_between(&[MOV_EAX], &[CMP_RAX]).unwrap();
    assert_eq!(plan.patch_start, START);
    assert_eq!(plan.patch_len, 5);
    assert_eq!(plan.site, START + 5);
    assert_eq!((plan.before, plan.after), (5, 0));
    assert!(plan.keeps_syscall());
    assert_eq!(plan.back(), plan.site + 2);
    assert_eq!(plan.overwritten(), MOV_EAX);
    assert_eq!(
        plan.original[..plan.original_len],
        [MOV_EAX, SYSCALL].concat()
    );
    assert_eq!(jump_bytes(&plan, STUB).unwrap().as_slice().len(), 5);
}

#[test]
fn what_the_jump_leaves_of_a_longer_instruction_is_filled() {
    let plan = plan_between(&[MOV_RAX], &[RET]).unwrap();
    assert!(plan.keeps_syscall());
    let jump = jump_bytes(&plan, STUB).unwrap();
    let disp = (STUB.wrapping_sub(START + 5) as u32).to_le_bytes();
    assert_eq!(
        jump.as_slice(),
        [&[0xe9][..], &disp, &[0xcc, 0xcc]].concat()
    );
}

#[test]
fn a_long_instruction_after_moves_if_the_one_before_is_short() {
    let plan = plan_between(&[MOV_EAX_R8D], &[CMP_RAX]).unwrap();
    assert_eq!(plan.patch_start, plan.site);
    assert_eq!(plan.patch_len, 8);
    assert_eq!((plan.before, plan.after), (0, 6));
    assert!(!plan.keeps_syscall());
    assert_eq!(plan.back(), plan.site + 8);
    assert_eq!(plan.overwritten(), [SYSCALL, CMP_RAX].concat());
}

#[test]
fn several_short_instructions_after_move_together() {
    let (pop_rbx, pop_rbp, pop_r12) = (&[0x5b][..], &[0x5d][..], &[0x41, 0x5c][..]);
    let plan = plan_between(&[MOV_EDI_ESI], &[pop_rbx, pop_rbp, pop_r12, RET]).unwrap();
    assert_eq!((plan.before, plan.after), (0, 4));
}

#[test]
fn short_instructions_before_move_if_those_after_cannot() {
    let plan = plan_between(&[MOV_EAX_R8D], &[RET]).unwrap();
    assert_eq!((plan.before, plan.after), (3, 0));
    assert_eq!((plan.patch_start, plan.patch_len), (START, 5));
    assert!(!plan.keeps_syscall());

    let plan = plan_between(&[MOV_EAX_R8D, MOV_EDI_ESI], &[RET]).unwrap();
    assert_eq!((plan.before, plan.patch_len), (5, 5));
    assert!(plan.keeps_syscall());
}

#[test]
fn what_is_not_a_syscall_is_refused() {
    let bytes = amidst_nops(&[MOV_EAX, SYSCALL]);
    assert_eq!(plan_at(&bytes, START), Err(Refusal::NotASyscall));
}

#[test]
fn a_site_outside_of_the_window_is_refused() {
    let bytes = amidst_nops(&[MOV_EAX, SYSCALL]);
    let end = BASE + bytes.len() as u64;
    for site in [0, BASE - 1, end - 1, end, u64::MAX] {
        assert_eq!(plan_at(&bytes, site), Err(Refusal::WindowTooSmall));
    }
}

#[test]
fn a_window_that_ends_within_the_neighbour_is_refused() {
    let code = [SYSCALL, &CMP_RAX[..5]].concat();
    assert_eq!(plan_at(&code, BASE), Err(Refusal::WindowTooSmall));
    let code = [SYSCALL, CMP_RAX].concat();
    assert_eq!(plan_at(&code, BASE).map(|plan| plan.after), Ok(6));
}

#[test]
fn the_return_from_a_signal_is_refused() {
    let mov_rax_15: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0];
    assert_eq!(plan_between(&[mov_rax_15], &[]), Err(Refusal::SignalReturn));
}

#[test]
fn neighbours_that_jump_or_trap_or_mark_a_target_are_refused() {
    let jcc: &[u8] = &[0x75, 0x10];
    let jmp: &[u8] = &[0xff, 0xe0];
    let call: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    let int3: &[u8] = &[0xcc];
    let ud2: &[u8] = &[0x0f, 0x0b];
    for fixed in [jcc, jmp, call, int3, ud2, RET, SYSCALL, ENDBR64] {
        let before = [RET, fixed, MOV_EDI_ESI];
        // An int3 before the syscall could be the end of an earlier patch.
        let site = START + before.concat().len() as u64;
        assert_eq!(
            plan_between(&before, &[fixed]),
            Err(Refusal::FixedNeighbour(site + 2)),
            "{fixed:02x?}"
        );
    }
}

#[test]
fn a_neighbour_that_is_no_instruction_is_refused() {
    let unknown: &[u8] = &[0x06, 0x06, 0x06, 0x06];
    let refused = plan_between(&[RET], &[unknown]);
    assert_eq!(refused, Err(Refusal::UnknownNeighbour(START + 3)));
}

#[test]
fn nothing_before_the_site_moves_if_its_beginning_is_unclear() {
    // Read from its first byte this is one instruction, from its second byte another; both
    // end at the syscall, and there is nothing in front to tell which it is.
    let code = [MOV_RAX, SYSCALL, RET].concat();
    assert_eq!(
        plan_at(&code, BASE + 7),
        Err(Refusal::FixedNeighbour(BASE + 9))
    );
}

#[test]
fn a_site_whose_neighbour_already_jumps_to_a_stub_is_refused() {
    for before in [MOV_EAX, MOV_RAX] {
        let mut bytes = amidst_nops(&[before, SYSCALL, CMP_RAX]);
        let site = START + before.len() as u64;
        let made = plan_at(&bytes, site).unwrap();
        let jump = jump_bytes(&made, STUB).unwrap();
        bytes[256..256 + made.patch_len].copy_from_slice(jump.as_slice());
        assert_eq!(plan_at(&bytes, site), Err(Refusal::AlreadyPatched));
    }
}

/// Puts a jump `code` at `offset` in the window, its displacement leading to `target`.
fn put_jump(bytes: &mut [u8], offset: usize, code: &[u8], disp_len: usize, target: u64) {
    let next = BASE + (offset + code.len() + disp_len) as u64;
    let disp = target.wrapping_sub(next).to_le_bytes();
    let at = offset + code.len();
    bytes[offset..at].copy_from_slice(code);
    bytes[at..at + disp_len].copy_from_slice(&disp[..disp_len]);
}

#[test]
fn a_jump_to_behind_the_syscall_keeps_what_is_there_in_place() {
    let jumps: [(&[u8], usize); 9] = [
        (&[0x70], 1),
        (&[0x7f], 1),
        (&[0xe3], 1),
        (&[0xeb], 1),
        (&[0xe8], 4),
        (&[0xe9], 4),
        (&[0x0f, 0x80], 4),
        (&[0x0f, 0x8f], 4),
        (&[0xc7, 0xf8], 4),
    ];
    for (code, disp_len) in jumps {
        for offset in [180, 300] {
            let mut bytes = amidst_nops(&[RET, SYSCALL, CMP_RAX]);
            let site = START + 1;
            put_jump(&mut bytes, offset, code, disp_len, site + 2);
            let from = BASE + offset as u64;
            assert_eq!(
                plan_at(&bytes, site),
                Err(Refusal::JumpedInto(from)),
                "{code:02x?}"
            );

            // To the syscall itself, and to behind what moves, is no harm.
            for harmless in [site, site + 8] {
                put_jump(&mut bytes, offset, code, disp_len, harmless);
                assert_eq!(plan_at(&bytes, site).map(|plan| plan.after), Ok(6));
            }

            // What is before can move instead.
            let mut bytes = amidst_nops(&[MOV_EAX_R8D, SYSCALL, CMP_RAX]);
            put_jump(&mut bytes, offset, code, disp_len, START + 5);
            let plan = plan_at(&bytes, START + 3).unwrap();
            assert_eq!((plan.before, plan.after), (3, 0));
        }
    }
}

#[test]
fn a_jump_from_anywhere_in_the_window_is_seen() {
    let size: usize = 64 << 10;
    let middle = size / 2;
    let site = BASE + middle as u64;
    let mut clean = vec![0x90; size];
    clean[middle..middle + 8].copy_from_slice(&[SYSCALL, CMP_RAX].concat());
    clean[middle - 1] = 0xc3;
    assert!(plan_at(&clean, site).is_ok());
    let everywhere = (0..40).chain(500..540).chain(size - 560..size - 4);
    for offset in everywhere {
        let mut bytes = clean.clone();
        put_jump(&mut bytes, offset, &[0xe9], 4, site + 7);
        let from = BASE + offset as u64;
        assert_eq!(plan_at(&bytes, site), Err(Refusal::JumpedInto(from)));
    }
}

#[test]
fn a_jump_to_a_syscall_that_would_stay_makes_the_instruction_after_move() {
    let mut bytes = amidst_nops(&[MOV_EAX, SYSCALL, CMP_RAX]);
    put_jump(&mut bytes, 300, &[0xeb], 1, START + 5);
    let plan = plan_at(&bytes, START + 5).unwrap();
    assert_eq!((plan.before, plan.after), (0, 6));

    // Unless that cannot move: better than nothing.
    let mut bytes = amidst_nops(&[MOV_EAX, SYSCALL, RET]);
    put_jump(&mut bytes, 300, &[0xeb], 1, START + 5);
    let plan = plan_at(&bytes, START + 5).unwrap();
    assert!(plan.keeps_syscall());
}

#[test]
fn a_jump_over_a_prefix_is_seen() {
    let lock_inc: &[u8] = &[0xf0, 0x48, 0xff, 0x44, 0x24, 0x08];
    let bytes = amidst_nops(&[lock_inc, SYSCALL, RET]);
    assert!(plan_at(&bytes, START + 6).is_ok());
    let mut bytes = amidst_nops(&[lock_inc, SYSCALL, RET]);
    put_jump(&mut bytes, 200, &[0x74], 1, START + 1);
    assert_eq!(
        plan_at(&bytes, START + 6),
        Err(Refusal::FixedNeighbour(START + 8))
    );
}

#[test]
fn the_stub_is_as_documented() {
    let plan = plan_between(&[MOV_EDI_ESI], &[CMP_RAX]).unwrap();
    let (stub, bytes) = stub_of(&plan);
    let back = (plan.back().wrapping_sub(STUB + 21 + 6 + 5) as u32).to_le_bytes();
    let expected = [
        &[0x48, 0x8d, 0x0d, 14, 0, 0, 0][..],
        &[0xff, 0x25, 8 + 6 + 5, 0, 0, 0],
        &plan.site.to_le_bytes(),
        CMP_RAX,
        &[0xe9],
        &back,
        &ENTRY.to_le_bytes(),
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(
        (stub.entry, stub.call, stub.resume),
        (STUB, STUB, STUB + 21)
    );
    assert_eq!(stub.back, plan.back());

    let plan = plan_between(&[MOV_EAX], &[CMP_RAX]).unwrap();
    let (stub, bytes) = stub_of(&plan);
    assert_eq!(bytes[..5], *MOV_EAX);
    assert_eq!(
        (stub.entry, stub.call, stub.resume),
        (STUB, STUB + 5, STUB + 26)
    );
    assert_eq!(bytes[26], 0xe9);
}

#[test]
fn displacements_from_rip_lead_to_the_same_place_from_the_stub() {
    let data = START + 2 + 7 + 0x1000;
    let plan = plan_between(&[], &[LEA_RDX_RIP]).unwrap();
    let (stub, bytes) = stub_of(&plan);
    let disp = i32::from_le_bytes(bytes[24..28].try_into().unwrap());
    assert_eq!((stub.resume + 7).wrapping_add_signed(i64::from(disp)), data);

    // A displacement in the middle: mov dword [rip + 0x1000], 5
    let store: &[u8] = &[0xc7, 0x05, 0x00, 0x10, 0, 0, 5, 0, 0, 0];
    let plan = plan_between(&[store], &[RET]).unwrap();
    let (stub, bytes) = stub_of(&plan);
    let disp = i32::from_le_bytes(bytes[2..6].try_into().unwrap());
    let data = START + 10 + 0x1000;
    assert_eq!((stub.entry + 10).wrapping_add_signed(i64::from(disp)), data);
    assert_eq!(bytes[6..10], store[6..]);
}

#[test]
fn a_stub_too_far_away_is_refused() {
    let far_data: &[u8] = &[0x48, 0x8d, 0x15, 0xff, 0xff, 0xff, 0x7f];
    let plan = plan_between(&[], &[far_data]).unwrap();
    let mut out = [0; STUB_MAX];
    assert!(write_stub(&plan, START + 0x1000, ENTRY, &mut out).is_some());
    assert_eq!(write_stub(&plan, STUB, ENTRY, &mut out), None);

    let plan = plan_between(&[MOV_EAX], &[]).unwrap();
    let reach = 1_u64 << 31;
    for far in [START + reach + 5, START - reach, 0, u64::MAX] {
        assert_eq!(jump_bytes(&plan, far), None);
    }
    for far in [START + reach + 5, START - reach - 64, 0, u64::MAX] {
        assert_eq!(write_stub(&plan, far, ENTRY, &mut out), None);
    }
    for near in [START + reach + 4, START - reach + 5] {
        assert!(jump_bytes(&plan, near).is_some());
    }
}

#[test]
fn a_stub_is_written_whole_or_not_at_all() {
    let plan = plan_between(&[MOV_RAX], &[CMP_RAX]).unwrap();
    let (stub, _) = stub_of(&plan);
    let mut out = [0; STUB_MAX];
    for len in 0..stub.len {
        assert_eq!(write_stub(&plan, STUB, ENTRY, &mut out[..len]), None);
    }
    assert!(write_stub(&plan, STUB, ENTRY, &mut out[..stub.len]).is_some());
}

#[test]
fn places_in_the_program_and_in_the_stub_correspond() {
    let plan = plan_between(&[MOV_EAX_R8D, MOV_EDI_ESI], &[RET]).unwrap();
    let (stub, _) = stub_of(&plan);
    for into in [0, 3, 5] {
        assert_eq!(stub.from_program(&plan, START + into), Some(STUB + into));
        assert_eq!(stub.to_program(&plan, STUB + into), Some(START + into));
    }
    assert_eq!(stub.call, STUB + 5);
    assert_eq!(stub.from_program(&plan, plan.back()), None);
    assert_eq!(stub.to_program(&plan, stub.resume), Some(plan.back()));

    let plan = plan_between(&[], &[CMP_RAX]).unwrap();
    let (stub, _) = stub_of(&plan);
    assert_eq!(stub.from_program(&plan, plan.site), Some(stub.call));
    assert_eq!(stub.from_program(&plan, plan.site + 2), Some(stub.resume));
    assert_eq!(stub.from_program(&plan, plan.site + 8), None);
    assert_eq!(stub.from_program(&plan, plan.site - 1), None);
    assert_eq!(stub.to_program(&plan, stub.call + 7), Some(plan.site));
    assert_eq!(stub.to_program(&plan, stub.resume), Some(plan.site + 2));
    assert_eq!(stub.to_program(&plan, stub.resume + 6), Some(plan.back()));
    assert_eq!(stub.to_program(&plan, stub.entry - 1), None);
    assert_eq!(stub.to_program(&plan, stub.entry + stub.len as u64), None);
}

#[test]
fn refusals_say_what_and_where() {
    let said = Refusal::JumpedInto(0x1234).to_string();
    assert_eq!(said, "this may jump into the patched bytes: 0x1234");
    assert_eq!(
        Refusal::NotASyscall.to_string(),
        "there is no syscall instruction here"
    );
}

/// Whatever the bytes, there is an answer, and a plan that is made holds together.
#[test]
fn any_bytes_get_an_answer() {
    let mut state = seed::seed("bytes", 0x2545_f491_4f6c_dd1d);
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Bytes of which something may come are drawn more often.
    let usual = [
        0x0f, 0x05, 0x48, 0x89, 0xb8, 0x00, 0xff, 0x8d, 0x15, 0xe9, 0x66, 0xc7,
    ];
    let mut planned = 0;
    for _ in 0..30_000 {
        let len = random() as usize % 200;
        let mut bytes: Vec<u8> = (0..len)
            .map(|_| match random() {
                pick if pick & 0x100 == 0 => usual[pick as usize % usual.len()],
                pick => pick as u8,
            })
            .collect();
        let offset = random() as usize % (len + 2);
        if let Some(place) = bytes.get_mut(offset..offset + 2) {
            place.copy_from_slice(SYSCALL);
        }
        let base = match random() % 4 {
            0 => 0,
            1 => u64::MAX - random() % 300,
            _ => BASE,
        };
        let site = base.wrapping_add(offset as u64);
        let Ok(made) = plan(
            Code {
                base,
                bytes: &bytes,
            },
            site,
        ) else {
            continue;
        };
        planned += 1;
        assert!(made.patch_len >= JUMP_LEN);
        assert_eq!(made.original_len, made.before + 2 + made.after);
        assert_eq!(made.site, made.patch_start.wrapping_add(made.before as u64));
        let mut out = [0; STUB_MAX];
        if let Some(stub) = write_stub(&made, made.site.wrapping_add(0x1000), ENTRY, &mut out) {
            assert_eq!(stub.len, made.before + made.after + 34);
            assert_eq!(stub.back, made.back());
        }
    }
    assert!(planned > 1000, "only {planned} plans were made");
}

/// A plan whose numbers make no sense is refused, not believed.
#[test]
fn a_broken_plan_gets_an_answer() {
    let good = plan_between(&[MOV_EAX], &[]).unwrap();
    let mut out = [0; STUB_MAX];
    for huge in [20, 1000, usize::MAX] {
        for broken in [
            Plan {
                before: huge,
                ..good
            },
            Plan {
                after: huge,
                ..good
            },
            Plan {
                original_len: huge,
                ..good
            },
        ] {
            assert_eq!(write_stub(&broken, STUB, ENTRY, &mut out), None);
        }
        let broken = Plan {
            patch_len: huge,
            ..good
        };
        assert_eq!(jump_bytes(&broken, STUB), None);
        assert_eq!(broken.overwritten(), &[] as &[u8]);
    }
}

/// Neighbours that somebody chose before make the plan that would be found, from their own bytes
/// alone; and none, if they are not whole instructions that can be moved.
#[test]
fn neighbours_that_were_chosen() {
    const UD2: &[u8] = &[0x0f, 0x0b];
    let ways = [
        (vec![RET], vec![MOV_EDI_ESI, MOV_EAX_R8D, RET]),
        (vec![RET, MOV_EDI_ESI, MOV_EAX_R8D], vec![RET]),
        (vec![RET, MOV_EAX], vec![RET]),
    ];
    for (before, after) in ways {
        let before = before.concat();
        let bytes = amidst_nops(&[&before, UD2, &after.concat()]);
        let site = START + before.len() as u64;
        let code = Code {
            base: BASE,
            bytes: &bytes,
        };
        let found = plan_trap(code, site, UD2.len()).unwrap();
        let (first, last) = (found.patch_start, found.back());
        let own = Code {
            base: first,
            bytes: &bytes[(first - BASE) as usize..(last - BASE) as usize],
        };
        let chosen = |before, after| plan_chosen(own, site, UD2.len(), before, after);
        assert_eq!(chosen(found.before, found.after), Some(found));
        // One byte less is no whole instruction, or leaves no room; one more is not there.
        if found.after > 0 {
            assert_eq!(chosen(found.before, found.after - 1), None);
        }
        if found.before > 0 {
            assert_eq!(chosen(found.before - 1, found.after), None);
        }
        assert_eq!(chosen(found.before + 1, found.after), None);
        assert_eq!(chosen(found.before, found.after + 1), None);
    }
    let bytes = [UD2, RET, RET, RET].concat();
    let code = Code {
        base: START,
        bytes: &bytes,
    };
    assert_eq!(plan_chosen(code, START, UD2.len(), 0, 3), None);
}

//! The length decoder against a full disassembler.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

mod common;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use patch::decode::decode;

/// Says how our reading of `bytes` differs from the disassembler's, if it has one.
fn difference(bytes: &[u8]) -> Option<String> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let theirs = decoder.decode();
    if theirs.is_invalid() {
        return None;
    }
    let offsets = decoder.get_constant_offsets(&theirs);
    let Some(ours) = decode(bytes) else {
        return (!left_out(&theirs)).then(|| format!("{bytes:02x?}: unknown, is {theirs:?}"));
    };
    let rip_disp = theirs
        .is_ip_rel_memory_operand()
        .then_some(offsets.displacement_offset());
    if ours.len != theirs.len() {
        return Some(format!(
            "{bytes:02x?}: {ours:?}, is {} long: {theirs:?}",
            theirs.len()
        ));
    }
    if ours.rip_disp != rip_disp {
        return Some(format!(
            "{bytes:02x?}: {ours:?}, disp at {rip_disp:?}: {theirs:?}"
        ));
    }
    if ours.movable && must_stay(&theirs) {
        return Some(format!(
            "{bytes:02x?}: {ours:?} must not be moved: {theirs:?}"
        ));
    }
    if !ours.movable && may_move(&theirs) {
        return Some(format!("{bytes:02x?}: {ours:?} can be moved: {theirs:?}"));
    }
    None
}

fn must_stay(inst: &Instruction) -> bool {
    let address32 = inst.memory_base() == iced_x86::Register::EIP;
    address32
        || inst.code() == Code::Endbr64
        || (inst.flow_control() != FlowControl::Next
            && !matches!(inst.mnemonic(), Mnemonic::Xabort))
}

fn may_move(inst: &Instruction) -> bool {
    // Of the group 0f 01, all forms without memory stay, for simplicity.
    let simplified = matches!(
        inst.mnemonic(),
        Mnemonic::Endbr32 | Mnemonic::Hlt | Mnemonic::Rsm
    ) || inst.op_code().op_code() == 0x01
        && inst.op_code().table() == iced_x86::OpCodeTableKind::T0F
        || inst.op_code().op_code() & 0xffff_ff00 == 0x0100;
    !must_stay(inst) && !simplified
}

/// Instructions of the kernel, and of processors nobody has, that the decoder does without.
fn left_out(inst: &Instruction) -> bool {
    let code = inst.op_code();
    code.encoding() == iced_x86::EncodingKind::XOP
        || !code.cpl3()
        || code.mnemonic() == Mnemonic::Mov && code.table() == iced_x86::OpCodeTableKind::T0F
}

fn check(bytes: &[u8], wrong: &mut Vec<String>) {
    if wrong.len() < 20 {
        wrong.extend(difference(bytes));
    }
}

/// Every opcode of every map, after all prefixes that matter.
#[test]
fn every_form_agrees() {
    let common: [&[u8]; 5] = [&[], &[0x66], &[0xf2], &[0xf3], &[0x48]];
    let others: [&[u8]; 16] = [
        &[0x67],
        &[0xf0],
        &[0x64],
        &[0x2e],
        &[0x40],
        &[0x41],
        &[0x44],
        &[0x4c],
        &[0x4f],
        &[0x66, 0x48],
        &[0x66, 0x41],
        &[0xf2, 0x48],
        &[0xf3, 0x48],
        &[0x67, 0x48],
        &[0x48, 0x66],
        &[0x66, 0x66, 0x2e],
    ];
    let maps: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    let mut wrong = Vec::new();
    for map in maps {
        for prefix in common {
            forms(&[prefix, map].concat(), |_| true, &mut wrong);
        }
        for prefix in others {
            forms(&[prefix, map].concat(), |modrm| modrm & 7 > 3, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every opcode after VEX and EVEX prefixes has the length that a full
/// disassembler gives it.
#[test]
fn every_vector_form_agrees() {
    let mut wrong = Vec::new();
    let few = |modrm| modrm & 7 > 3 && matches!(modrm & 0x38, 0x10 | 0x30);
    for last in 0..16 {
        let last = last & 7 | (last & 8) << 4;
        for byte in [0xf8, 0x88] {
            forms(&[0xc5, byte ^ last], few, &mut wrong);
        }
        for map in [0xe1, 0xe2, 0xe3, 0x41, 0xe5, 0xe6] {
            forms(&[0xc4, map, 0x78 ^ last], few, &mut wrong);
        }
    }
    for map in [0xf1, 0xf2, 0xf3, 0xf5, 0xf6, 0x62] {
        for second in [0x7c, 0x7d, 0x7e, 0x7f, 0xfc, 0xfd, 0xfe, 0xff] {
            for third in [0x08, 0x48, 0x18, 0x9a] {
                forms(&[0x62, map, second, third], few, &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn forms(start: &[u8], wanted: impl Fn(u8) -> bool, wrong: &mut Vec<String>) {
    for opcode in 0..=255 {
        for modrm in (0..=255).filter(|&modrm| wanted(modrm)) {
            let has_sib = modrm & 7 == 4 && modrm < 0xc0;
            // One SIB byte with a base register, one without.
            let sibs: &[u8] = if has_sib { &[0x24, 0x25] } else { &[0x24] };
            for &sib in sibs {
                let mut bytes = [1; 24];
                let (head, tail) = bytes.split_at_mut(start.len());
                head.copy_from_slice(start);
                tail[..3].copy_from_slice(&[opcode, modrm, sib]);
                check(&bytes, wrong);
            }
        }
    }
}

#[test]
fn whole_libraries_agree() {
    let names = [
        "libc.so.6",
        "ld-linux-x86-64.so.2",
        "libm.so.6",
        "libcrypto.so.3",
    ];
    let texts = common::libraries(&names);
    assert!(!texts.is_empty(), "no library to read");
    for text in texts {
        let mut wrong = Vec::new();
        let mut count = 0;
        for inst in text.instructions() {
            count += 1;
            let from = (inst.ip() - text.base) as usize;
            let to = (from + 15).min(text.bytes.len());
            check(&text.bytes[from..to], &mut wrong);
        }
        println!("{}: {count} instructions", text.name);
        assert!(wrong.is_empty(), "{}: {}", text.name, wrong.join("\n"));
    }
}

#[test]
fn nothing_is_read_into_bytes_cut_short() {
    let whole = [0x66, 0x48, 0x81, 0x84, 0x25, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(decode(&whole).map(|inst| inst.len), Some(whole.len()));
    for len in 0..whole.len() {
        assert_eq!(decode(&whole[..len]), None);
    }
}

#[test]
fn more_than_fifteen_bytes_are_no_instruction() {
    let mut bytes = vec![0x66; 14];
    bytes.push(0x90);
    assert_eq!(decode(&bytes).map(|inst| inst.len), Some(15));
    bytes.insert(0, 0x66);
    assert_eq!(decode(&bytes), None);
}

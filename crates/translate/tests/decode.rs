//! What this crate believes about instructions, compared with a complete
//! decoder over the code of libraries.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

use std::path::PathBuf;

use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic,
    OpCodeOperandKind, OpKind, Register,
};
use object::{Object, ObjectSection, SectionKind};
use translate::{Effect, Flow, inst};

fn libraries() -> Vec<PathBuf> {
    let mut found = vec![std::env::current_exe().unwrap()];
    for name in ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3"] {
        found.extend(
            [
                "/lib/x86_64-linux-gnu",
                "/usr/lib/x86_64-linux-gnu",
                "/lib64",
            ]
            .iter()
            .map(|dir| PathBuf::from(dir).join(name))
            .find(|path| path.exists()),
        );
    }
    found
}

/// Calls `see` with every instruction of a library, as iced decodes it.
fn each(path: &PathBuf, mut see: impl FnMut(&Instruction, &[u8])) -> usize {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let mut count = 0;
    for section in file.sections() {
        if section.kind() != SectionKind::Text {
            continue;
        }
        let code = section.data().unwrap();
        let mut decoder = Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE);
        let mut theirs = Instruction::default();
        while decoder.can_decode() {
            let at = decoder.position();
            decoder.decode_out(&mut theirs);
            if theirs.is_invalid() {
                decoder.set_position(at + 1).unwrap();
                decoder.set_ip(section.address() + at as u64 + 1);
                continue;
            }
            see(&theirs, &code[at..]);
            count += 1;
        }
    }
    count
}

fn expected(theirs: &Instruction) -> Option<Flow> {
    Some(match theirs.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch if theirs.is_jmp_short_or_near() => {
            Flow::Jump(theirs.near_branch_target())
        }
        FlowControl::ConditionalBranch if theirs.is_jcc_short_or_near() => {
            Flow::Branch(condition(theirs), theirs.near_branch_target())
        }
        FlowControl::ConditionalBranch => {
            let op = match theirs.mnemonic() {
                Mnemonic::Loopne => 0xe0,
                Mnemonic::Loope => 0xe1,
                Mnemonic::Loop => 0xe2,
                _ => 0xe3,
            };
            Flow::Loop(op, theirs.near_branch_target())
        }
        FlowControl::Call if theirs.is_call_near() => Flow::Call(theirs.near_branch_target()),
        FlowControl::IndirectBranch if theirs.is_jmp_near_indirect() => Flow::JumpThrough,
        FlowControl::IndirectCall if theirs.is_call_near_indirect() => Flow::CallThrough,
        FlowControl::Return if matches!(theirs.mnemonic(), Mnemonic::Ret) => {
            let more = if theirs.op_count() == 1 {
                theirs.immediate16()
            } else {
                0
            };
            Flow::Return(more)
        }
        _ => return None,
    })
}

fn condition(theirs: &Instruction) -> u8 {
    use iced_x86::ConditionCode as C;
    match theirs.condition_code() {
        C::o => 0,
        C::no => 1,
        C::b => 2,
        C::ae => 3,
        C::e => 4,
        C::ne => 5,
        C::be => 6,
        C::a => 7,
        C::s => 8,
        C::ns => 9,
        C::p => 10,
        C::np => 11,
        C::l => 12,
        C::ge => 13,
        C::le => 14,
        C::g => 15,
        C::None => 255,
    }
}

/// General registers and the fs base that addresses are computed with.
const REGISTERS: [u64; 16] = [
    0x1000, 0x22000, 0x333000, 0x4444000, 0x55555000, 0x66666600, 0x77777, 0x8888, 0x999000,
    0xaaaa000, 0xbbbbb00, 0xccccc, 0xdddd000, 0xeeee00, 0xfff00, 0x123456,
];
const FS: u64 = 0x7777_0000_0000;

fn value(register: Register) -> Option<u64> {
    match register {
        Register::FS => Some(FS),
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        _ if register.is_gpr() => {
            let value = REGISTERS[register.full_register().number()];
            Some(match register.size() {
                8 => value,
                4 => value & 0xffff_ffff,
                _ => return None,
            })
        }
        _ => None,
    }
}

/// The moves that pointers are followed with.
fn expected_effect(theirs: &Instruction) -> Option<Effect> {
    let number = |i: u32| theirs.op_register(i).number() as u8;
    match theirs.code() {
        Code::Mov_r64_rm64 if theirs.op1_kind() == OpKind::Memory => Some(Effect::Load(number(0))),
        Code::Mov_r64_rm64 => Some(Effect::Copy(number(0), number(1))),
        Code::Mov_rm64_r64 if theirs.op0_kind() == OpKind::Register => {
            Some(Effect::Copy(number(0), number(1)))
        }
        Code::Lea_r64_m => Some(Effect::Address(number(0))),
        _ => None,
    }
}

#[test]
fn flow_and_operands_of_libraries() {
    let (mut count, mut refused) = (0, 0);
    for library in libraries() {
        count += each(&library, |theirs, code| {
            let Some(ours) = inst(code, theirs.ip()) else {
                refused += usize::from(theirs.flow_control() == FlowControl::Next);
                return;
            };
            let text = || format!("{:02x?} {theirs:?}", &code[..theirs.len()]);
            assert_eq!(ours.len, theirs.len(), "{}", text());
            assert_eq!(Some(ours.flow), expected(theirs), "{}", text());
            // With both prefixes it is the same, but seldom.
            if !code[..theirs.len()].contains(&0x66) {
                assert_eq!(ours.effect(code), expected_effect(theirs), "{}", text());
            }
            let relative = theirs.is_ip_rel_memory_operand();
            assert_eq!(
                ours.operand,
                relative.then(|| theirs.ip_rel_memory_address()),
                "{}",
                text()
            );
            let memory = (0..theirs.op_count()).find(|i| theirs.op_kind(*i) == OpKind::Memory);
            let is_string = ours.repeat.is_some();
            if let Some(operand) = memory
                && !is_string
                && !theirs.is_vsib()
                && !theirs
                    .op_code()
                    .op_kinds()
                    .contains(&OpCodeOperandKind::mem_offs)
                && theirs.segment_prefix() != Register::GS
                // It uses no memory, so no segment either.
                && theirs.mnemonic() != Mnemonic::Lea
                && !(theirs.op_code().encoding() == EncodingKind::EVEX
                    && theirs.memory_displ_size() == 1)
            {
                let address = theirs.virtual_address(operand, 0, |r, _, _| value(r));
                assert_eq!(ours.address(code, &REGISTERS, FS), address, "{}", text());
            }
        });
    }
    assert!(count > 300_000, "only {count} instructions were seen");
    // Few, most of them data between functions.
    assert!(refused * 1000 < count, "{refused} of {count} were refused");
}

//! The trial whether the goal is reached: code that compares registers and memory, and
//! leaves no trace where it is not.

use super::{Condition, Goal};
use crate::cache::{EXIT_DATA, SAVED_RAX, SAVED_RCX, VECTOR, kind, write_exit};
use crate::writer::{RAX, RCX, Writer};

/// Leaves by an exit if all conditions hold.
pub(super) fn write_goal(w: &mut Writer<'_>, goal: &Goal<'_>) {
    let mut fails = [0; Goal::CONDITIONS_MAX];
    let conditions = goal.conditions.iter().zip(&mut fails);
    if !goal.conditions.is_empty() {
        w.store(SAVED_RCX, RCX);
    }
    for (condition, fail) in conditions {
        match *condition {
            Condition::Register(RCX, value) => {
                w.load(RCX, SAVED_RCX);
                add_to_rcx(w, value);
            }
            Condition::Register(register, value) => {
                w.value(RCX, value.wrapping_neg());
                // lea rcx, [register + rcx + 0]
                w.bytes(&[0x48 | register >> 3 & 1, 0x8d, 0x4c, 0x08 | register & 7, 0]);
            }
            Condition::Memory(address, value) => {
                w.value(RCX, address);
                w.bytes(&[0x48, 0x8b, 0x09]); // mov rcx, [rcx]
                add_to_rcx(w, value);
            }
            Condition::Vector(half, value) => {
                let register = half >> 1;
                let high = (register >> 3 & 1) << 2;
                if half & 1 == 0 {
                    // movq rcx, register
                    let operand = 0xc1 | (register & 7) << 3;
                    w.bytes(&[0x66, 0x48 | high, 0x0f, 0x7e, operand]);
                } else {
                    w.store_vector(VECTOR, register);
                    w.load(RCX, VECTOR + 8);
                }
                add_to_rcx(w, value);
            }
        }
        w.bytes(&[0xe3, 0x05]); // jrcxz, past the jump
        *fail = w.jump_later(&[0xe9]);
    }
    if !goal.conditions.is_empty() {
        w.load(RCX, SAVED_RCX);
    }
    // Past the exit and its data; where the conditions do not hold, rcx has to
    // be restored there.
    let resume = w.at.wrapping_add(16 + EXIT_DATA);
    let behind = resume.wrapping_add(if goal.conditions.is_empty() { 0 } else { 7 });
    let address = w.address(behind);
    write_exit(w, address, 0, kind::GOAL);
    if !goal.conditions.is_empty() {
        w.load(RCX, SAVED_RCX);
    }
    for fail in fails.iter().take(goal.conditions.len()) {
        w.settle(*fail, resume);
    }
}

/// rcx -= value, without a change of flags.
fn add_to_rcx(w: &mut Writer<'_>, value: u64) {
    w.store(SAVED_RAX, RAX);
    w.value(RAX, value.wrapping_neg());
    w.bytes(&[0x48, 0x8d, 0x0c, 0x01]); // lea rcx, [rcx + rax]
    w.load(RAX, SAVED_RAX);
}

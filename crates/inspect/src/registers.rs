//! Registers as `info registers` shows them.

use crate::frames::Frame;
use crate::inspector::Inspector;
use crate::print::float;
use crate::target::{GENERAL, RBP, RSP};

/// gdb's order of the general registers.
const ORDER: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

const FLAGS: [(u32, &str); 14] = [
    (0, "CF"),
    (2, "PF"),
    (4, "AF"),
    (6, "ZF"),
    (7, "SF"),
    (8, "TF"),
    (9, "IF"),
    (10, "DF"),
    (11, "OF"),
    (14, "NT"),
    (16, "RF"),
    (17, "VM"),
    (18, "AC"),
    (21, "ID"),
];

fn row(name: &str, raw: &str, natural: &str) -> String {
    format!("{name:<15}{raw:<19} {natural}")
}

impl Inspector<'_> {
    /// The lines of `info registers` for a frame: general ones, flags and
    /// segments.
    pub fn register_lines(&self, frame: &Frame) -> Vec<String> {
        let mut lines = Vec::new();
        let registers = &frame.registers;
        for name in ORDER {
            let number = GENERAL.iter().position(|r| *r == name).unwrap_or(0) as u16;
            lines.push(match registers.get(number) {
                None => row(name, "<not saved>", ""),
                Some(value) if number == RBP || number == RSP => {
                    row(name, &format!("{value:#x}"), &format!("{value:#x}"))
                }
                Some(value) => row(name, &format!("{value:#x}"), &(value as i64).to_string()),
            });
        }
        lines.push(match registers.pc() {
            None => row("rip", "<not saved>", ""),
            Some(pc) => {
                let name = self.symbolize(pc);
                let place = name.map_or(String::new(), |name| format!(" <{name}>"));
                row("rip", &format!("{pc:#x}"), &format!("{pc:#x}{place}"))
            }
        });
        let flags = registers.now.eflags;
        let names: Vec<&str> = FLAGS
            .iter()
            .filter(|(bit, _)| flags >> bit & 1 == 1)
            .map(|(_, name)| *name)
            .collect();
        lines.push(row(
            "eflags",
            &format!("{flags:#x}"),
            &format!(
                "[ {}]",
                names.iter().map(|n| format!("{n} ")).collect::<String>()
            ),
        ));
        for (name, value) in ["cs", "ss", "ds", "es", "fs", "gs"]
            .iter()
            .zip(registers.now.segments)
        {
            lines.push(row(name, &format!("{value:#x}"), &value.to_string()));
        }
        for (name, value) in [
            ("fs_base", registers.now.fs_base),
            ("gs_base", registers.now.gs_base),
        ] {
            lines.push(row(
                name,
                &format!("{value:#x}"),
                &(value as i64).to_string(),
            ));
        }
        lines
    }

    /// The lines of `info float` and the vector registers: `st0`.. and
    /// `xmm0`.., as numbers.
    pub fn vector_lines(&self, frame: &Frame) -> Vec<String> {
        let now = &frame.registers.now;
        let mut lines = Vec::new();
        for number in 0..8 {
            if let Some(bytes) = now.st(number) {
                let raw: String = bytes.iter().rev().map(|b| format!("{b:02x}")).collect();
                let value = float::show(&bytes).unwrap_or_default();
                lines.push(row(
                    &format!("st{number}"),
                    &value,
                    &format!("(raw 0x{raw})"),
                ));
            }
        }
        for number in 0..16 {
            if let Some(bytes) = now.xmm(number) {
                let value = u128::from_le_bytes(bytes);
                let (low, high) = bytes.split_at(8);
                let doubles: Vec<String> = [low, high]
                    .iter()
                    .filter_map(|half| float::show(half))
                    .collect();
                lines.push(row(
                    &format!("xmm{number}"),
                    &format!("{value:#034x}"),
                    &format!("  {{{}}}", doubles.join(", ")),
                ));
            }
        }
        lines
    }
}

//! Machine code as text, with symbols, in gdb's manner (AT&T syntax).

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, Mnemonic, Register,
};

use protocol::id::Addr;

use crate::inspector::Inspector;

/// An instruction.
#[derive(Debug, Clone)]
pub struct Line {
    /// Where it is.
    pub address: Addr,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its text; a comment says what an address relative to `rip` is.
    pub text: String,
    /// `main+4`, if it belongs to a function.
    pub place: Option<String>,
}

fn is_branch(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::XbeginXabortXend
    )
}

/// The prefixes by which compilers make instructions that do nothing longer, as
/// gdb shows them: all but the one that says the size of the operand.
fn padding_prefixes(instruction: &Instruction, bytes: &[u8]) -> String {
    if instruction.mnemonic() != Mnemonic::Nop || instruction.segment_prefix() != Register::CS {
        return String::new();
    }
    let prefixes = bytes
        .iter()
        .take_while(|byte| matches!(**byte, 0x66 | 0x2e));
    let sizes = prefixes.filter(|byte| **byte == 0x66).count();
    format!("{}cs ", "data16 ".repeat(sizes.saturating_sub(1)))
}

/// No instruction is longer.
pub(crate) const MAX_INSTRUCTION: usize = 15;

/// The instruction at an address, if there is one.
pub(crate) fn decode(inspector: &Inspector<'_>, address: Addr) -> Option<(Instruction, Vec<u8>)> {
    let mut bytes = [0u8; MAX_INSTRUCTION];
    let read = inspector.process.read(address, &mut bytes);
    let bytes = bytes.get(..read)?;
    let mut decoder = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE);
    let instruction = decoder.can_decode().then(|| decoder.decode())?;
    let len = instruction.len();
    if instruction.is_invalid() {
        return None;
    }
    Some((instruction, bytes.get(..len)?.to_vec()))
}

impl Inspector<'_> {
    /// `count` instructions from `address` on; fewer where memory ends.
    pub fn disassemble(&self, address: Addr, count: usize) -> Vec<Line> {
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_space_after_operand_separator(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_rip_relative_addresses(true);
        options.set_gas_show_mnemonic_size_suffix(false);
        options.set_show_zero_displacements(true);
        options.set_branch_leading_zeros(false);
        options.set_displacement_leading_zeros(false);
        let mut lines = Vec::new();
        let mut at = address;
        for _ in 0..count {
            let (text, bytes) = match decode(self, at) {
                Some((instruction, bytes)) => {
                    (self.text(&mut formatter, &instruction, &bytes), bytes)
                }
                None => {
                    let mut byte = [0u8; 1];
                    if self.process.read(at, &mut byte) == 0 {
                        break;
                    }
                    ("(bad)".to_string(), byte.to_vec())
                }
            };
            let length = bytes.len() as u64;
            lines.push(Line {
                address: at,
                bytes,
                text,
                place: self.symbolize(at),
            });
            at = at.plus(length.max(1));
        }
        lines
    }

    /// The instructions of a range.
    pub fn disassemble_range(&self, start: Addr, end: Addr) -> Vec<Line> {
        // One instruction a byte is the most there can be.
        let most = usize::try_from(end.since(start)).unwrap_or(0).min(1 << 20);
        let mut lines = self.disassemble(start, most.min(4096));
        while let Some(last) = lines.last()
            && last.address < end
            && lines.len() < most
        {
            let next = last.address.plus(last.bytes.len() as u64);
            if next >= end {
                break;
            }
            let more = self.disassemble(next, 4096);
            if more.is_empty() {
                break;
            }
            lines.extend(more);
        }
        lines.retain(|line| line.address < end);
        lines
    }

    fn text(
        &self,
        formatter: &mut GasFormatter,
        instruction: &Instruction,
        bytes: &[u8],
    ) -> String {
        let mut operands = String::new();
        let mut mnemonic = String::new();
        formatter.format_mnemonic(instruction, &mut mnemonic);
        // In 64-bit code these have one size.
        let one_size = matches!(
            instruction.flow_control(),
            FlowControl::IndirectBranch | FlowControl::IndirectCall
        ) || matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop);
        if one_size && mnemonic.ends_with('q') {
            mnemonic.pop();
        }
        // Where they read and write is not written in them.
        let options = formatter.options_mut();
        options.set_always_show_segment_register(instruction.is_string_instruction());
        options.set_always_show_scale(instruction.memory_index() != Register::None);
        if is_branch(instruction) && instruction.near_branch_target() != 0 {
            let target = Addr(instruction.near_branch_target());
            operands = match self.symbolize(target) {
                Some(name) => format!("{target:#x} <{name}>"),
                None => format!("{target:#x}"),
            };
        } else {
            formatter.format_all_operands(instruction, &mut operands);
        }
        // Shifts by one that have no byte for it.
        let by_one = format!("{:?}", instruction.code()).ends_with("_1");
        if by_one && let Some(rest) = operands.strip_prefix("$0x1,") {
            operands = rest.to_string();
        }
        let padding = padding_prefixes(instruction, bytes);
        let mut text = if operands.is_empty() {
            mnemonic
        } else if padding.is_empty() {
            format!("{mnemonic:<6} {operands}")
        } else {
            format!("{padding}{mnemonic} {operands}")
        };
        if instruction.is_ip_rel_memory_operand() {
            let target = Addr(instruction.ip_rel_memory_address());
            text.push_str(&format!("        # {target:#x}"));
            if let Some(name) = self.symbolize(target) {
                text.push_str(&format!(" <{name}>"));
            }
        }
        text
    }
}

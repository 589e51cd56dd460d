//! Single instructions of all kinds, made at random, do the same natively and
//! translated: to registers, flags, vector registers and memory.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

mod machine;
#[path = "../../../tests/seed.rs"]
mod seed;

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
};
use machine::{Machine, Memory, Numbers, RSP, State, end};
use translate::{Exit, Options};

const PLAIN: Options<'static> = Options {
    goal: None,
    count: false,
    watch: false,
};
/// Where in the memory the data is that operands lead to.
const DATA: usize = 8192;
const PAGE: usize = 4096;

/// Random bytes that are likely to be an instruction, with an operand in the
/// data or in registers.
fn make(numbers: &mut Numbers) -> Vec<u8> {
    let mut code = Vec::new();
    if numbers.below(4) == 0 {
        code.push([0x66, 0xf2, 0xf3, 0x64, 0xf0, 0x2e][numbers.below(6) as usize]);
    }
    let modrm = |numbers: &mut Numbers| {
        let byte = numbers.next() as u8;
        if numbers.below(3) != 0 {
            byte & 0x38 | 5
        } else {
            byte | 0xc0
        }
    };
    let byte = |numbers: &mut Numbers| numbers.next() as u8;
    match numbers.below(6) {
        0 => {
            // VEX with two bytes
            code.extend([0xc5, byte(numbers), byte(numbers), modrm(numbers)]);
        }
        1 => {
            let map = 1 + numbers.below(3) as u8;
            let first = byte(numbers) & 0xe0 | map;
            code.extend([0xc4, first, byte(numbers), byte(numbers), modrm(numbers)]);
        }
        kind => {
            if numbers.below(2) == 0 {
                code.push(0x40 | byte(numbers) & 15);
            }
            if kind >= 4 {
                code.push(0x0f);
                match numbers.below(6) {
                    0 => code.push(0x38),
                    1 => code.push(0x3a),
                    _ => {}
                }
            }
            code.extend([byte(numbers), modrm(numbers)]);
        }
    }
    let operand = code.last().is_some_and(|last| last & 0xc7 == 5);
    let disp = code.len();
    code.extend((0..8).map(|_| numbers.next() as u8));
    if operand {
        // Aligned, because some demand it.
        let place = (DATA + 1024 + 64 * numbers.below(16) as usize) as u32;
        code[disp..disp + 4].copy_from_slice(&place.to_le_bytes());
    }
    code.resize(16, 0x90);
    code
}

/// Whether the outcome can be compared: it is the same each time, stays within
/// the data, and leaves the machine as it was.
fn is_fair(inst: &Instruction) -> bool {
    if inst.is_invalid()
        || inst.flow_control() != FlowControl::Next
        || inst.is_privileged()
        || inst.is_save_restore_instruction()
        || inst.is_stack_instruction()
        || inst.is_vsib()
    {
        return false;
    }
    if matches!(
        inst.mnemonic(),
        Mnemonic::Rdtsc
            | Mnemonic::Rdtscp
            | Mnemonic::Rdrand
            | Mnemonic::Rdseed
            | Mnemonic::Rdpid
            | Mnemonic::Rdpru
            | Mnemonic::Cpuid
            // These reach beyond their operand.
            | Mnemonic::Bt
            | Mnemonic::Btc
            | Mnemonic::Btr
            | Mnemonic::Bts
            | Mnemonic::Popfq
            | Mnemonic::Std
            | Mnemonic::Ldmxcsr
            | Mnemonic::Vldmxcsr
            | Mnemonic::Fldenv
            | Mnemonic::Fnstenv
            | Mnemonic::Fstenv
            | Mnemonic::Frstor
            | Mnemonic::Fnsave
            | Mnemonic::Clzero
            | Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Maskmovq
            | Mnemonic::Monitorx
            | Mnemonic::Mwaitx
            | Mnemonic::Wrpkru
            | Mnemonic::Wrfsbase
            | Mnemonic::Wrgsbase
    ) {
        return false;
    }
    // Those of processors before this century write what they like.
    if inst.cpuid_features().contains(&CpuidFeature::D3NOW) {
        return false;
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(inst);
    let registers_are_fair = info.used_registers().iter().all(|used| {
        let writes = !matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        );
        let full = used.register().full_register();
        !(writes && (full == Register::RSP || full.is_segment_register()))
    });
    let memory_is_fair = (0..inst.op_count()).all(|i| match inst.op_kind(i) {
        OpKind::Memory => inst.is_ip_rel_memory_operand(),
        kind => !matches!(
            kind,
            OpKind::MemorySegSI
                | OpKind::MemorySegDI
                | OpKind::MemorySegESI
                | OpKind::MemorySegEDI
                | OpKind::MemorySegRSI
                | OpKind::MemorySegRDI
                | OpKind::MemoryESDI
                | OpKind::MemoryESEDI
                | OpKind::MemoryESRDI
        ),
    });
    let fs = inst.segment_prefix() == Register::FS;
    registers_are_fair && memory_is_fair && !fs && info.used_memory().len() <= 2
}

fn random_state(numbers: &mut Numbers) -> State {
    let mut state = State::new();
    for register in &mut state.gpr {
        *register = match numbers.below(4) {
            0 => numbers.below(256),
            _ => numbers.next(),
        };
    }
    state.flags = 0x202 | numbers.next() & 0x8d5;
    for number in 0..16 {
        let mut half = || {
            let float = |n: u64| f64::from((n % 1000) as u32).to_bits();
            match numbers.below(2) {
                0 => [numbers.next(), numbers.next()],
                _ => [float(numbers.next()), float(numbers.next())],
            }
        };
        let (low, high) = (half(), half());
        state.set_vector(number, low, high);
    }
    state
}

#[test]
fn single_instructions() {
    let mut machine = Machine::new();
    let mut memory = Memory::new(6 * PAGE);
    let address = memory.address();
    let mut numbers = Numbers(seed::seed("instructions", 0x1234_5678_9abc_def1));
    let (mut compared, mut relative, mut faulted) = (0, 0, 0);
    for _ in 0..150_000 {
        let code = make(&mut numbers);
        let mut decoder = Decoder::with_ip(64, &code, address, DecoderOptions::NONE);
        let theirs = decoder.decode();
        if !is_fair(&theirs) {
            continue;
        }
        // The instruction, then a jump to the end.
        let len = theirs.len();
        let bytes = memory.bytes();
        bytes[..len].copy_from_slice(&code[..len]);
        bytes[len..len + 6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
        bytes[len + 6..len + 14].copy_from_slice(&end().to_le_bytes());
        let before: Vec<u8> = (0..2048).map(|_| numbers.next() as u8).collect();

        let mut begin = random_state(&mut numbers);
        begin.gpr[RSP] = machine.fresh_stack();
        bytes[DATA + 512..DATA + 2560].copy_from_slice(&before);
        let mut native = begin;
        machine.native(&mut native, address);
        let native_data = memory.bytes()[DATA..DATA + PAGE].to_vec();

        memory.bytes()[DATA + 512..DATA + 2560].copy_from_slice(&before);
        let mut translated = begin;
        let exit = machine.translated(&mut translated, address, &PLAIN);
        if matches!(exit, Exit::Open { target, .. } if target == address) {
            // Run where it is.
            continue;
        }
        let text = || format!("{:02x?} {theirs:?}", &code[..len]);
        assert_eq!(native.fault, translated.fault, "{}", text());
        if native.fault != 0 {
            faulted += 1;
            continue;
        }
        assert_eq!(native, translated, "{}", text());
        assert!(
            native_data == memory.bytes()[DATA..DATA + PAGE],
            "{}",
            text()
        );
        compared += 1;
        relative += usize::from(theirs.is_ip_rel_memory_operand());
    }
    assert!(
        compared > 20_000 && relative > 10_000,
        "compared {compared}, of them {relative} relative to rip, {faulted} faulted"
    );
}

//! Patched code, run for real: the processor is the judge.
//!
//! Each piece of code runs twice, as it is and patched, and must leave the same registers,
//! flags and memory. The monitor is a few instructions that make the call and note whence.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

use std::arch::global_asm;
use std::io::{Read, pipe};
use std::os::fd::AsRawFd;
use std::sync::Mutex;

use patch::{Code, Plan, STUB_MAX, Stub, jump_bytes, plan, write_stub};

global_asm!(
    ".pushsection .bss",
    ".balign 8",
    "patch_test_resume: .quad 0",
    "patch_test_site: .quad 0",
    "patch_test_calls: .quad 0",
    ".popsection",
    ".globl patch_test_monitor, patch_test_run, patch_test_site, patch_test_calls",
    // The monitor: arrives with rcx = resume and the site at rcx - 8.
    "patch_test_monitor:",
    "mov [rip + patch_test_resume], rcx",
    "mov r11, [rcx - 8]",
    "mov [rip + patch_test_site], r11",
    "mov r11, [rip + patch_test_calls]",
    "lea r11, [r11 + 1]",
    "mov [rip + patch_test_calls], r11",
    "syscall",
    "jmp [rip + patch_test_resume]",
    // patch_test_run(in, out, code): calls code with the registers of in, which then go to out.
    "patch_test_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rsi",
    "push rdx",
    "push [rdi + 15*8]",
    "popfq",
    "mov rax, [rdi + 0*8]",
    "mov rbx, [rdi + 1*8]",
    "mov rcx, [rdi + 2*8]",
    "mov rdx, [rdi + 3*8]",
    "mov rsi, [rdi + 4*8]",
    "mov rbp, [rdi + 6*8]",
    "mov r8, [rdi + 7*8]",
    "mov r9, [rdi + 8*8]",
    "mov r10, [rdi + 9*8]",
    "mov r11, [rdi + 10*8]",
    "mov r12, [rdi + 11*8]",
    "mov r13, [rdi + 12*8]",
    "mov r14, [rdi + 13*8]",
    "mov r15, [rdi + 14*8]",
    "mov rdi, [rdi + 5*8]",
    "call [rsp]",
    "pushfq",
    "push rax",
    "mov rax, [rsp + 24]",
    "mov [rax + 1*8], rbx",
    "mov [rax + 2*8], rcx",
    "mov [rax + 3*8], rdx",
    "mov [rax + 4*8], rsi",
    "mov [rax + 5*8], rdi",
    "mov [rax + 6*8], rbp",
    "mov [rax + 7*8], r8",
    "mov [rax + 8*8], r9",
    "mov [rax + 9*8], r10",
    "mov [rax + 10*8], r11",
    "mov [rax + 11*8], r12",
    "mov [rax + 12*8], r13",
    "mov [rax + 13*8], r14",
    "mov [rax + 14*8], r15",
    "pop rbx",
    "mov [rax + 0*8], rbx",
    "pop rbx",
    "mov [rax + 15*8], rbx",
    "add rsp, 16",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);

unsafe extern "C" {
    fn patch_test_monitor();
    fn patch_test_run(before: *const Registers, after: *mut Registers, code: *const u8);
    static mut patch_test_site: u64;
    static mut patch_test_calls: u64;
}

/// rax, rbx, rcx, rdx, rsi, rdi, rbp, r8 to r15, flags.
type Registers = [u64; 16];
const RAX: usize = 0;
const RCX: usize = 2;
const RDX: usize = 3;
const RSI: usize = 4;
const RDI: usize = 5;
const R8: usize = 7;
const R10: usize = 9;
const R11: usize = 10;
const FLAGS: usize = 15;

/// The monitor notes calls in one place, so only one test at a time runs code.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const PAGE: usize = 4096;
/// Where in its page the code begins; there are `nop`s before it.
const START: usize = 256;

/// Memory that can be written and executed, for the life of the test.
struct Memory {
    at: *mut u8,
    len: usize,
}

impl Memory {
    /// Maps `len` bytes, at `hint` exactly if it is not zero.
    fn map(hint: u64, len: usize) -> Option<Self> {
        let fixed = if hint == 0 {
            0
        } else {
            libc::MAP_FIXED_NOREPLACE
        };
        // SAFETY: a new private mapping, which replaces none.
        let at = unsafe {
            libc::mmap(
                hint as *mut libc::c_void,
                len,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed,
                -1,
                0,
            )
        };
        (at != libc::MAP_FAILED).then_some(Self { at: at.cast(), len })
    }

    fn address(&self) -> u64 {
        self.at as u64
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours alone and lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and nothing refers to it any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// A page of code, a page of data behind it, and a page for stubs somewhere.
struct Machine {
    code: Memory,
    stubs: Memory,
    registers: Registers,
}

/// What a run left behind.
#[derive(Debug, PartialEq)]
struct Outcome {
    registers: Registers,
    data: Vec<u8>,
}

impl Machine {
    /// `distance` is from the code to the stubs; if that place is taken, the next free one.
    fn new(code: &[u8], distance: i64) -> Self {
        let mut page = Memory::map(0, 2 * PAGE).expect("memory for code");
        page.bytes()[..PAGE].fill(0x90);
        page.bytes()[START..START + code.len()].copy_from_slice(code);
        let stubs = (0..100_000)
            .map(|step| {
                page.address()
                    .wrapping_add_signed(distance + step * PAGE as i64)
            })
            .find_map(|hint| Memory::map(hint, PAGE))
            .expect("memory for stubs");
        let mut registers = [0; 16];
        for (i, register) in registers.iter_mut().enumerate() {
            *register = 0x0101_0101_0101_0101 * (i as u64 + 1);
        }
        // carry, parity, adjust, zero, sign and overflow, besides what is always set
        registers[FLAGS] = 0x8d5 | 0x202;
        Self {
            code: page,
            stubs,
            registers,
        }
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.code.bytes()[PAGE..]
    }

    /// Runs the code from `offset` on; tells the outcome and how often the monitor was called.
    fn run(&mut self, offset: usize) -> (Outcome, u64) {
        let mut registers = [0; 16];
        let code = self.code.bytes()[offset..].as_ptr();
        // SAFETY: the code is made by the tests to return and to keep the stack, and the lock
        // that the callers hold makes them the only user of the counters.
        let calls = unsafe {
            patch_test_calls = 0;
            patch_test_run(&self.registers, &mut registers, code);
            patch_test_calls
        };
        let data = self.data().to_vec();
        (Outcome { registers, data }, calls)
    }

    /// Patches the site at `offset`.
    fn patch(&mut self, offset: usize) -> (Plan, Stub) {
        let base = self.code.address();
        let code = Code {
            base,
            bytes: &self.code.bytes()[..PAGE],
        };
        let plan = plan(code, base + offset as u64).expect("a plan");
        let stub_addr = self.stubs.address();
        let entry = patch_test_monitor as *const () as u64;
        let stub = write_stub(&plan, stub_addr, entry, &mut self.stubs.bytes()[..STUB_MAX])
            .expect("a stub");
        let jump = jump_bytes(&plan, stub_addr).expect("a jump");
        let from = (plan.patch_start - base) as usize;
        self.code.bytes()[from..from + plan.patch_len].copy_from_slice(jump.as_slice());
        (plan, stub)
    }
}

/// How far from the code the stubs are put, one after another.
const DISTANCES: [i64; 3] = [0x10_0000, -0x4000_0000, 0x6000_0000];

/// Runs `before; syscall; after` as it is and patched, with stubs near and far; checks that
/// nothing differs and that the plan moves so many bytes. Tells what the runs left.
fn same_when_patched(
    before: &[&[u8]],
    after: &[&[u8]],
    moved: (usize, usize),
    prepare: impl Fn(&mut Machine),
) -> Outcome {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|lock| lock.into_inner());
    let (before, after) = (before.concat(), after.concat());
    let site = START + before.len();
    let code = [&before[..], &[0x0f, 0x05], &after].concat();
    let mut outcome = None;
    for distance in DISTANCES {
        let mut machine = Machine::new(&code, distance);
        prepare(&mut machine);
        let (mut as_it_is, calls) = machine.run(START);
        assert_eq!(calls, 0);

        let (plan, _) = machine.patch(site);
        assert_eq!((plan.before, plan.after), moved);
        prepare(&mut machine);
        let (mut patched, calls) = machine.run(START);
        assert_eq!(calls, 1, "the monitor was not called once");
        // SAFETY: the lock is held.
        assert_eq!(unsafe { patch_test_site }, plan.site);

        // These two a syscall leaves changed.
        for registers in [&mut as_it_is.registers, &mut patched.registers] {
            registers[RCX] = 0;
            registers[R11] = 0;
        }
        assert_eq!(as_it_is, patched);
        outcome = Some(patched);
    }
    outcome.expect("at least one distance")
}

const RET: &[u8] = &[0xc3];
/// mov eax, SYS_getpid
const GETPID: &[u8] = &[0xb8, 39, 0, 0, 0];
/// mov eax, r8d
const MOV_EAX_R8D: &[u8] = &[0x44, 0x89, 0xc0];
/// cmp rax, 0xfffffffffffff000
const CMP_RAX: &[u8] = &[0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff];

fn pid() -> u64 {
    u64::from(std::process::id())
}

/// A displacement from rip that leads to the data page, at `into`, from an instruction that
/// ends `end` bytes behind the start of the code.
fn to_data(end: usize, into: usize) -> [u8; 4] {
    ((PAGE + into - START - end) as u32).to_le_bytes()
}

#[test]
fn with_one_long_instruction_before() {
    let outcome = same_when_patched(&[GETPID], &[RET], (5, 0), |_| {});
    assert_eq!(outcome.registers[RAX], pid());
    assert_eq!(outcome.registers[R10], 0x0a0a_0a0a_0a0a_0a0a);
    assert_eq!(outcome.registers[FLAGS] & 0x8d5, 0x8d5);
    let mov_rax: &[u8] = &[0x48, 0xc7, 0xc0, 39, 0, 0, 0];
    let outcome = same_when_patched(&[mov_rax], &[RET], (7, 0), |_| {});
    assert_eq!(outcome.registers[RAX], pid());
}

#[test]
fn with_an_instruction_after() {
    let getpid = |machine: &mut Machine| machine.registers[R8] = 39;
    let outcome = same_when_patched(&[MOV_EAX_R8D], &[CMP_RAX, RET], (0, 6), getpid);
    assert_eq!(outcome.registers[RAX], pid());
    // The comparison ran: carry, not zero.
    assert_eq!(outcome.registers[FLAGS] & 0x41, 0x01);
}

#[test]
fn with_several_short_instructions_after() {
    let push_rbx_rbp: &[u8] = &[0x53, 0x55];
    let pop_rbp_rbx: &[u8] = &[0x5d, 0x5b];
    let mov_edi_eax: &[u8] = &[0x89, 0xc7];
    let before = [push_rbx_rbp, MOV_EAX_R8D];
    let after = [pop_rbp_rbx, mov_edi_eax, RET];
    let getpid = |machine: &mut Machine| machine.registers[R8] = 39;
    let outcome = same_when_patched(&before, &after, (0, 4), getpid);
    assert_eq!(outcome.registers[RDI], pid());
}

#[test]
fn with_short_instructions_before() {
    let getpid = |machine: &mut Machine| machine.registers[R8] = 39;
    let outcome = same_when_patched(&[MOV_EAX_R8D], &[RET], (3, 0), getpid);
    assert_eq!(outcome.registers[RAX], pid());
    let mov_edi_esi: &[u8] = &[0x89, 0xf7];
    let outcome = same_when_patched(&[MOV_EAX_R8D, mov_edi_esi], &[RET], (5, 0), getpid);
    assert_eq!(outcome.registers[RAX], pid());
}

#[test]
fn with_an_instruction_after_that_addresses_from_rip() {
    let disp = to_data(5 + 7, 64);
    let load_rdx = [&[0x48, 0x8b, 0x15][..], &disp].concat();
    let prepare = |machine: &mut Machine| {
        machine.registers[R8] = 39;
        machine.data()[64..72].copy_from_slice(&0xfeed_beef_u64.to_le_bytes());
    };
    let outcome = same_when_patched(&[MOV_EAX_R8D], &[&load_rdx, RET], (0, 7), prepare);
    assert_eq!(outcome.registers[RAX], pid());
    assert_eq!(outcome.registers[RDX], 0xfeed_beef);
}

#[test]
fn with_an_instruction_before_that_addresses_from_rip() {
    let load_eax = [&[0x8b, 0x05][..], &to_data(6, 64)].concat();
    let prepare = |machine: &mut Machine| machine.data()[64] = 39;
    let outcome = same_when_patched(&[&load_eax], &[RET], (6, 0), prepare);
    assert_eq!(outcome.registers[RAX], pid());

    // mov dword [rip + data], 7: with an immediate behind the displacement
    let store = [&[0xc7, 0x05][..], &to_data(3 + 10, 32), &[7, 0, 0, 0]].concat();
    let prepare = |machine: &mut Machine| {
        machine.registers[R8] = 39;
        machine.data().fill(0);
    };
    let outcome = same_when_patched(&[MOV_EAX_R8D, &store], &[RET], (10, 0), prepare);
    assert_eq!(outcome.registers[RAX], pid());
    assert_eq!(outcome.data[32], 7);
}

#[test]
fn with_data_below_the_stack_pointer() {
    let store: &[u8] = &[0x48, 0x89, 0x5c, 0x24, 0xf8]; // mov [rsp - 8], rbx
    let load: &[u8] = &[0x4c, 0x8b, 0x54, 0x24, 0xf8]; // mov r10, [rsp - 8]
    let outcome = same_when_patched(&[store, GETPID], &[load, RET], (5, 0), |_| {});
    assert_eq!(outcome.registers[R10], 0x0202_0202_0202_0202);
    let getpid = |machine: &mut Machine| machine.registers[R8] = 39;
    let outcome = same_when_patched(&[store, MOV_EAX_R8D], &[load, RET], (0, 5), getpid);
    assert_eq!(outcome.registers[R10], 0x0202_0202_0202_0202);
}

#[test]
fn with_arguments_and_an_effect() {
    let (mut reader, writer) = pipe().expect("a pipe");
    let prepare = |machine: &mut Machine| {
        machine.data()[..5].copy_from_slice(b"hello");
        machine.registers[RDI] = writer.as_raw_fd() as u64;
        machine.registers[RSI] = machine.code.address() + PAGE as u64;
        machine.registers[RDX] = 5;
    };
    let mov_eax_write: &[u8] = &[0xb8, 1, 0, 0, 0];
    // Runs at several distances leave other addresses in rsi, each compared with its like.
    let outcome = same_when_patched(&[mov_eax_write], &[CMP_RAX, RET], (5, 0), prepare);
    assert_eq!(outcome.registers[RAX], 5);
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("what was written");
    assert_eq!(text, "hello".repeat(2 * DISTANCES.len()));
}

#[test]
fn a_jump_to_a_syscall_that_stays_still_makes_the_call() {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|lock| lock.into_inner());
    let code = [GETPID, &[0x0f, 0x05], CMP_RAX, RET].concat();
    let mut machine = Machine::new(&code, DISTANCES[0]);
    let site = START + GETPID.len();
    let (plan, _) = machine.patch(site);
    assert!(plan.keeps_syscall());
    machine.registers[RAX] = 39;
    let (outcome, calls) = machine.run(site);
    assert_eq!((outcome.registers[RAX], calls), (pid(), 0));
}

#[test]
fn a_thread_inside_the_patched_bytes_goes_on_in_the_stub() {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|lock| lock.into_inner());
    let mov_edi_eax: &[u8] = &[0x89, 0xc7];
    let code = [MOV_EAX_R8D, &[0x0f, 0x05], mov_edi_eax, CMP_RAX, RET].concat();
    let mut machine = Machine::new(&code, DISTANCES[0]);
    let (plan, stub) = machine.patch(START + 3);
    assert_eq!(plan.after, 8);
    // As if the kernel were about to return to behind the syscall.
    let resume = stub.from_program(&plan, plan.site + 2).expect("a place");
    let jump = [&[0xff, 0x25, 0, 0, 0, 0][..], &resume.to_le_bytes()].concat();
    machine.code.bytes()[1024..1024 + jump.len()].copy_from_slice(&jump);
    machine.registers[RAX] = 77;
    let (outcome, calls) = machine.run(1024);
    assert_eq!((outcome.registers[RDI], calls), (77, 0));
}

//! Runs code natively and from a cache, with all registers given and taken.
#![allow(dead_code, reason = "each test uses its part")]

use std::arch::global_asm;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use translate::{Cache, Exit, Options, Source};

/// What a processor holds: the general registers by their numbers, flags,
/// where to begin, the vector registers.
#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub gpr: [u64; 16],
    pub flags: u64,
    pub go: u64,
    /// The signal that ended it, 0 if none did.
    pub fault: u64,
    pub fault_rip: u64,
    padding: [u64; 4],
    /// As `xsave` stores it: x87, SSE, AVX and AVX-512.
    vectors: [u64; VECTORS],
}

const VECTORS: usize = 336;
/// Where the header of what `xsave` stores is, and where the upper halves of
/// AVX begin.
const HEADER: usize = 64;
const UPPER: usize = 72;
/// Parts of the processor's state, by their bits.
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;
const AVX512: u64 = 7 << 5;

/// Where the parts of AVX-512 are, which differs between processors: masks, the
/// upper halves of the first sixteen registers, the others.
fn avx512_parts() -> [(u64, std::ops::Range<usize>); 3] {
    const STATE: u32 = 0xd;
    [5, 6, 7].map(|part| {
        let told = std::arch::x86_64::__cpuid_count(STATE, part);
        let (len, from) = (told.eax as usize / 8, told.ebx as usize / 8);
        (1 << part, from..from + len)
    })
}

/// The parts that are kept: those that this processor has.
fn parts() -> u64 {
    let has = std::arch::is_x86_feature_detected!("avx512f");
    1 | SSE | AVX | if has { AVX512 } else { 0 }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:x?} flags {:x} fault {} at {:x} vectors {:x?} {:x?}",
            self.gpr,
            self.flags,
            self.fault,
            self.fault_rip,
            &self.vectors[20..52],
            &self.vectors[UPPER..UPPER + 32]
        )
    }
}

pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RDX: usize = 2;
pub const RBX: usize = 3;
pub const RSP: usize = 4;
pub const RSI: usize = 6;
pub const RDI: usize = 7;

impl State {
    pub fn new() -> State {
        let mut vectors = [0; VECTORS];
        vectors[0] = 0x37f;
        vectors[3] = 0x1f80;
        vectors[HEADER] = parts();
        State {
            gpr: [0; 16],
            flags: 0x202,
            go: 0,
            fault: 0,
            fault_rip: 0,
            padding: [0; 4],
            vectors,
        }
    }

    /// Sets a vector register, its upper half too.
    pub fn set_vector(&mut self, number: usize, low: [u64; 2], high: [u64; 2]) {
        self.vectors[20 + 2 * number..22 + 2 * number].copy_from_slice(&low);
        self.vectors[UPPER + 2 * number..UPPER + 2 + 2 * number].copy_from_slice(&high);
    }

    /// What the processor keeps about the last floating-point instruction
    /// says where it was, so it may differ.
    fn settle(&mut self) {
        let in_use = self.vectors[HEADER];
        self.vectors[1] = 0;
        self.vectors[2] = 0;
        self.vectors[0] &= 0xffff_ffff;
        // Which bits of MXCSR there are.
        self.vectors[3] &= 0xffff_ffff;
        if in_use & AVX == 0 {
            self.vectors[UPPER..UPPER + 32].fill(0);
        }
        if in_use & SSE == 0 {
            self.vectors[20..52].fill(0);
        }
        for (part, place) in avx512_parts() {
            if in_use & part == 0 {
                self.vectors[place].fill(0);
            }
        }
        self.vectors[HEADER] = parts();
    }
}

global_asm!(
    ".pushsection .bss",
    ".balign 8",
    "tt_state: .quad 0",
    "tt_host_rsp: .quad 0",
    "tt_rsp: .quad 0",
    "tt_rax: .quad 0",
    "tt_go: .quad 0",
    "tt_parts: .quad 0",
    ".popsection",
    ".globl tt_run, tt_common",
    "tt_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + tt_state], rdi",
    "mov [rip + tt_parts], esi",
    "mov [rip + tt_host_rsp], rsp",
    "mov rax, [rdi + 136]",
    "mov [rip + tt_go], rax",
    "mov eax, esi",
    "xor edx, edx",
    "xrstor64 [rdi + 192]",
    "push qword ptr [rdi + 128]",
    "popfq",
    "mov rax, [rdi + 0*8]",
    "mov rcx, [rdi + 1*8]",
    "mov rdx, [rdi + 2*8]",
    "mov rbx, [rdi + 3*8]",
    "mov rsp, [rdi + 4*8]",
    "mov rbp, [rdi + 5*8]",
    "mov rsi, [rdi + 6*8]",
    "mov r8, [rdi + 8*8]",
    "mov r9, [rdi + 9*8]",
    "mov r10, [rdi + 10*8]",
    "mov r11, [rdi + 11*8]",
    "mov r12, [rdi + 12*8]",
    "mov r13, [rdi + 13*8]",
    "mov r14, [rdi + 14*8]",
    "mov r15, [rdi + 15*8]",
    "mov rdi, [rdi + 7*8]",
    "jmp [rip + tt_go]",
    "tt_common:",
    "mov [rip + tt_rax], rax",
    "mov [rip + tt_rsp], rsp",
    "mov rax, [rip + tt_state]",
    "mov [rax + 1*8], rcx",
    "mov [rax + 2*8], rdx",
    "mov [rax + 3*8], rbx",
    "mov [rax + 5*8], rbp",
    "mov [rax + 6*8], rsi",
    "mov [rax + 7*8], rdi",
    "mov [rax + 8*8], r8",
    "mov [rax + 9*8], r9",
    "mov [rax + 10*8], r10",
    "mov [rax + 11*8], r11",
    "mov [rax + 12*8], r12",
    "mov [rax + 13*8], r13",
    "mov [rax + 14*8], r14",
    "mov [rax + 15*8], r15",
    "mov rcx, [rip + tt_rax]",
    "mov [rax + 0*8], rcx",
    "mov rcx, [rip + tt_rsp]",
    "mov [rax + 4*8], rcx",
    "mov rsp, [rip + tt_host_rsp]",
    "pushfq",
    "pop qword ptr [rax + 128]",
    "mov rcx, rax",
    "mov eax, [rip + tt_parts]",
    "xor edx, edx",
    "xsave64 [rcx + 192]",
    "cld",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);

unsafe extern "C" {
    fn tt_run(state: *mut State, parts: u32);
    fn tt_common();
}

/// Where code that has ended goes, natively and translated.
pub fn end() -> u64 {
    tt_common as *const () as u64
}

/// Memory of a test's own that can be read, written and executed.
pub struct Memory {
    pub at: *mut u8,
    pub len: usize,
}

impl Memory {
    pub fn new(len: usize) -> Memory {
        // SAFETY: a fresh mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Memory { at: at.cast(), len }
    }

    pub fn address(&self) -> u64 {
        self.at as u64
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: this mapping, which nothing else refers to while it is
        // borrowed: no code runs in it then.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// Reads this process's own code; what cannot be read is not there.
pub struct Own;

impl Source for Own {
    fn fetch(&mut self, address: u64, into: &mut [u8; 15]) -> usize {
        if address == end() {
            return 0;
        }
        let to = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: 15,
        };
        let pages = [
            libc::iovec {
                iov_base: address as *mut _,
                iov_len: 15.min(4096 - (address & 4095) as usize),
            },
            libc::iovec {
                iov_base: (address | 4095).wrapping_add(1) as *mut _,
                iov_len: 15usize.saturating_sub(4096 - (address & 4095) as usize),
            },
        ];
        let count = if pages[1].iov_len == 0 { 1 } else { 2 };
        // SAFETY: writes at most 15 bytes to `into`; bad addresses are errors.
        let got = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const to, 1, pages.as_ptr(), count, 0)
        };
        got.max(0) as usize
    }
}

/// This process's own code, of which any may be written to at any time.
pub struct Made;

impl Source for Made {
    fn fetch(&mut self, address: u64, into: &mut [u8; 15]) -> usize {
        Own.fetch(address, into)
    }

    fn changing(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 15];
        Own.fetch(address, &mut bytes);
        bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

/// Only one piece of code runs at a time: its state is kept in one place.
pub struct Machine {
    /// Whether code is taken for one that may be written to.
    pub made: bool,
    _alone: MutexGuard<'static, ()>,
    cache: Memory,
    stack: Memory,
}

const STACK: usize = 1 << 20;
pub const CACHE: usize = 24 << 20;

impl Machine {
    pub fn new() -> Machine {
        Machine::with_cache(CACHE)
    }

    pub fn with_cache(len: usize) -> Machine {
        static ALONE: Mutex<()> = Mutex::new(());
        catch_faults();
        Machine {
            made: false,
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
            cache: Memory::new(len),
            stack: Memory::new(STACK),
        }
    }

    /// The stack's bytes near its top, from where code begins downwards.
    pub fn stack(&mut self) -> &mut [u8] {
        &mut self.stack.bytes()[STACK - 8192..]
    }

    /// A stack pointer as at the beginning of a function that returns to the
    /// end.
    pub fn fresh_stack(&mut self) -> u64 {
        self.stack().fill(0xa5);
        let at = STACK - 1024 - 8;
        self.stack.bytes()[at..at + 8].copy_from_slice(&end().to_le_bytes());
        self.stack.address() + at as u64
    }

    pub fn cache(&mut self) -> Cache<'_> {
        let base = self.cache.address();
        Cache::new(self.cache.bytes(), base).unwrap()
    }

    /// Runs what the state says, to the next exit.
    pub fn go(&mut self, state: &mut State) {
        state.fault = 0;
        state.fault_rip = 0;
        // SAFETY: the test's own code, which ends by `tt_common`; faults do,
        // too.
        unsafe { tt_run(state, parts() as u32) };
        state.settle();
    }

    pub fn native(&mut self, state: &mut State, code: u64) {
        state.go = code;
        self.go(state);
        state.go = 0;
    }

    /// Runs translated code from `code` on until it does something else than
    /// to go on.
    pub fn translated(&mut self, state: &mut State, code: u64, options: &Options<'_>) -> Exit {
        self.cache().clear(end());
        self.from(state, code, options)
    }

    /// Runs translated code from `code` on until it does something else than to go
    /// on, with what the cache holds already.
    pub fn from(&mut self, state: &mut State, code: u64, options: &Options<'_>) -> Exit {
        let first = Exit::Open {
            target: code,
            site: None,
        };
        self.after(state, first, options)
    }

    pub fn after(&mut self, state: &mut State, exit: Exit, options: &Options<'_>) -> Exit {
        let mut exit = exit;
        loop {
            let go = if self.made {
                self.cache().resume(exit, &mut Made, options)
            } else {
                self.cache().resume(exit, &mut Own, options)
            };
            let Some(go) = go else {
                state.go = 0;
                return exit;
            };
            state.go = go;
            self.go(state);
            exit = self.cache().exit();
            if state.fault != 0 || !matches!(exit, Exit::Open { .. } | Exit::Stale { .. }) {
                state.go = 0;
                return exit;
            }
        }
    }
}

extern "C" fn on_fault(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a context for the time of the handler; the
    // state is there while code runs. A fault of the test itself would find
    // none and ends it.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let gregs = &mut context.uc_mcontext.gregs;
        let state: *mut State;
        std::arch::asm!("mov {}, [rip + tt_state]", out(reg) state);
        if state.is_null() {
            libc::abort();
        }
        (*state).fault = signal as u64;
        (*state).fault_rip = gregs[libc::REG_RIP as usize] as u64;
        gregs[libc::REG_RIP as usize] = end() as i64;
    }
}

fn catch_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [
            libc::SIGSEGV,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGBUS,
            libc::SIGTRAP,
        ] {
            // SAFETY: a handler with the right signature, on the standard
            // library's signal stack of this thread or a fresh one.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_fault as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    });
}

/// A generator of numbers that is the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

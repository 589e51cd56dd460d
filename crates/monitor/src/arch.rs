//! Where the monitor touches the machine: entry from the program, exit to it,
//! raw system calls, register state, guarded copies. All of the monitor's
//! assembly is here.

use core::arch::{asm, naked_asm};

/// The program's registers at a call, as the entry code stores them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Regs {
    pub xmm: [[u64; 2]; 16],
    /// 1 if the call came by a trap, 0 if by a patched site.
    pub slow: u64,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    /// Where the program goes on.
    pub rip: u64,
    pub flags: u64,
    pub rsp: u64,
}

impl Regs {
    pub const ZERO: Regs = Regs {
        xmm: [[0; 2]; 16],
        slow: 0,
        r15: 0,
        r14: 0,
        r13: 0,
        r12: 0,
        rbp: 0,
        rbx: 0,
        r11: 0,
        r10: 0,
        r9: 0,
        r8: 0,
        rax: 0,
        rcx: 0,
        rdx: 0,
        rsi: 0,
        rdi: 0,
        orig_rax: 0,
        rip: 0,
        flags: 0x202,
        rsp: 0,
    };
    /// One by one: they were just pushed, each for itself, and a processor
    /// that shall load two at once waits until both have reached memory.
    #[inline(always)]
    pub fn args(&self) -> [u64; 6] {
        let load = |register: &u64| {
            // SAFETY: a reference is valid to read.
            unsafe { core::ptr::read_volatile(register) }
        };
        [
            load(&self.rdi),
            load(&self.rsi),
            load(&self.rdx),
            load(&self.r10),
            load(&self.r8),
            load(&self.r9),
        ]
    }
}

/// Offsets into `Thread` that the assembly uses; `state.rs` asserts them.
pub const OFF_RSP: usize = 8;
pub const OFF_STACK: usize = 16;
pub const OFF_RIP: usize = 24;
pub const OFF_SLOW: usize = 32;
pub const OFF_RCX: usize = core::mem::offset_of!(crate::state::Thread, saved_rcx);

/// Entry from a stub: `rcx` = where to go on, all else as at the call.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn mw_entry() {
    naked_asm!(
        "mov gs:[{rsp}], rsp",
        "mov rsp, gs:[{stack}]",
        "push qword ptr gs:[{rsp}]",
        "pushfq",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push 0",
        "jmp {common}",
        rsp = const OFF_RSP,
        stack = const OFF_STACK,
        common = sym entry_common,
    )
}

/// Entry from the vdso: a function call, so that only what functions preserve
/// has to be. `eax` = call number, `rcx` = where to go on (a `ret`). What
/// cannot be answered here goes the long way.
#[unsafe(naked)]
pub extern "C" fn mw_fast() {
    naked_asm!(
        "mov gs:[{rsp}], rsp",
        "mov rsp, gs:[{stack}]",
        "mov gs:[{rip}], rcx",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "mov edx, eax",
        "call {fast}",
        "pop rsi",
        "pop rdi",
        "pop r8",
        "pop rcx",
        "mov rsp, gs:[{rsp}]",
        "movabs r9, {not_here}",
        "cmp rax, r9",
        "jne 2f",
        "movabs r9, {entry_word}",
        "mov r9, [r9]",
        "mov gs:[{rip}], r9",
        "mov rax, r8",
        "2:",
        // What functions may change must not depend on how this one went:
        // replay compares all registers where a thread was interrupted.
        "xor edx, edx",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "pxor xmm0, xmm0",
        "pxor xmm1, xmm1",
        "pxor xmm2, xmm2",
        "pxor xmm3, xmm3",
        "pxor xmm4, xmm4",
        "pxor xmm5, xmm5",
        "pxor xmm6, xmm6",
        "pxor xmm7, xmm7",
        "pxor xmm8, xmm8",
        "pxor xmm9, xmm9",
        "pxor xmm10, xmm10",
        "pxor xmm11, xmm11",
        "pxor xmm12, xmm12",
        "pxor xmm13, xmm13",
        "pxor xmm14, xmm14",
        "pxor xmm15, xmm15",
        "jmp qword ptr gs:[{rip}]",
        rsp = const OFF_RSP,
        stack = const OFF_STACK,
        fast = sym crate::clock::fast,
        not_here = const crate::clock::NOT_HERE,
        rip = const OFF_RIP,
        // The first word of the Space is the entry's address.
        entry_word = const protocol::layout::SPACE_BASE,
    )
}

/// Entry by way of SIGSYS: the handler has put where to go on into the thread.
#[unsafe(naked)]
pub extern "C" fn mw_entry_slow() {
    naked_asm!(
        "mov gs:[{rcx}], rcx",
        "mov rcx, gs:[{slow}]",
        "mov gs:[{rsp}], rsp",
        "mov rsp, gs:[{stack}]",
        "push qword ptr gs:[{rsp}]",
        "pushfq",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push 1",
        "jmp {common}",
        rsp = const OFF_RSP,
        stack = const OFF_STACK,
        slow = const OFF_SLOW,
        rcx = const core::mem::offset_of!(crate::state::Thread, saved_rcx),
        common = sym entry_common,
    )
}

/// Entry of a thread that replay has brought to where it was interrupted: as
/// by a trap, but no call was made.
#[unsafe(naked)]
pub extern "C" fn mw_entry_interrupted() {
    naked_asm!(
        "mov rcx, gs:[{slow}]",
        "mov gs:[{rsp}], rsp",
        "mov rsp, gs:[{stack}]",
        "push qword ptr gs:[{rsp}]",
        "pushfq",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push {interrupted}",
        "jmp {common}",
        rsp = const OFF_RSP,
        stack = const OFF_STACK,
        slow = const OFF_SLOW,
        interrupted = const crate::call::INTERRUPTED,
        common = sym entry_common,
    )
}

/// Entry from the stub of an instruction that was replaced: as from that of a
/// call, but rcx was put aside.
#[unsafe(naked)]
pub extern "C" fn mw_entry_answered() {
    naked_asm!(
        "mov gs:[{rsp}], rsp",
        "mov rsp, gs:[{stack}]",
        "push qword ptr gs:[{rsp}]",
        "pushfq",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push {answered}",
        "jmp {common}",
        rsp = const OFF_RSP,
        stack = const OFF_STACK,
        answered = const crate::call::ANSWERED,
        common = sym entry_common,
    )
}

/// Entry from the pad of a breakpoint: as from the stub of an instruction that
/// was replaced.
#[unsafe(naked)]
pub extern "C" fn mw_entry_judged() {
    naked_asm!(
        "mov gs:[{rsp}], rsp",
        "mov rsp, gs:[{stack}]",
        "push qword ptr gs:[{rsp}]",
        "pushfq",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push qword ptr gs:[{rcx}]",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push {judged}",
        "jmp {common}",
        rsp = const OFF_RSP,
        stack = const OFF_STACK,
        rcx = const OFF_RCX,
        judged = const crate::call::JUDGED,
        common = sym entry_common,
    )
}

/// A `syscall` instruction for who makes calls in a thread's name, from outside:
/// one of the monitor's, which the kernel does not divert.
#[unsafe(naked)]
pub extern "C" fn gate() {
    naked_asm!("syscall", "ud2")
}

/// Entry from translated code: all registers are as the program has them.
#[unsafe(naked)]
pub extern "C" fn mw_entry_translated() {
    naked_asm!(
        "mov gs:[{rsp}], rsp",
        "mov rsp, gs:[{stack}]",
        "push qword ptr gs:[{rsp}]",
        "pushfq",
        "push 0",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push {translated}",
        "jmp {common}",
        rsp = const OFF_RSP,
        stack = const OFF_STACK,
        translated = const crate::call::TRANSLATED,
        common = sym entry_common,
    )
}

/// Leaves one thread's stack for another's: general registers that functions
/// preserve, and all of the vector state.
///
/// # Safety
/// `to` is a stack that this function left, or one made to look like it; both
/// areas are 64-byte aligned XSAVE areas, `to_xstate` a valid image.
#[unsafe(naked)]
pub unsafe extern "C" fn switch_stacks(
    from: u64,
    to: u64,
    from_xstate: u64,
    to_xstate: u64,
    mask: u64,
) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rdi, rdx",
        "mov rax, r8",
        "mov rdx, r8",
        "shr rdx, 32",
        "xsave64 [rdi]",
        "xrstor64 [rcx]",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// Where a thread of a replay begins when it is first switched to.
#[unsafe(naked)]
pub extern "C" fn thread_start() {
    naked_asm!(
        "mov rdi, gs:[0]",
        "and rsp, -16",
        "call {child}",
        "mov rsp, rax",
        "jmp {leave}",
        child = sym crate::process::child_begin,
        leave = sym leave_here,
    )
}

#[unsafe(naked)]
extern "C" fn entry_common() {
    naked_asm!(
        "sub rsp, 256",
        "movaps [rsp], xmm0",
        "movaps [rsp+16], xmm1",
        "movaps [rsp+32], xmm2",
        "movaps [rsp+48], xmm3",
        "movaps [rsp+64], xmm4",
        "movaps [rsp+80], xmm5",
        "movaps [rsp+96], xmm6",
        "movaps [rsp+112], xmm7",
        "movaps [rsp+128], xmm8",
        "movaps [rsp+144], xmm9",
        "movaps [rsp+160], xmm10",
        "movaps [rsp+176], xmm11",
        "movaps [rsp+192], xmm12",
        "movaps [rsp+208], xmm13",
        "movaps [rsp+224], xmm14",
        "movaps [rsp+240], xmm15",
        "cld",
        "mov rdi, rsp",
        "call {dispatch}",
        "jmp {leave}",
        dispatch = sym crate::call::dispatch,
        leave = sym leave_here,
    )
}

/// Carry, parity, adjust, zero, sign and overflow; the two that are always set
/// in a program (interrupts, and the one without a name) need no restoring.
const USUAL_FLAGS: i32 = 0x8d5 | 0x202;

/// Goes to the program; `rsp` points to its `Regs`.
#[unsafe(naked)]
extern "C" fn leave_here() {
    naked_asm!(
        "movaps xmm0, [rsp]",
        "movaps xmm1, [rsp+16]",
        "movaps xmm2, [rsp+32]",
        "movaps xmm3, [rsp+48]",
        "movaps xmm4, [rsp+64]",
        "movaps xmm5, [rsp+80]",
        "movaps xmm6, [rsp+96]",
        "movaps xmm7, [rsp+112]",
        "movaps xmm8, [rsp+128]",
        "movaps xmm9, [rsp+144]",
        "movaps xmm10, [rsp+160]",
        "movaps xmm11, [rsp+176]",
        "movaps xmm12, [rsp+192]",
        "movaps xmm13, [rsp+208]",
        "movaps xmm14, [rsp+224]",
        "movaps xmm15, [rsp+240]",
        "add rsp, 264",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "add rsp, 8",
        "pop qword ptr gs:[{rip}]",
        // Rare flags (single step, direction, alignment and the like) take the
        // instruction for all of them, which is slow. The usual ones: overflow
        // by an addition that overflows if it shall, the others by `sahf`.
        "test dword ptr [rsp], {rare}",
        "jne 2f",
        "mov gs:[{rax}], rax",
        "mov eax, [rsp]",
        "xchg al, ah",
        "and al, 8",
        "add al, 0x78",
        "sahf",
        "mov rax, gs:[{rax}]",
        "lea rsp, [rsp+8]",
        "pop rsp",
        "jmp qword ptr gs:[{rip}]",
        "2:",
        "popfq",
        "pop rsp",
        "jmp qword ptr gs:[{rip}]",
        rip = const OFF_RIP,
        rax = const core::mem::offset_of!(crate::state::Thread, leaving_rax),
        rare = const !USUAL_FLAGS,
    )
}

/// Leaves the monitor with the registers at `regs`, which lie on the current
/// thread's monitor stack.
#[unsafe(naked)]
pub unsafe extern "C" fn leave_with(regs: *const Regs) -> ! {
    naked_asm!("mov rsp, rdi", "jmp {leave}", leave = sym leave_here)
}

/// Where the injector sends a fresh image: `rdi` = exec slot, `rsi` = the
/// arena's descriptor. Takes a stack of the monitor's own before anything
/// else, so that the program's stack stays as the kernel made it.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn mw_init() {
    naked_asm!(
        "mov r12, rdi",
        "mov r13, rsi",
        "mov eax, 9",
        "movabs rdi, {slots}",
        "mov esi, {size}",
        "mov edx, 3",
        "mov r10d, 0x100022", // MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
        "mov r8, -1",
        "xor r9d, r9d",
        "syscall",
        "movabs rsp, {top}",
        "mov rdi, r12",
        "mov rsi, r13",
        "call {init}",
        "ud2",
        slots = const protocol::layout::SLOTS_BASE,
        size = const protocol::layout::SLOT_SIZE,
        // Below the place where the first registers will be put.
        top = const protocol::layout::SLOTS_BASE + protocol::layout::SLOT_SIZE - 0x400,
        init = sym crate::process::init,
    )
}

/// Where the injector sends one thread of a process that runs already: maps the
/// slots (`rsi` bytes), takes the first one's stack, and says when it is done.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn mw_adopt() {
    naked_asm!(
        "mov eax, 9",
        "movabs rdi, {slots}",
        "mov edx, 3",
        "mov r10d, 0x104022", // as in `mw_init`, and MAP_NORESERVE
        "mov r8, -1",
        "xor r9d, r9d",
        "syscall",
        "cmp rax, rdi",
        "jne 2f",
        "movabs rsp, {top}",
        "call {adopt}",
        "2:",
        "jmp mw_say_done",
        slots = const protocol::layout::SLOTS_BASE,
        top = const protocol::layout::SLOTS_BASE + protocol::layout::SLOT_SIZE - 0x1000,
        adopt = sym crate::adopt::adopt,
    )
}

/// Where it sends each of its threads then: `rdi` = its slot.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn mw_adopted() {
    naked_asm!(
        "cld",
        "mov rsp, [rdi + {stack}]",
        "and rsp, -16",
        "call {adopted}",
        "mov rsp, rax",
        "jmp {leave}",
        stack = const OFF_STACK,
        adopted = sym crate::adopt::adopted,
        leave = sym leave_here,
    )
}

/// Where it sends each thread that the monitor leaves: `rdi` = its slot. It comes to
/// `mw_say_done` with its signal mask in rbx.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn mw_depart() {
    naked_asm!(
        "cld",
        "mov rsp, [rdi + {stack}]",
        "and rsp, -16",
        "call {depart}",
        "mov rbx, rax",
        "jmp mw_say_done",
        stack = const OFF_STACK,
        depart = sym crate::adopt::depart,
    )
}

/// And one of them, in the end.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn mw_depart_process() {
    naked_asm!(
        "cld",
        "mov rsp, [rdi + {stack}]",
        "and rsp, -16",
        "call {depart}",
        "mov rbx, rax",
        "jmp mw_say_done",
        stack = const OFF_STACK,
        depart = sym crate::adopt::depart_process,
    )
}

/// Tells the injector, which traces this thread: a signal that nobody else sees, and
/// that the thread is here.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn mw_say_done() {
    naked_asm!(
        "mov eax, 39", // getpid
        "syscall",
        "mov edi, eax",
        "mov eax, 186", // gettid
        "syscall",
        "mov esi, eax",
        "mov edx, {signal}",
        "mov eax, 234", // tgkill
        "syscall",
        ".globl mw_done",
        "mw_done:",
        "ud2",
        signal = const protocol::layout::PREEMPT_SIGNAL,
    )
}

unsafe extern "C" {
    safe fn mw_done();
}

/// In the order that the injector knows: it reads the addresses in the image.
pub const ENTRIES: [extern "C" fn(); 5] = [
    mw_adopt,
    mw_adopted,
    mw_depart,
    mw_depart_process,
    // SAFETY: a place in the text, of which only the address is taken.
    unsafe { core::mem::transmute::<unsafe extern "C" fn(), extern "C" fn()>(mw_done) },
];

/// What the vdso's functions enter when the monitor has left: `eax` = call number,
/// `rcx` = where to go on.
#[unsafe(naked)]
pub extern "C" fn mw_departed() {
    naked_asm!("mov r8, rcx", "syscall", "jmp r8")
}

/// A raw system call.
///
/// # Safety
/// As for the call itself.
#[inline(always)]
pub unsafe fn syscall(nr: u64, args: &[u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; what it does to
    // memory is the caller's business.
    unsafe {
        asm!("syscall",
            inlateout("rax") nr as i64 => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A call that may block. If a signal is queued for the program, now or at any
/// moment before the kernel has begun the call, it is not made and `-EINTR`
/// returned: the handler moves a thread that is between `interruptible_begin`
/// and `interruptible_call` to `interruptible_abort`.
#[unsafe(naked)]
pub unsafe extern "C" fn syscall_interruptible(
    nr: u64,
    args: *const [u64; 6],
    pending: *const u32,
) -> i64 {
    naked_asm!(
        "mov rax, rdi",
        "mov rcx, rsi",
        "mov r11, rdx",
        "mov rdi, [rcx]",
        "mov rsi, [rcx+8]",
        "mov rdx, [rcx+16]",
        "mov r10, [rcx+24]",
        "mov r8, [rcx+32]",
        "mov r9, [rcx+40]",
        ".globl mw_interruptible_begin",
        "mw_interruptible_begin:",
        "cmp dword ptr [r11], 0",
        "jne mw_interruptible_abort",
        ".globl mw_interruptible_call",
        "mw_interruptible_call:",
        "syscall",
        "ret",
        ".globl mw_interruptible_abort",
        "mw_interruptible_abort:",
        "mov rax, -4",
        "ret",
    )
}

unsafe extern "C" {
    safe fn mw_interruptible_begin();
    safe fn mw_interruptible_call();
    safe fn mw_interruptible_abort();
    safe fn mw_copy_begin();
    safe fn mw_copy_end();
    safe fn mw_copy_fault();
    safe fn mw_load_begin();
    safe fn mw_load_end();
    safe fn mw_load_fault();
    safe fn mw_store_begin();
    safe fn mw_store_end();
    safe fn mw_store_fault();
    safe fn mw_repeat_begin();
    safe fn mw_repeat_end();
    safe fn mw_repeat_fault();
}

/// If `rip` is in the stretch in which a blocking call must not be begun any
/// more, where to go instead.
pub fn abort_blocking(rip: u64) -> Option<u64> {
    let begin = mw_interruptible_begin as *const () as u64;
    let call = mw_interruptible_call as *const () as u64;
    (begin..=call)
        .contains(&rip)
        .then_some(mw_interruptible_abort as *const () as u64)
}

/// If `rip` is in a guarded access, or in rounds made for the program, where a
/// fault goes on.
pub fn copy_fault(rip: u64) -> Option<u64> {
    let guarded: [[*const (); 3]; 4] = [
        [
            mw_copy_begin as *const (),
            mw_copy_end as *const (),
            mw_copy_fault as *const (),
        ],
        [
            mw_load_begin as *const (),
            mw_load_end as *const (),
            mw_load_fault as *const (),
        ],
        [
            mw_store_begin as *const (),
            mw_store_end as *const (),
            mw_store_fault as *const (),
        ],
        [
            mw_repeat_begin as *const (),
            mw_repeat_end as *const (),
            mw_repeat_fault as *const (),
        ],
    ];
    guarded
        .into_iter()
        .find(|[begin, end, _]| (*begin as u64..*end as u64).contains(&rip))
        .map(|[_, _, fault]| fault as u64)
}

/// What `rep movs` and `rep stos` work with.
#[repr(C)]
pub struct Repeated {
    pub rcx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rax: u64,
}

/// Makes the rounds of `rep movs` or `rep stos` (`stores`), of 2^`size` bytes
/// each, until none is left or memory is not there.
///
/// # Safety
/// It is what the program itself is about to do, and nothing of the monitor's
/// own lives where it writes.
#[unsafe(naked)]
pub unsafe extern "C" fn repeat(with: *mut Repeated, size: u64, stores: bool, backwards: bool) {
    naked_asm!(
        "push rbx",
        "mov rbx, rdi",
        "mov r8, rsi",
        "movzx edx, dl",
        "test cl, cl",
        "jz 2f",
        "std",
        "2:",
        "mov rcx, [rbx]",
        "mov rsi, [rbx + 8]",
        "mov rdi, [rbx + 16]",
        "mov rax, [rbx + 24]",
        "lea r8, [r8 + rdx * 4]",
        ".globl mw_repeat_begin",
        "mw_repeat_begin:",
        "cmp r8, 4",
        "jae 5f",
        "cmp r8, 2",
        "jae 3f",
        "cmp r8, 0",
        "jne 22f",
        "rep movsb",
        "jmp 9f",
        "22:",
        "rep movsw",
        "jmp 9f",
        "3:",
        "jne 23f",
        "rep movsd",
        "jmp 9f",
        "23:",
        "rep movsq",
        "jmp 9f",
        "5:",
        "cmp r8, 6",
        "jae 6f",
        "cmp r8, 4",
        "jne 24f",
        "rep stosb",
        "jmp 9f",
        "24:",
        "rep stosw",
        "jmp 9f",
        "6:",
        "jne 25f",
        "rep stosd",
        "jmp 9f",
        "25:",
        "rep stosq",
        ".globl mw_repeat_end",
        "mw_repeat_end:",
        ".globl mw_repeat_fault",
        "mw_repeat_fault:",
        "9:",
        "cld",
        "mov [rbx], rcx",
        "mov [rbx + 8], rsi",
        "mov [rbx + 16], rdi",
        "pop rbx",
        "ret",
    )
}

/// Copies `len` bytes where either side may not be mapped. Returns how many
/// bytes were NOT copied.
///
/// # Safety
/// Where both sides are mapped, `to` must be writable memory that nothing of
/// the monitor's own lives in.
#[unsafe(naked)]
pub unsafe extern "C" fn copy_guarded(to: u64, from: u64, len: u64) -> u64 {
    // In all of it rcx is what is left, so that a fault can tell.
    naked_asm!(
        "mov rcx, rdx",
        "cmp rcx, 256",
        "ja 4f",
        ".globl mw_copy_begin",
        "mw_copy_begin:",
        // Two words that were just stored one by one are not there yet for one
        // that wants both at once.
        "cmp rcx, 16",
        "jb 3f",
        "jne 2f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "sub rcx, 8",
        "mov rax, [rsi+8]",
        "mov [rdi+8], rax",
        "sub rcx, 8",
        "jmp 5f",
        "2:",
        "movups xmm0, [rsi]",
        "movups [rdi], xmm0",
        "add rsi, 16",
        "add rdi, 16",
        "sub rcx, 16",
        "cmp rcx, 16",
        "jae 2b",
        "3:",
        "test rcx, rcx",
        "jz 5f",
        "test cl, 8",
        "jz 6f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "sub rcx, 8",
        "6:",
        "test cl, 4",
        "jz 7f",
        "mov eax, [rsi]",
        "mov [rdi], eax",
        "add rsi, 4",
        "add rdi, 4",
        "sub rcx, 4",
        "7:",
        "test rcx, rcx",
        "jz 5f",
        "mov al, [rsi]",
        "mov [rdi], al",
        "inc rsi",
        "inc rdi",
        "dec rcx",
        "jmp 7b",
        "4:",
        "rep movsb",
        ".globl mw_copy_end",
        "mw_copy_end:",
        "5:",
        ".globl mw_copy_fault",
        "mw_copy_fault:",
        "mov rax, rcx",
        "ret",
    )
}

/// What `load_guarded` returns.
#[repr(C)]
pub struct Loaded {
    pub word: u64,
    /// 0 if there was something to load.
    pub failed: u64,
}

/// Loads a word where memory may not be.
///
/// # Safety
/// The address is not one of the monitor's own that others write to.
#[unsafe(naked)]
pub unsafe extern "C" fn load_guarded(from: u64) -> Loaded {
    naked_asm!(
        ".globl mw_load_begin",
        "mw_load_begin:",
        "mov rax, [rdi]",
        ".globl mw_load_end",
        "mw_load_end:",
        "xor edx, edx",
        "ret",
        ".globl mw_load_fault",
        "mw_load_fault:",
        "mov edx, 1",
        "ret",
    )
}

/// Stores two words where memory may not be. Returns 0 if they were stored.
///
/// # Safety
/// As `copy_guarded`.
#[unsafe(naked)]
pub unsafe extern "C" fn store_guarded(to: u64, first: u64, second: u64) -> u64 {
    naked_asm!(
        ".globl mw_store_begin",
        "mw_store_begin:",
        "mov [rdi], rsi",
        "mov [rdi+8], rdx",
        ".globl mw_store_end",
        "mw_store_end:",
        "xor eax, eax",
        "ret",
        ".globl mw_store_fault",
        "mw_store_fault:",
        "mov eax, 1",
        "ret",
    )
}

/// Starts a thread (or a vfork child): the new one runs `mw_child` with the
/// word at the top of its stack.
///
/// # Safety
/// `stack` points to a word that holds the new thread's `Thread` address, with
/// free stack below.
#[unsafe(naked)]
pub unsafe extern "C" fn clone_on_stack(
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
) -> i64 {
    naked_asm!(
        "mov r10, rcx",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "mov rdi, [rsp]",
        "and rsp, -16",
        "call {child}",
        "mov rsp, rax",
        "jmp {leave}",
        child = sym crate::process::child_begin,
        leave = sym leave_here,
    )
}

/// Ends a thread, after it has said that its place is free: from then on it has no stack.
///
/// # Safety
/// `word` is the thread's own; all signals are blocked.
#[unsafe(naked)]
pub unsafe extern "C" fn exit(status: u64, word: *mut u32) -> ! {
    naked_asm!("mov dword ptr [rsi], 0", "mov eax, 60", "syscall", "ud2",)
}

/// The handler of all signals, as the kernel calls it.
#[unsafe(naked)]
pub extern "C" fn signal_entry() {
    naked_asm!(
        "cld",
        "push rbp",
        "mov rbp, rsp",
        "and rsp, -16",
        "call {handler}",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
        handler = sym crate::signal::on_signal,
    )
}

#[unsafe(naked)]
pub extern "C" fn signal_restorer() {
    naked_asm!("mov eax, 15", "syscall", "ud2")
}

/// The current thread's record.
#[inline(always)]
pub fn thread_address() -> u64 {
    let address: u64;
    // SAFETY: gs points to the thread's record from the moment the monitor is
    // set up in it; its first word is its own address.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) address, options(nostack, readonly, preserves_flags))
    };
    address
}

#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: rdtsc has no effect on memory.
    unsafe { core::arch::x86_64::_rdtsc() >> protocol::shared::TICK_SHIFT }
}

/// What the processor says of itself: `eax`, `ebx`, `ecx`, `edx`.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let answer = core::arch::x86_64::__cpuid_count(leaf, subleaf);
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

/// A random number of 2, 4 or 8 bytes; none if the processor has none now.
pub fn random(size: u64) -> Option<u64> {
    let (value, is_there): (u64, u8);
    // SAFETY: the program has asked for this very instruction, and it touches
    // nothing but registers. A short one is the beginning of a long one.
    unsafe {
        match size {
            2 => {
                asm!("xor {v:e}, {v:e}", "rdrand {v:x}", "setc {f}", v = out(reg) value, f = out(reg_byte) is_there)
            }
            4 => asm!("rdrand {v:e}", "setc {f}", v = out(reg) value, f = out(reg_byte) is_there),
            _ => asm!("rdrand {v}", "setc {f}", v = out(reg) value, f = out(reg_byte) is_there),
        }
    }
    (is_there != 0).then_some(value)
}

/// A number of so many bytes from the source of the processor's random numbers
/// (`rdseed`); None: it has none now.
pub fn seed(size: u64) -> Option<u64> {
    let (value, is_there): (u64, u8);
    // SAFETY: as above.
    unsafe {
        match size {
            2 => {
                asm!("xor {v:e}, {v:e}", "rdseed {v:x}", "setc {f}", v = out(reg) value, f = out(reg_byte) is_there)
            }
            4 => asm!("rdseed {v:e}", "setc {f}", v = out(reg) value, f = out(reg_byte) is_there),
            _ => asm!("rdseed {v}", "setc {f}", v = out(reg) value, f = out(reg_byte) is_there),
        }
    }
    (is_there != 0).then_some(value)
}

/// The number of the processor, as the kernel has told it to itself.
pub fn processor() -> u64 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("rdpid {v}", v = out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The limit of a segment, if it has one that may be known.
pub fn segment_limit(selector: u64) -> Option<u64> {
    let (value, is_there): (u64, u8);
    // SAFETY: it reads a descriptor of the kernel's, and writes registers only.
    unsafe {
        asm!(
            "xor {v:e}, {v:e}",
            "lsl {v:e}, {s:e}",
            "setz {f}",
            v = out(reg) value,
            s = in(reg) selector,
            f = out(reg_byte) is_there,
            options(nostack),
        );
    }
    (is_there != 0).then_some(value)
}

/// The time-stamp counter.
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: as in `ticks`.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The time-stamp counter with the auxiliary value that comes with it. For programs
/// that have used the instruction themselves: not every processor has it.
pub fn counter_with_auxiliary() -> (u64, u32) {
    let mut auxiliary = 0;
    // SAFETY: writes to `auxiliary` only.
    let counter = unsafe { core::arch::x86_64::__rdtscp(&raw mut auxiliary) };
    (counter, auxiliary)
}

/// Which parts of the register state the kernel lets programs use.
pub fn xstate_mask() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: every x86-64 kernel with signal frames of the kind we make has
    // OSXSAVE on.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Stores the floating-point and vector state, with the low halves of the
/// vector registers as the program had them.
///
/// # Safety
/// `to` is 64-byte aligned and has room for `xstate_size()` bytes.
#[unsafe(naked)]
pub unsafe extern "C" fn xsave(to: u64, xmm: *const [[u64; 2]; 16], mask: u64) {
    naked_asm!(
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi+16]",
        "movups xmm2, [rsi+32]",
        "movups xmm3, [rsi+48]",
        "movups xmm4, [rsi+64]",
        "movups xmm5, [rsi+80]",
        "movups xmm6, [rsi+96]",
        "movups xmm7, [rsi+112]",
        "movups xmm8, [rsi+128]",
        "movups xmm9, [rsi+144]",
        "movups xmm10, [rsi+160]",
        "movups xmm11, [rsi+176]",
        "movups xmm12, [rsi+192]",
        "movups xmm13, [rsi+208]",
        "movups xmm14, [rsi+224]",
        "movups xmm15, [rsi+240]",
        "mov eax, edx",
        "shr rdx, 32",
        "xsave64 [rdi]",
        "ret",
    )
}

/// The reverse of `xsave`.
///
/// # Safety
/// `from` is a valid, 64-byte aligned XSAVE image.
#[unsafe(naked)]
pub unsafe extern "C" fn xrstor(from: u64, xmm: *mut [[u64; 2]; 16], mask: u64) {
    naked_asm!(
        "mov eax, edx",
        "shr rdx, 32",
        "xrstor64 [rdi]",
        "movups [rsi], xmm0",
        "movups [rsi+16], xmm1",
        "movups [rsi+32], xmm2",
        "movups [rsi+48], xmm3",
        "movups [rsi+64], xmm4",
        "movups [rsi+80], xmm5",
        "movups [rsi+96], xmm6",
        "movups [rsi+112], xmm7",
        "movups [rsi+128], xmm8",
        "movups [rsi+144], xmm9",
        "movups [rsi+160], xmm10",
        "movups [rsi+176], xmm11",
        "movups [rsi+192], xmm12",
        "movups [rsi+208], xmm13",
        "movups [rsi+224], xmm14",
        "movups [rsi+240], xmm15",
        "ret",
    )
}

/// The compiler calls these by name.
mod builtins {
    use core::arch::naked_asm;

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn memcpy(_to: *mut u8, _from: *const u8, _len: usize) -> *mut u8 {
        naked_asm!(
            "mov rax, rdi",
            "mov rcx, rdx",
            "cmp rcx, 512",
            "ja 3f",
            "cmp rcx, 16",
            "jb 4f",
            "2:",
            "movups xmm0, [rsi]",
            "movups [rdi], xmm0",
            "add rsi, 16",
            "add rdi, 16",
            "sub rcx, 16",
            "cmp rcx, 16",
            "jae 2b",
            "4:",
            "test cl, 8",
            "jz 6f",
            "mov r8, [rsi]",
            "mov [rdi], r8",
            "add rsi, 8",
            "add rdi, 8",
            "sub rcx, 8",
            "6:",
            "test cl, 4",
            "jz 7f",
            "mov r8d, [rsi]",
            "mov [rdi], r8d",
            "add rsi, 4",
            "add rdi, 4",
            "sub rcx, 4",
            "7:",
            "test rcx, rcx",
            "jz 5f",
            "mov r8b, [rsi]",
            "mov [rdi], r8b",
            "inc rsi",
            "inc rdi",
            "dec rcx",
            "jmp 7b",
            "3:",
            "rep movsb",
            "5:",
            "ret",
        )
    }

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn memmove(_to: *mut u8, _from: *const u8, _len: usize) -> *mut u8 {
        naked_asm!(
            "mov rax, rdi",
            "mov rcx, rdx",
            "mov r8, rdi",
            "sub r8, rsi",
            "cmp r8, rdx",
            "jb 2f",
            "rep movsb",
            "ret",
            "2:",
            "std",
            "lea rsi, [rsi+rcx-1]",
            "lea rdi, [rdi+rcx-1]",
            "rep movsb",
            "cld",
            "ret",
        )
    }

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn memset(_to: *mut u8, _byte: i32, _len: usize) -> *mut u8 {
        naked_asm!(
            "mov r8, rdi",
            "mov rcx, rdx",
            "movzx eax, sil",
            "cmp rcx, 512",
            "ja 3f",
            "movabs r9, 0x0101010101010101",
            "imul rax, r9",
            "2:",
            "cmp rcx, 8",
            "jb 4f",
            "mov [rdi], rax",
            "add rdi, 8",
            "sub rcx, 8",
            "jmp 2b",
            "4:",
            "test rcx, rcx",
            "jz 5f",
            "mov [rdi], al",
            "inc rdi",
            "dec rcx",
            "jmp 4b",
            "3:",
            "rep stosb",
            "5:",
            "mov rax, r8",
            "ret",
        )
    }

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn memcmp(_a: *const u8, _b: *const u8, _len: usize) -> i32 {
        naked_asm!(
            "xor ecx, ecx",
            "2:",
            "cmp rcx, rdx",
            "je 3f",
            "movzx eax, byte ptr [rdi+rcx]",
            "movzx r8d, byte ptr [rsi+rcx]",
            "inc rcx",
            "sub eax, r8d",
            "jz 2b",
            "ret",
            "3:",
            "xor eax, eax",
            "ret",
        )
    }

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn bcmp(_a: *const u8, _b: *const u8, _len: usize) -> i32 {
        naked_asm!("jmp {}", sym memcmp)
    }
}

/* The vdso that programs find in their auxiliary vector. Each function enters
   the monitor as a patched syscall site does (see arch.rs): rcx = where to go
   on, the eight bytes before that = the site. The monitor's entry stands in
   the first word of the monitor's private memory (layout::SPACE_BASE), its quick
   one, for the clocks, in the second. */
        .text
        .macro  entry name, number, word
        .globl  __vdso_\name, \name
        .type   __vdso_\name, @function
        .weak   \name
__vdso_\name:
\name:
        .cfi_startproc
        mov     $\number, %eax
        movabs  $\word, %r11
        lea     1f(%rip), %rcx
        jmp     *(%r11)
        .quad   0
1:      ret
        .cfi_endproc
        .size   __vdso_\name, . - __vdso_\name
        .endm

        entry   clock_gettime, 228, 0x6f0010000008
        entry   gettimeofday, 96, 0x6f0010000008
        entry   time, 201, 0x6f0010000008
        entry   getcpu, 309, 0x6f0010000000
        entry   clock_getres, 229, 0x6f0010000000

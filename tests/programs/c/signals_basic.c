/* Covers: handlers and their siginfo, masks, pending signals, sigsuspend, sigwaitinfo, nesting,
 * SA_NODEFER, SA_RESETHAND, SA_ONSTACK, siglongjmp, queued real-time signals, interrupted and
 * restarted calls, stop and continue in the middle of a sleep, and a program that uses SIGSYS.
 *
 * Hard for a recorder: masks and actions are virtual, since the monitor needs signals of its own;
 * the program must still see exactly the mask, order, frame and interrupted calls the kernel
 * would give it. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

static volatile int trail[64], trail_length;

static void mark(int what)
{
    trail[trail_length++] = what;
}

static int trail_is(const int *want, int length)
{
    int same = trail_length == length;
    for (int i = 0; same && i < length; i++)
        same = trail[i] == want[i];
    trail_length = 0;
    return same;
}
#define TRAIL(...)                                                                         \
    trail_is((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static volatile siginfo_t last;
static volatile pid_t last_tid;

static void note(int sig, siginfo_t *info, void *context)
{
    CHECK(info->si_signo == sig && context != NULL);
    last = *info;
    last_tid = gettid();
    mark(sig);
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    OK(sigaction(sig, &action, NULL));
}

static sigset_t set_of(int a, int b, int c)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 3; i++)
        if ((i == 0 ? a : i == 1 ? b : c) != 0)
            sigaddset(&set, i == 0 ? a : i == 1 ? b : c);
    return set;
}

static int masked(int sig)
{
    sigset_t now;
    OK(sigprocmask(SIG_SETMASK, NULL, &now));
    return sigismember(&now, sig);
}

static int pending(int sig)
{
    sigset_t now;
    OK(sigpending(&now));
    return sigismember(&now, sig);
}

static void test_sending(void)
{
    handle(SIGUSR1, note, 0);
    OK(raise(SIGUSR1));
    CHECK(last.si_code == SI_TKILL && last.si_pid == getpid() && last.si_uid == getuid());
    OK(kill(getpid(), SIGUSR1));
    CHECK(last.si_code == SI_USER && last.si_pid == getpid());
    OK(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
    CHECK(last.si_code == SI_TKILL);
    OK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 12345}));
    CHECK(last.si_code == SI_QUEUE && last.si_value.sival_int == 12345 && last.si_pid == getpid());
    CHECK(TRAIL(SIGUSR1, SIGUSR1, SIGUSR1, SIGUSR1));
    FAILS(kill(getpid(), 65), EINVAL);
    OK(kill(getpid(), 0));

    pid_t pid = OK(fork());
    if (pid == 0) {
        OK(sigqueue(getppid(), SIGUSR1, (union sigval){.sival_int = 77}));
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK(TRAIL(SIGUSR1));
    CHECK(last.si_pid == pid && last.si_value.sival_int == 77);
    say("sending: raise, kill, tgkill, sigqueue, from a child\n");
}

static void test_masks(void)
{
    sigset_t both = set_of(SIGUSR1, SIGUSR2, 0), empty = set_of(0, 0, 0), old;
    handle(SIGUSR1, note, 0);
    handle(SIGUSR2, note, 0);
    OK(sigprocmask(SIG_BLOCK, &both, &old));
    CHECK(masked(SIGUSR1) && masked(SIGUSR2) && !masked(SIGTERM) && !sigismember(&old, SIGUSR1));
    OK(kill(getpid(), SIGUSR2));
    OK(kill(getpid(), SIGUSR1));
    OK(kill(getpid(), SIGUSR1));
    CHECK(pending(SIGUSR1) && pending(SIGUSR2) && trail_length == 0);
    FAILS(sigsuspend(&empty), EINTR);
    /* Two of the same became one. Which handler runs first is the kernel's business. */
    CHECK(trail_length == 2 && trail[0] + trail[1] == SIGUSR1 + SIGUSR2);
    trail_length = 0;
    CHECK(!pending(SIGUSR1) && !pending(SIGUSR2) && masked(SIGUSR1));

    siginfo_t info;
    struct timespec soon = {0, 5000000};
    OK(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 9}));
    CHECK(sigwaitinfo(&both, &info) == SIGUSR2 && info.si_value.sival_int == 9);
    FAILS(sigtimedwait(&both, &info, &soon), EAGAIN);
    OK(sigprocmask(SIG_SETMASK, &old, NULL));
    CHECK(trail_length == 0 && !masked(SIGUSR1));

    /* An ignored signal is dropped, even one that is pending already. */
    OK(sigprocmask(SIG_BLOCK, &both, NULL));
    OK(raise(SIGUSR1));
    signal(SIGUSR1, SIG_IGN);
    CHECK(!pending(SIGUSR1));
    handle(SIGUSR1, note, 0);
    OK(sigprocmask(SIG_UNBLOCK, &both, NULL));
    CHECK(trail_length == 0);
    say("masks: block, pending, suspend, wait, unblock\n");
}

static void raise_other(int sig, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    mark(sig);
    CHECK(masked(sig));
    raise(sig == SIGUSR1 ? SIGUSR2 : SIGUSR1);
    mark(-sig);
}

static int depth;

static void raise_again(int sig, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    mark(++depth);
    CHECK(!masked(sig));
    if (depth < 3)
        raise(sig);
    mark(-depth--);
}

static void test_nesting(void)
{
    struct sigaction now;
    handle(SIGUSR1, raise_other, 0);
    handle(SIGUSR2, note, 0);
    OK(raise(SIGUSR1));
    CHECK(TRAIL(SIGUSR1, SIGUSR2, -SIGUSR1));

    /* The second is blocked by sa_mask until the first is over. */
    struct sigaction action = {.sa_sigaction = raise_other, .sa_flags = SA_SIGINFO};
    action.sa_mask = set_of(SIGUSR2, 0, 0);
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(raise(SIGUSR1));
    CHECK(TRAIL(SIGUSR1, -SIGUSR1, SIGUSR2));

    handle(SIGUSR1, raise_again, SA_NODEFER);
    OK(raise(SIGUSR1));
    CHECK(TRAIL(1, 2, 3, -3, -2, -1));

    handle(SIGUSR1, note, SA_RESETHAND);
    OK(raise(SIGUSR1));
    OK(sigaction(SIGUSR1, NULL, &now));
    CHECK(TRAIL(SIGUSR1) && now.sa_handler == SIG_DFL);
    say("nesting: handlers in handlers, NODEFER, RESETHAND\n");
}

static char *alternate;
#define ALTERNATE_SIZE 65536

static void on_alternate(int sig, siginfo_t *info, void *context)
{
    stack_t now;
    char here;
    ucontext_t *frame = context;
    (void)info;
    OK(sigaltstack(NULL, &now));
    CHECK(now.ss_flags == SS_ONSTACK && now.ss_sp == alternate && now.ss_size == ALTERNATE_SIZE);
    CHECK(&here >= alternate && &here < alternate + ALTERNATE_SIZE);
    CHECK(frame->uc_stack.ss_sp == alternate);
    FAILS(sigaltstack(&now, NULL), EPERM);
    mark(sig);
}

static sigjmp_buf back;

static void jump_out(int sig, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    siglongjmp(back, sig);
}

static void block_in_frame(int sig, siginfo_t *info, void *context)
{
    (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, SIGUSR2);
    mark(sig);
}

static void test_stacks_and_frames(void)
{
    stack_t stack = {.ss_size = ALTERNATE_SIZE}, old;
    alternate = stack.ss_sp = malloc(ALTERNATE_SIZE);
    OK(sigaltstack(&stack, &old));
    CHECK(old.ss_flags == SS_DISABLE);
    handle(SIGUSR1, on_alternate, SA_ONSTACK);
    OK(raise(SIGUSR1));
    CHECK(TRAIL(SIGUSR1));
    handle(SIGUSR1, jump_out, SA_ONSTACK);
    for (volatile int i = 0; i < 3; i++) {
        int sig = sigsetjmp(back, 1);
        if (sig == 0) {
            raise(SIGUSR1);
            CHECK(!"the handler returned");
        }
        CHECK(sig == SIGUSR1 && !masked(SIGUSR1));
    }
    stack.ss_flags = SS_DISABLE;
    OK(sigaltstack(&stack, NULL));
    free(alternate);

    /* What the handler writes into the saved mask counts after its return. */
    handle(SIGUSR1, block_in_frame, 0);
    OK(raise(SIGUSR1));
    CHECK(TRAIL(SIGUSR1) && masked(SIGUSR2));
    sigset_t set = set_of(SIGUSR2, 0, 0);
    OK(sigprocmask(SIG_UNBLOCK, &set, NULL));
    say("stacks: alternate, long jump, edited frame\n");
}

static void note_value(int sig, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(masked(SIGRTMIN + 1) && masked(SIGRTMIN + 3));
    mark((sig - SIGRTMIN) * 100 + info->si_value.sival_int);
}

static void test_queue(void)
{
    static const int sent[] = {301, 102, 203, 104, 305, 206, 107};
    sigset_t all = set_of(SIGRTMIN + 1, SIGRTMIN + 2, SIGRTMIN + 3);
    for (int i = 1; i <= 3; i++) {
        struct sigaction action = {.sa_sigaction = note_value, .sa_flags = SA_SIGINFO};
        action.sa_mask = all;
        OK(sigaction(SIGRTMIN + i, &action, NULL));
    }
    OK(sigprocmask(SIG_BLOCK, &all, NULL));
    for (int i = 0; i < 7; i++)
        OK(sigqueue(getpid(), SIGRTMIN + sent[i] / 100, (union sigval){.sival_int = sent[i] % 100}));
    CHECK(trail_length == 0);
    OK(sigprocmask(SIG_UNBLOCK, &all, NULL));
    /* Lowest number first, and in the order sent for each number. */
    CHECK(TRAIL(102, 104, 107, 203, 206, 301, 305));
    say("queue: 7 real-time signals in order\n");
}

/* Signals the parent every 5 ms until killed, or once and then writes a byte. */
static pid_t start_sender(int fd)
{
    pid_t pid = OK(fork());
    if (pid > 0)
        return pid;
    sleep_ms(5);
    do {
        OK(kill(getppid(), SIGUSR1));
        sleep_ms(5);
    } while (fd == -1);
    write_all(fd, "x", 1);
    _exit(0);
}

static void test_interruption(void)
{
    int fds[2];
    char byte = 0;
    OK(pipe(fds));

    handle(SIGUSR1, note, 0);
    pid_t pid = start_sender(-1);
    FAILS(read(fds[0], &byte, 1), EINTR);
    struct timespec hour = {3600, 0}, left = {0, 0};
    FAILS(nanosleep(&hour, &left), EINTR);
    CHECK(left.tv_sec >= 3500);
    handle(SIGUSR1, note, SA_RESTART);
    FAILS(nanosleep(&hour, &left), EINTR);
    FAILS(pause(), EINTR);
    OK(kill(pid, SIGKILL));
    DIES(pid, SIGKILL);
    CHECK(trail_length >= 4);
    trail_length = 0;

    pid = start_sender(fds[1]);
    CHECK(read(fds[0], &byte, 1) == 1 && byte == 'x');
    EXITS(pid, 0);
    CHECK(TRAIL(SIGUSR1));
    close(fds[0]);
    close(fds[1]);

    /* Stop and continue does not interrupt a sleep: the kernel restarts it with what is left. */
    pid = OK(fork());
    if (pid == 0) {
        struct timespec ms60 = {0, 60000000};
        int64_t start = now_ns();
        CHECK(nanosleep(&ms60, NULL) == 0);
        CHECK(now_ns() - start >= 60000000);
        _exit(0);
    }
    int status;
    sleep_ms(10);
    OK(kill(pid, SIGSTOP));
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    OK(kill(pid, SIGCONT));
    EXITS(pid, 0);
    say("interruption: EINTR, restart, stop and continue\n");
}

static void *wait_for_signal(void *unused)
{
    (void)unused;
    sigset_t set = set_of(SIGUSR1, 0, 0);
    struct timespec tick = {0, 1000000};
    ZERO(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    while (!__atomic_load_n(&trail_length, __ATOMIC_ACQUIRE))
        nanosleep(&tick, NULL);
    CHECK(last_tid == gettid());
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread;
    sigset_t set = set_of(SIGUSR1, 0, 0);
    handle(SIGUSR1, note, 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < 2; i++) {
        ZERO(pthread_create(&thread, NULL, wait_for_signal, NULL));
        if (i == 0)
            ZERO(pthread_kill(thread, SIGUSR1));
        else
            OK(kill(getpid(), SIGUSR1));
        ZERO(pthread_join(thread, NULL));
        CHECK(TRAIL(SIGUSR1));
    }
    ZERO(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    say("threads: to one thread, to the only one willing\n");
}

static void test_sigsys(void)
{
    sigset_t all, none = set_of(0, 0, 0);
    struct sigaction action;
    handle(SIGSYS, note, 0);
    OK(sigaction(SIGSYS, NULL, &action));
    CHECK(action.sa_sigaction == note && (action.sa_flags & SA_SIGINFO));
    OK(raise(SIGSYS));
    CHECK(TRAIL(SIGSYS));
    sigfillset(&all);
    OK(sigprocmask(SIG_BLOCK, &all, NULL));
    CHECK(masked(SIGSYS) && masked(SIGSEGV) && masked(SIGTRAP) && !masked(SIGKILL));
    OK(raise(SIGSYS));
    CHECK(pending(SIGSYS) && getpid() > 0 && trail_length == 0);
    OK(sigprocmask(SIG_SETMASK, &none, NULL));
    CHECK(TRAIL(SIGSYS));
    signal(SIGSYS, SIG_IGN);
    OK(raise(SIGSYS));
    signal(SIGSYS, SIG_DFL);
    CHECK(getpid() > 0 && trail_length == 0);
    say("SIGSYS: handled, blocked, ignored, reset\n");
}

int main(void)
{
    test_sending();
    test_masks();
    test_nesting();
    test_stacks_and_frames();
    test_queue();
    test_interruption();
    test_threads();
    test_sigsys();
    return 0;
}

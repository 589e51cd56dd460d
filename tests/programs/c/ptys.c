/* Covers: a pseudo-terminal with a child whose controlling terminal it is: line editing and echo,
 * raw mode, window size with SIGWINCH, Ctrl-C as SIGINT, hang-up as SIGHUP, /dev/tty, job control
 * ids.
 *
 * Hard for a recorder: almost all of it is ioctl, each with another structure; the terminal itself
 * turns bytes into signals; and a recorder that puts itself between must not become the owner of
 * the terminal. */
#include "check.h"
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static volatile int interrupted, resized;

static void note(int sig)
{
    interrupted += sig == SIGINT;
    resized += sig == SIGWINCH;
}

static void expect(int fd, const char *text)
{
    char got[64] = "";
    CHECK(strlen(text) < sizeof got);
    read_all(fd, got, strlen(text));
    CHECK(strcmp(got, text) == 0);
}

static void send_text(int fd, const char *text)
{
    write_all(fd, text, strlen(text));
}

static void wait_for(volatile int *flag)
{
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGINT);
    sigaddset(&block, SIGWINCH);
    OK(sigprocmask(SIG_BLOCK, &block, &old));
    while (!*flag)
        sigsuspend(&old);
    OK(sigprocmask(SIG_SETMASK, &old, NULL));
}

static void child(int terminal)
{
    struct sigaction action = {.sa_handler = note};
    struct termios mode, raw;
    struct winsize size;
    char line[32] = "";
    CHECK(OK(setsid()) == getpid());
    OK(ioctl(terminal, TIOCSCTTY, 0));
    OK(dup2(terminal, STDIN_FILENO));
    CHECK(tcgetpgrp(STDIN_FILENO) == getpid() && tcgetsid(STDIN_FILENO) == getpid());
    CHECK(isatty(STDIN_FILENO) && strncmp(ttyname(STDIN_FILENO), "/dev/pts/", 9) == 0);
    OK(sigaction(SIGINT, &action, NULL));
    OK(sigaction(SIGWINCH, &action, NULL));
    /* The hang-up at the end shall end it, also below nohup. */
    CHECK(signal(SIGHUP, SIG_DFL) != SIG_ERR);
    int tty = OK(open("/dev/tty", O_RDWR | O_CLOEXEC));

    OK(tcgetattr(tty, &mode));
    CHECK((mode.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG));
    /* Otherwise SIGINT throws away what waits, which would leave the order to chance. */
    mode.c_lflag |= NOFLSH;
    OK(tcsetattr(tty, TCSANOW, &mode));
    send_text(tty, "ready\n");
    /* The rubbed-out byte never arrives; nor does anything before the line ends. */
    CHECK(read(STDIN_FILENO, line, sizeof line) == 6 && memcmp(line, "hello\n", 6) == 0);

    OK(ioctl(tty, TIOCGWINSZ, &size));
    CHECK(size.ws_row == 24 && size.ws_col == 80);
    send_text(tty, "resize\n");
    wait_for(&resized);
    OK(ioctl(tty, TIOCGWINSZ, &size));
    CHECK(size.ws_row == 50 && size.ws_col == 132);

    send_text(tty, "interrupt\n");
    wait_for(&interrupted);

    raw = mode;
    cfmakeraw(&raw);
    OK(tcsetattr(tty, TCSAFLUSH, &raw));
    send_text(tty, "raw\n");
    read_all(STDIN_FILENO, line, 2);
    CHECK(line[0] == 3 && line[1] == 'x' && interrupted == 1);
    OK(tcsetattr(tty, TCSADRAIN, &mode));
    OK(tcdrain(tty));
    send_text(tty, "done\n");
    for (;;)
        pause();
}

int main(void)
{
    int master, terminal;
    struct winsize size = {24, 80, 0, 0};
    OK(openpty(&master, &terminal, NULL, NULL, &size));
    CHECK(ptsname(master) != NULL);
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(master);
        child(terminal);
    }
    close(terminal);
    expect(master, "ready\r\n");
    send_text(master, "helx\177lo\n");
    expect(master, "helx\b \blo\r\n");
    expect(master, "resize\r\n");
    size.ws_row = 50;
    size.ws_col = 132;
    OK(ioctl(master, TIOCSWINSZ, &size));
    expect(master, "interrupt\r\n");
    CHECK(tcgetpgrp(master) == pid);
    send_text(master, "\003");
    expect(master, "^C");
    expect(master, "raw\n");
    send_text(master, "\003x");
    expect(master, "done\r\n");
    close(master);
    DIES(pid, SIGHUP);
    say("line, resize, interrupt, raw, hang-up\n");
    return 0;
}

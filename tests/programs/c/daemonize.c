/* Covers: the classic daemon: fork, setsid, fork again, leave the directory and the standard
 * streams, and live on for 200 ms after the process that was started has ended.
 *
 * Hard for a recorder: the run is over when the last process is, not when the first one is, and
 * the daemon is nobody's child any more. The daemon's line on stdout comes after the exit of the
 * first process, always: whoever reads the output must read to the end of file. */
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>

static void daemon_main(int news, int life, int out)
{
    char byte;
    FILE *file = fopen(temp_file("state"), "w");
    CHECK(file && fputs("started\n", file) >= 0 && fflush(file) == 0);
    write_all(news, "started", 7);
    close(news);

    /* End of file here is the end of the first process. */
    CHECK(read(life, &byte, 1) == 0);
    sleep_ms(200);
    CHECK(fputs("outlived\n", file) >= 0 && fclose(file) == 0);

    char text[32] = "";
    int fd = OK(open(temp_file("state"), O_RDONLY));
    read_all(fd, text, strlen("started\noutlived\n"));
    CHECK(strcmp(text, "started\noutlived\n") == 0);
    temp_owner = getpid();
    remove_temp_dir();
    dprintf(out, "daemon: outlived its parents\n");
    _exit(0);
}

static void become_daemon(int news, int life)
{
    pid_t first = getpid();
    CHECK(OK(setsid()) == first && getpgrp() == first);
    int intermediate_gone[2];
    OK(pipe2(intermediate_gone, O_CLOEXEC));
    pid_t pid = OK(fork());
    if (pid > 0)
        _exit(0);

    char byte;
    close(intermediate_gone[1]);
    CHECK(read(intermediate_gone[0], &byte, 1) == 0);
    close(intermediate_gone[0]);
    for (int i = 0; getppid() == first; i++) {
        CHECK(i < 1000);
        sleep_ms(1);
    }
    CHECK(getsid(0) == first && getpid() != first);
    umask(022);
    OK(chdir("/"));
    int out = OK(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10));
    int null = OK(open("/dev/null", O_RDWR));
    OK(dup2(null, STDIN_FILENO));
    OK(dup2(null, STDOUT_FILENO));
    close(null);
    daemon_main(news, life, out);
}

int main(void)
{
    int news[2], life[2];
    char text[8] = "";
    make_temp_dir("daemonize");
    OK(pipe2(news, O_CLOEXEC));
    OK(pipe2(life, O_CLOEXEC));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(news[0]);
        close(life[1]);
        become_daemon(news[1], life[0]);
    }
    close(news[1]);
    close(life[0]);
    EXITS(pid, 0);
    read_all(news[0], text, 7);
    CHECK(strcmp(text, "started") == 0);
    CHECK(read(news[0], text, 1) == 0);
    say("parent: daemon started\n");
    return 0;
}

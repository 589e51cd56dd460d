/* Covers: N (5000) rounds of 64 bytes between two processes over TCP; for measuring.
 * usage: tcp_pingpong [N] */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void no_delay(int fd)
{
    int on = 1;
    OK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 5000;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    char message[64] = {0}, answer[64];
    int listener = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(listener, (struct sockaddr *)&address, length));
    OK(getsockname(listener, (struct sockaddr *)&address, &length));
    OK(listen(listener, 1));
    pid_t pid = OK(fork());
    if (pid == 0) {
        ssize_t n;
        int fd = OK(accept(listener, NULL, NULL));
        no_delay(fd);
        while ((n = OK(recv(fd, answer, sizeof answer, 0))) > 0)
            CHECK(send(fd, answer, n, 0) == n);
        _exit(0);
    }
    int fd = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(connect(fd, (struct sockaddr *)&address, length));
    no_delay(fd);
    for (long i = 0; i < count; i++) {
        memcpy(message, &i, sizeof i);
        CHECK(send(fd, message, sizeof message, 0) == sizeof message);
        CHECK(recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer);
        CHECK(memcmp(message, answer, sizeof answer) == 0);
    }
    close(fd);
    EXITS(pid, 0);
    say("%ld rounds\n", count);
    return 0;
}

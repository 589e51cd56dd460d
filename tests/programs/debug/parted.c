/* One of two ends of a conversation over TCP, on two hosts: `parted serve ADDRESS COUNT` and
 * `parted ask ADDRESS COUNT`. Whoever asks sends numbers, some ahead of the answers; each comes
 * back, until there were so many or whoever asks gets SIGTERM. What was sent and received is
 * counted, so that what is under way can be told from outside; a thread looks at the clock all the time, and keeps the longest that it did not get
 * to. Both print their ids first, and at the end how long that was. With `stay` behind the count a process
 * does not end then. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AHEAD 8

struct message {
    long number;
    long answer;
};

/* Counted before it is sent, and after it is received. */
volatile long sending;
volatile long received;
volatile long longest_ms;
static volatile int is_over;
static volatile long count;

/* What was sent comes back. */
static void on_term(int signal) {
    (void)signal;
    count = sending;
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *look_at_clock(void *unused) {
    long last = now_ms();
    while (!is_over) {
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
        long now = now_ms();
        if (now - last > longest_ms)
            longest_ms = now - last;
        last = now;
    }
    return unused;
}

static void failed(const char *what) {
    perror(what);
    exit(1);
}

__attribute__((noinline)) void took(struct message *message) {
    long expected = received + 1;
    if (message->number != expected) {
        printf("number %ld came instead of %ld\n", message->number, expected);
        exit(1);
    }
    received = expected;
}

__attribute__((noinline)) void give(int to, struct message *message) {
    sending++;
    message->number = sending;
    if (send(to, message, sizeof *message, 0) != sizeof *message)
        failed("send");
}

static int take(int from, struct message *message) {
    ssize_t got = recv(from, message, sizeof *message, MSG_WAITALL);
    if (got == 0)
        return 0;
    if (got != sizeof *message)
        failed("recv");
    took(message);
    return 1;
}

static void serve(struct sockaddr_in *at) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)at, sizeof *at) || listen(listener, 1))
        failed("listen");
    int asker = accept(listener, NULL, NULL);
    if (asker < 0)
        failed("accept");
    setsockopt(asker, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct message message = {0, 0};
    while (received < count && take(asker, &message)) {
        message.answer = message.number * 2;
        give(asker, &message);
        usleep(300);
    }
    close(asker);
}

static void ask(struct sockaddr_in *at) {
    int server, on = 1;
    while (server = socket(AF_INET, SOCK_STREAM, 0),
           connect(server, (struct sockaddr *)at, sizeof *at)) {
        close(server);
        usleep(10000);
    }
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct message message = {0, 0};
    while (received < count) {
        while (sending < count && sending < received + AHEAD)
            give(server, &message);
        if (!take(server, &message))
            break;
        if (message.answer != message.number * 2) {
            printf("the answer to %ld is %ld\n", message.number, message.answer);
            exit(1);
        }
    }
    close(server);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    printf("%d\n", getpid());
    fflush(stdout);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7000)};
    inet_pton(AF_INET, argv[2], &at.sin_addr);
    count = atol(argv[3]);
    pthread_t clock;
    pthread_create(&clock, NULL, look_at_clock, NULL);
    if (strcmp(argv[1], "serve") == 0)
        serve(&at);
    else {
        signal(SIGTERM, on_term);
        ask(&at);
    }
    is_over = 1;
    pthread_join(clock, NULL);
    printf("%ld received, longest gap %ld ms\n", received, longest_ms);
    fflush(stdout);
    while (argc > 4)
        pause();
    return received == sending ? 0 : 1;
}

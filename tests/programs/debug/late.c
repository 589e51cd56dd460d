/* A line to far away: `late MS COMMAND...` runs a command and passes on what it reads and what it
 * says, each so long after it came. What it says of errors comes at once. Ends as it does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long delay_ns;

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What is under way. One of no length is the end. */
struct piece {
    long due;
    ssize_t length;
    struct piece *next;
    char bytes[];
};

struct way {
    int from, to;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct piece *first, **last;
};

static void *take(void *argument) {
    struct way *way = argument;
    for (;;) {
        static __thread char bytes[65536];
        ssize_t length = read(way->from, bytes, sizeof bytes);
        if (length < 0)
            length = 0;
        struct piece *piece = malloc(sizeof *piece + length);
        piece->due = now_ns() + delay_ns;
        piece->length = length;
        piece->next = NULL;
        for (ssize_t at = 0; at < length; at++)
            piece->bytes[at] = bytes[at];
        pthread_mutex_lock(&way->lock);
        *way->last = piece;
        way->last = &piece->next;
        pthread_cond_signal(&way->more);
        pthread_mutex_unlock(&way->lock);
        if (length == 0)
            return NULL;
    }
}

static void *give(void *argument) {
    struct way *way = argument;
    for (;;) {
        pthread_mutex_lock(&way->lock);
        while (!way->first)
            pthread_cond_wait(&way->more, &way->lock);
        struct piece *piece = way->first;
        way->first = piece->next;
        if (!way->first)
            way->last = &way->first;
        pthread_mutex_unlock(&way->lock);
        struct timespec due = {piece->due / 1000000000, piece->due % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        for (ssize_t at = 0; at < piece->length;) {
            ssize_t written = write(way->to, piece->bytes + at, piece->length - at);
            if (written <= 0)
                break;
            at += written;
        }
        if (piece->length == 0) {
            close(way->to);
            return NULL;
        }
        free(piece);
    }
}

static void begin(struct way *way, int from, int to, pthread_t *gives) {
    pthread_t takes;
    *way = (struct way){from, to, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL};
    way->last = &way->first;
    if (pthread_create(&takes, NULL, take, way) || pthread_create(gives, NULL, give, way))
        exit(1);
}

int main(int count, char **words) {
    int in[2], out[2];
    if (count < 3 || pipe2(in, 0) || pipe2(out, 0))
        return 1;
    delay_ns = atol(words[1]) * 1000000;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[0]), close(in[1]), close(out[0]), close(out[1]);
        execvp(words[2], words + 2);
        return 127;
    }
    close(in[0]), close(out[1]);
    signal(SIGPIPE, SIG_IGN);
    struct way there, back;
    pthread_t last, gives;
    begin(&there, 0, in[1], &gives);
    begin(&back, out[0], 1, &last);
    pthread_join(last, NULL);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

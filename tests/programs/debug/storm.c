/* Many processes at once: each forks and executes this program again, which begins threads and loads a
 * library; each thread calls a function, and each process one of the library. `storm LIBRARY PROCESSES
 * THREADS`; with a fourth word it is one of those. Built with -shared, it is the library. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
__attribute__((noinline)) int in_library(int number) {
    return number + 1;
}
#else
__attribute__((noinline)) long in_thread(long number) {
    return number * 2;
}

static void *thread(void *number) {
    return (void *)in_thread((long)number);
}

static int one(const char *path, int threads) {
    pthread_t all[16];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&all[i], NULL, thread, (void *)i))
            return 1;
    for (long i = 0; i < threads; i++) {
        void *got;
        if (pthread_join(all[i], &got) || (long)got != 2 * i)
            return 2;
    }
    void *library = dlopen(path, RTLD_NOW);
    int (*function)(int) = library ? (int (*)(int))dlsym(library, "in_library") : NULL;
    return !function || function(1) != 2;
}

int main(int count, char **words) {
    if (count < 4)
        return 64;
    int processes = atoi(words[2]), threads = atoi(words[3]), failed = 0;
    if (count > 4)
        return one(words[1], threads);
    for (int i = 0; i < processes; i++) {
        if (fork())
            continue;
        execl(words[0], words[0], words[1], words[2], words[3], "one", (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < processes; i++) {
        int status;
        failed += wait(&status) < 0 || status != 0;
    }
    printf("%d of %d failed\n", failed, processes);
    return failed;
}
#endif

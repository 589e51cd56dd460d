/* A thread for each kind of lock of the C library, waiting for it for ever. Prints its id when all wait. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t beside = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
pthread_barrier_t barrier;
sem_t semaphore;

static void *for_mutex(void *unused) {
    prctl(PR_SET_NAME, "for_mutex");
    pthread_mutex_lock(&mutex);
    return unused;
}

static void *for_shared(void *unused) {
    prctl(PR_SET_NAME, "for_shared");
    pthread_rwlock_rdlock(&shared);
    return unused;
}

static void *for_condition(void *unused) {
    prctl(PR_SET_NAME, "for_condition");
    pthread_mutex_lock(&beside);
    pthread_cond_wait(&condition, &beside);
    return unused;
}

static void *for_barrier(void *unused) {
    prctl(PR_SET_NAME, "for_barrier");
    pthread_barrier_wait(&barrier);
    return unused;
}

static void *for_semaphore(void *unused) {
    prctl(PR_SET_NAME, "for_semaphore");
    sem_wait(&semaphore);
    return unused;
}

int main(void) {
    void *(*all[])(void *) = {for_mutex, for_shared, for_condition, for_barrier, for_semaphore};
    pthread_t threads[5];
    pthread_barrier_init(&barrier, NULL, 2);
    sem_init(&semaphore, 0, 0);
    pthread_mutex_lock(&mutex);
    pthread_rwlock_wrlock(&shared);
    for (int i = 0; i < 5; i++)
        if (pthread_create(&threads[i], NULL, all[i], NULL))
            return 1;
    printf("%d\n", getpid());
    fflush(stdout);
    pause();
    return 0;
}

/* A service that hangs: two workers move money between two accounts, each in another direction, and
 * lock the account that they take from first. Prints its id. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

struct account {
    pthread_mutex_t lock;
    long balance;
};

struct account a = {PTHREAD_MUTEX_INITIALIZER, 100};
struct account b = {PTHREAD_MUTEX_INITIALIZER, 100};
static pthread_barrier_t both;

static long transfer(struct account *from, struct account *to, long amount) {
    pthread_mutex_lock(&from->lock);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&to->lock);
    from->balance -= amount;
    to->balance += amount;
    pthread_mutex_unlock(&to->lock);
    pthread_mutex_unlock(&from->lock);
    return from->balance;
}

/* For who looks: nobody calls it here. */
__attribute__((used)) static int give_up(struct account *account) {
    return pthread_mutex_unlock(&account->lock);
}

static void *first(void *unused) {
    prctl(PR_SET_NAME, "first");
    transfer(&a, &b, 10);
    return unused;
}

static void *second(void *unused) {
    prctl(PR_SET_NAME, "second");
    transfer(&b, &a, 20);
    return unused;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&threads[0], NULL, first, NULL);
    pthread_create(&threads[1], NULL, second, NULL);
    printf("%d\n", getpid());
    fflush(stdout);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("%ld and %ld\n", a.balance, b.balance);
    return 0;
}

/* Covers: four threads that allocate and free memory of all sizes, some of it handed to another
 * thread to free.
 *
 * Hard for a recorder: arenas, trims and large blocks make a storm of brk, mmap, munmap, mprotect
 * and madvise whose order between threads decides every later address. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define ROUNDS 4000
#define KEPT 64

static _Atomic(unsigned char *) mailbox[16];
static atomic_long freed, allocated;

static void release(unsigned char *block)
{
    if (!block)
        return;
    uint32_t size;
    memcpy(&size, block, sizeof size);
    for (uint32_t i = sizeof size; i < size; i += 509)
        CHECK(block[i] == (unsigned char)size);
    free(block);
    atomic_fetch_add(&freed, 1);
}

static void *spam(void *argument)
{
    uint64_t random = (long)argument + 1;
    unsigned char *kept[KEPT] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        random = compute(random, 1);
        /* Mostly small, some of a few pages, a few large enough for a map of their own. */
        uint32_t kind = random >> 60;
        uint32_t size = 16 + (random >> 32 & 0xffff) % (kind < 12 ? 500 : kind < 15 ? 20000 : 65000);
        if (i % 200 == 0)
            size = 300000;
        unsigned char *block = malloc(size);
        CHECK(block != NULL);
        memset(block, (unsigned char)size, size);
        memcpy(block, &size, sizeof size);
        atomic_fetch_add(&allocated, 1);
        if (i % 3 == 0) {
            release(atomic_exchange(&mailbox[i % 16], block));
        } else {
            release(kept[i % KEPT]);
            kept[i % KEPT] = block;
        }
    }
    for (int i = 0; i < KEPT; i++)
        release(kept[i]);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, spam, (void *)i));
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));
    for (int i = 0; i < 16; i++)
        release(atomic_load(&mailbox[i]));
    CHECK(atomic_load(&freed) == atomic_load(&allocated));
    say("%ld blocks allocated and freed\n", atomic_load(&freed));
    return 0;
}

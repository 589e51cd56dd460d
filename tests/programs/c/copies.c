/* Covers: two threads that copy by one instruction into memory that is touched for the first time, and
 * take the processor from each other in the middle of it.
 *
 * Hard for a recorder: where such a copy comes to a page that is not there yet, some processors have
 * written more than their registers say. */
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>

#define LENGTH (128 << 20)
#define PIECE 0x4000
#define PIECES 8

static _Alignas(4096) unsigned char from[(PIECES + 1) * PIECE];

static void *copy(void *argument)
{
    unsigned char *to =
        mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(to != MAP_FAILED);
    for (size_t at = 0; at + 2 * PIECE <= LENGTH; at += PIECE) {
        size_t skip = 65 + at / PIECE % 120, count = PIECE;
        unsigned char *source = from + at / PIECE % PIECES * PIECE + skip, *destination = to + at + skip;
        __asm__ volatile("rep movsb" : "+S"(source), "+D"(destination), "+c"(count) : : "memory");
    }
    uint64_t sum = DIGEST_START;
    for (size_t at = 0; at < LENGTH; at += LENGTH / 64)
        sum = digest(sum, to + at, 4096);
    OK(munmap(to, LENGTH));
    *(uint64_t *)argument = sum;
    return NULL;
}

int main(void)
{
    uint64_t sums[2];
    pthread_t threads[2];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = i * 31 + i / 4096 + 1;
    for (int i = 0; i < 2; i++)
        ZERO(pthread_create(&threads[i], NULL, copy, &sums[i]));
    for (int i = 0; i < 2; i++)
        ZERO(pthread_join(threads[i], NULL));
    CHECK(sums[0] == sums[1]);
    say("copied twice, digest %016lx\n", sums[0]);
    return 0;
}

/* Plain C: every kind of type, recursion, function pointers, bit-fields. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum color { RED, GREEN = 5, BLUE };
enum flags { F_NONE = 0, F_A = 1, F_B = 2, F_C = 4 }; enum runs { R_ONE = 1, R_SIX = 6 };

struct point {
    int x, y;
};

struct bits {
    unsigned a : 3;
    int b : 5;
    unsigned long c : 33;
    enum color d : 4;
};

union number {
    int i;
    float f;
    unsigned char bytes[8];
};

typedef struct node {
    struct node *next;
    const char *name;
    double weight;
    struct point at;
    char tag[8];
    int (*visit)(struct node *, int);
} node_t;

struct nested {
    struct {
        int inner;
        short pair[2];
    };
    union number n;
    struct point grid[2][3];
    node_t *head;
};

static int counter;
int global_array[6] = {1, 2, 3, 3, 3, 3};
const char *global_text = "global text";
static __thread int per_thread = 7;
__thread long exported_per_thread = -9;
static volatile sig_atomic_t signals;
char zeros[300];

static int visit(node_t *n, int depth) {
    static int visits = 0;
    visits++;
    int result = depth;
    if (n->next) {
        int below = n->next->visit(n->next, depth + 1);
        result += below;
    }
    per_thread += result;
    return result + (int)n->weight;
}

__attribute__((noinline)) static uint64_t mix(uint64_t a, uint64_t b, unsigned char c) {
    uint64_t t = a * 6364136223846793005u + b;
    for (int i = 0; i < (int)(c % 7); i++) {
        uint64_t old = t;
        t ^= old >> (i + 1);
        counter += (int)(old & 3);
    }
    return t;
}

static inline int square(int v) {
    int s = v * v;
    return s;
}

static inline int sum_of_squares(int a, int b) {
    int x = square(a);
    int y = square(b);
    return x + y;
}

__attribute__((noinline)) int many(int a, long b, short c, char d, float e, double f,
                                   struct point p, struct bits *q, int *r) {
    double local = e + f;
    struct point moved = {p.x + a, p.y + (int)b};
    *r += sum_of_squares(moved.x & 15, moved.y & 15);
    q->b = (d + c) & 7;
    return (int)local + moved.x + moved.y + c + d;
}

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

static void on_signal(int number) {
    int seen = number;
    signals += seen;
}

static int variable_length(int n) {
    int squares[n];
    for (int i = 0; i < n; i++) {
        squares[i] = square(i);
    }
    int total = 0;
    for (int i = 0; i < n; i++) {
        total += squares[i];
    }
    return total;
}

int main(int argc, char **argv) {
    struct bits bits = {5, -3, 1ul << 32, GREEN};
    union number number = {.i = 0x3f800000};
    enum color color = BLUE;
    enum flags some = F_A | F_C;
    enum flags none = F_NONE;
    enum flags odd = (enum flags)9; enum runs run = (enum runs)7;
    char text[16] = "hello\n\t\"q\"";
    char full[4] = {'a', 'b', 'c', 'd'};
    unsigned char raw[6] = {0, 1, 2, 200, 255, 0};
    float small = 1.5f, nan_value = 0.0f / 0.0f;
    double big = 1e100, third = 1.0 / 3.0;
    long double wide = 2.25L;
    _Bool yes = 1;
    wchar_t wide_text[4] = L"wi\x263a";
    int numbers[5] = {9, 3, 7, 1, 5};
    void *nowhere = 0;
    int (*function)(node_t *, int) = visit;
    int *into = &numbers[2];
    signed char negative = -5;
    __int128 huge = (__int128)1 << 100;
    double _Complex z = 1.0 + 2.0i;
    node_t last = {0, "last", 2.5, {3, 4}, "tail", visit};
    node_t middle = {&last, "middle", -0.5, {1, 2}, "mid", visit};
    node_t first = {&middle, argv[0] ? "first" : 0, 1e-3, {-1, -2}, "first", visit};
    struct nested nested = {.inner = 1, .pair = {2, 3}, .n = {.f = 2.0f}, .head = &first};
    uint64_t seed = 88172645463325252u;
    int total = 0;

    signal(SIGUSR1, on_signal);
    for (int round = 0; round < 200; round++) {
        seed = mix(seed, (uint64_t)round, (unsigned char)round);
        total += visit(&first, round % 3);
        total += many(round, (long)seed, (short)round, (char)('a' + round % 26), small, big > 0 ? third : 0,
                      (struct point){round, -round}, &bits, &numbers[round % 5]);
        qsort(numbers, 5, sizeof numbers[0], compare);
        total += variable_length(3 + round % 4);
        nested.grid[round % 2][round % 3].x = total;
        if (round % 16 == 0) {
            raise(SIGUSR1);
        }
        char line[64];
        snprintf(line, sizeof line, "%d %s %.3f", total, text, third);
        exported_per_thread += (long)strlen(line);
    }
    printf("%d %d %d %d %p %p %d %f %Lf %d %d %d %d %c %d\n", total, counter, (int)signals, argc, nowhere,
           (void *)into, yes, big, wide, number.i, color, some, none, full[0], raw[3]);
    return (int)(huge >> 120) + (negative > 0) + (nan_value > 0) + odd - 9 + (function == 0) +
           (wide_text[0] == 0) + ((double)z > 9) + (global_array[0] == 9) + (zeros[0] != 0);
}

/* Covers: std::random_device, which asks the processor and not the kernel. What it gives seeds a
 * generator, as in any program that shuffles. */
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

static unsigned mixed(std::random_device &device)
{
    std::mt19937 generator(device());
    std::vector<int> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::shuffle(numbers.begin(), numbers.end(), generator);
    unsigned digest = 0;
    for (int number : numbers)
        digest = digest * 31 + static_cast<unsigned>(number);
    return digest;
}

int main()
{
    int ends[2];
    if (pipe(ends) != 0)
        return 1;
    std::random_device usual;
    for (int i = 0; i < 100; i++) {
        unsigned digest = mixed(usual);
        if (write(ends[1], &digest, sizeof digest) != sizeof digest)
            return 1;
    }
    for (const char *source : {"rdrand", "rdseed", "/dev/urandom"}) {
        try {
            std::random_device device{std::string(source)};
            unsigned digest = mixed(device);
            if (write(ends[1], &digest, sizeof digest) != sizeof digest)
                return 1;
        } catch (const std::exception &) {
            // This library or this processor has none.
        }
    }
    std::puts("shuffled by chance");
    return 0;
}

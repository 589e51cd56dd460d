// For the tests of conditions: texts as C++ has them, short ones in place and long ones elsewhere.
#include <string>
#include <unistd.h>

static std::string name = "first";
static std::string where;

int main()
{
    getppid();
    name = "second";
    where = "a text that is too long to be kept in the object itself";
    getppid();
    name = "third";
    where.clear();
    return 0;
}

/* Covers: ioctl requests of terminals and network interfaces whose numbers do not say what they read
 * and write; some lead to further memory. What they answer goes through a pipe, so that a replay
 * with other answers is seen.
 *
 * Hard for a recorder: it must know each of them. What the kernel has, it passes on; what nobody has is
 * refused, and said by its number. BUILD_FLAGS: -lutil */
#include "check.h"
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

static int out[2];

static void tell(const void *data, size_t size)
{
    char back[1024];
    CHECK(size <= sizeof back && write(out[1], data, size) == (ssize_t)size);
    CHECK(read(out[0], back, sizeof back) == (ssize_t)size);
}

static int ask(int socket, void *question)
{
    struct ifreq request;
    memset(&request, 0, sizeof request);
    strcpy(request.ifr_name, "lo");
    request.ifr_data = question;
    errno = 0;
    int result = ioctl(socket, SIOCETHTOOL, &request);
    CHECK(result == 0 || errno != ENOTTY);
    return result == 0;
}

int main(void)
{
    OK(pipe(out));
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    struct {
        struct ethtool_drvinfo info;
        unsigned char behind[64];
    } driver = {.info.cmd = ETHTOOL_GDRVINFO};
    memset(driver.behind, 7, sizeof driver.behind);
    ask(s, &driver);
    tell(&driver, sizeof driver);
    struct ethtool_ts_info stamps = {.cmd = ETHTOOL_GET_TS_INFO};
    ask(s, &stamps);
    tell(&stamps, sizeof stamps);
    struct ethtool_value link = {.cmd = ETHTOOL_GLINK};
    ask(s, &link);
    tell(&link, sizeof link);

    static const unsigned long requests[] = {SIOCGIFFLAGS,  SIOCGIFMTU,   SIOCGIFPFLAGS,
                                             SIOCGIFTXQLEN, SIOCGIFHWADDR, SIOCGIFMAP};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct ifreq request;
        memset(&request, 0, sizeof request);
        strcpy(request.ifr_name, "lo");
        if (ioctl(s, requests[i], &request) == -1)
            CHECK(errno != ENOTTY || requests[i] == SIOCGIFPFLAGS);
        tell(&request, sizeof request);
    }
    unsigned bridges[16] = {0};
    unsigned long list[4] = {1 /* BRCTL_GET_BRIDGES */, (unsigned long)bridges, 16, 0};
    ioctl(s, SIOCGIFBR, list);
    tell(bridges, sizeof bridges);

    int master, slave;
    OK(openpty(&master, &slave, NULL, NULL, NULL));
    struct termios locked;
    memset(&locked, 1, sizeof locked);
    OK(ioctl(slave, TIOCGLCKTRMIOS, &locked));
    tell(&locked, 36);
    char counts[80] = {0};
    CHECK(ioctl(slave, TIOCGICOUNT, counts) == -1);
    tcdrain(slave);
    struct termios settings;
    OK(tcgetattr(slave, &settings));
    OK(tcsetattr(slave, TCSADRAIN, &settings));

    FAILS(ioctl(slave, 0x54f8, counts), ENOTTY);
    int null = OK(open("/dev/null", O_RDWR));
    FAILS(ioctl(null, 0xae00 /* KVM_GET_API_VERSION */, 0), ENOTTY);
    say("asked and answered\n");
    return 0;
}

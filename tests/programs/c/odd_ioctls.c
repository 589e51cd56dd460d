/* Covers: requests that write more, or elsewhere, than their number says: FIEMAP with its extents,
 * TUNSETIFF and TUNGETIFF, the old numbers of consoles and keyboards; setsockopt of netfilter, which
 * writes counters through a pointer in what it is given.
 *
 * What the machine does not have, or this user may not, is left out. What was read goes to
 * /dev/null, so that a replay that reads otherwise is found. */
#include "check.h"
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/kd.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/vt.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int null;

static void keep(const void *data, size_t size)
{
    write_all(null, data, size);
}

static void test_extents(void)
{
    make_temp_dir("ioctls");
    int fd = OK(open(temp_file("file"), O_RDWR | O_CREAT, 0600));
    char block[8192];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 5; i++)
        CHECK(OK(pwrite(fd, block, sizeof block, i * 65536)) == sizeof block);
    OK(fsync(fd));
    struct {
        struct fiemap map;
        struct fiemap_extent extents[8];
    } all = {.map = {.fm_length = FIEMAP_MAX_OFFSET, .fm_extent_count = 8}};
    memset(all.extents, 0xee, sizeof all.extents);
    if (ioctl(fd, FS_IOC_FIEMAP, &all) == 0) {
        CHECK(all.map.fm_mapped_extents >= 1);
        keep(&all, sizeof all);
    }
    close(fd);
    remove_temp_dir();
    say("extents\n");
}

static void test_tunnel(void)
{
    int fd = open("/dev/net/tun", O_RDWR);
    if (fd != -1) {
        struct ifreq wanted = {.ifr_flags = IFF_TUN | IFF_NO_PI}, got;
        memset(&got, 0xee, sizeof got);
        if (ioctl(fd, TUNSETIFF, &wanted) == 0) {
            CHECK(wanted.ifr_name[0] != 0);
            OK(ioctl(fd, TUNGETIFF, &got));
            CHECK(strcmp(got.ifr_name, wanted.ifr_name) == 0);
            keep(&got, sizeof got);
        }
        close(fd);
    }
    say("tunnel\n");
}

static void test_console(void)
{
    int fd = open("/dev/tty0", O_RDONLY | O_NOCTTY);
    if (fd != -1) {
        struct {
            struct vt_stat state;
            struct vt_mode mode;
            struct kbentry entry;
            int free, keyboard;
            long display;
            char type, leds;
            unsigned char colors[48];
        } all;
        memset(&all, 0xee, sizeof all);
        all.entry = (struct kbentry){.kb_table = 0, .kb_index = 30};
        ioctl(fd, VT_OPENQRY, &all.free);
        ioctl(fd, VT_GETSTATE, &all.state);
        ioctl(fd, VT_GETMODE, &all.mode);
        ioctl(fd, KDGKBTYPE, &all.type);
        ioctl(fd, KDGETMODE, &all.display);
        ioctl(fd, KDGKBMODE, &all.keyboard);
        ioctl(fd, KDGETLED, &all.leds);
        ioctl(fd, KDGKBENT, &all.entry);
        ioctl(fd, GIO_CMAP, all.colors);
        keep(&all, sizeof all);
        close(fd);
    }
    say("console\n");
}

/* Puts the table that is there in its own place, and gets its counters. */
static void test_counters(void)
{
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
    struct ipt_getinfo info = {.name = "filter"};
    socklen_t len = sizeof info;
    if (fd != -1 && getsockopt(fd, IPPROTO_IP, IPT_SO_GET_INFO, &info, &len) == 0) {
        len = sizeof(struct ipt_get_entries) + info.size;
        struct ipt_get_entries *entries = calloc(1, len);
        strcpy(entries->name, "filter");
        entries->size = info.size;
        OK(getsockopt(fd, IPPROTO_IP, IPT_SO_GET_ENTRIES, entries, &len));
        struct ipt_replace *replace = calloc(1, sizeof *replace + info.size);
        struct xt_counters *counters = malloc(info.num_entries * sizeof *counters);
        memset(counters, 0xee, info.num_entries * sizeof *counters);
        strcpy(replace->name, "filter");
        replace->valid_hooks = info.valid_hooks;
        replace->num_entries = info.num_entries;
        replace->size = info.size;
        memcpy(replace->hook_entry, info.hook_entry, sizeof replace->hook_entry);
        memcpy(replace->underflow, info.underflow, sizeof replace->underflow);
        replace->num_counters = info.num_entries;
        replace->counters = counters;
        memcpy(replace->entries, entries->entrytable, info.size);
        OK(setsockopt(fd, IPPROTO_IP, IPT_SO_SET_REPLACE, replace, sizeof *replace + info.size));
        CHECK(counters[0].pcnt == 0);
        keep(counters, info.num_entries * sizeof *counters);
    }
    say("counters\n");
}

int main(void)
{
    null = OK(open("/dev/null", O_WRONLY));
    test_extents();
    test_console();
    /* In a network of its own: nothing of the machine's is touched. */
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
        test_tunnel();
        test_counters();
    } else {
        say("tunnel\ncounters\n");
    }
    say("done\n");
    return 0;
}

/* Covers: setsockopt that writes back through a pointer in what it is given: replacing the tables of
 * netfilter returns the counters of those before.
 *
 * Hard for a recorder: the call's arguments do not say so. In a network namespace of its own; what
 * the machine does not allow (not root, no ip_tables) is left out. */
#include "check.h"
#include <netinet/in.h>
/* Behind the one before it, which has some of the same. */
#include <linux/netfilter_ipv4/ip_tables.h>
#include <sched.h>
#include <sys/socket.h>

static void replace(int fd, const struct ipt_getinfo *info)
{
    socklen_t len = sizeof(struct ipt_get_entries) + info->size;
    struct ipt_get_entries *entries = calloc(1, len);
    CHECK(entries);
    strcpy(entries->name, info->name);
    entries->size = info->size;
    OK(getsockopt(fd, IPPROTO_IP, IPT_SO_GET_ENTRIES, entries, &len));

    size_t size = sizeof(struct ipt_replace) + info->size;
    struct ipt_replace *fresh = calloc(1, size);
    struct xt_counters *counters = calloc(info->num_entries, sizeof *counters);
    CHECK(fresh && counters);
    memset(counters, 0xee, info->num_entries * sizeof *counters);
    strcpy(fresh->name, info->name);
    fresh->valid_hooks = info->valid_hooks;
    fresh->num_entries = fresh->num_counters = info->num_entries;
    fresh->size = info->size;
    memcpy(fresh->hook_entry, info->hook_entry, sizeof fresh->hook_entry);
    memcpy(fresh->underflow, info->underflow, sizeof fresh->underflow);
    fresh->counters = counters;
    memcpy(fresh->entries, entries->entrytable, info->size);
    OK(setsockopt(fd, IPPROTO_IP, IPT_SO_SET_REPLACE, fresh, size));
    for (unsigned i = 0; i < info->num_entries; i++)
        CHECK(counters[i].pcnt == 0 && counters[i].bcnt == 0);
    free(counters);
    free(fresh);
    free(entries);
}

int main(void)
{
    struct ipt_getinfo info = {.name = "filter"};
    socklen_t len = sizeof info;
    if (unshare(CLONE_NEWNET) == 0) {
        int fd = OK(socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
        if (getsockopt(fd, IPPROTO_IP, IPT_SO_GET_INFO, &info, &len) == 0)
            replace(fd, &info);
    }
    say("the counters came back\n");
    return 0;
}

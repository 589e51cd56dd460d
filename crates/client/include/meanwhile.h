/* For servers: whether a peer is halted by a debugger (Meanwhile), and what time it is for it.
 *
 * Link with libmeanwhile_client.so, or with libmeanwhile_client.a and -lpthread -ldl -lm. All times are of
 * CLOCK_MONOTONIC, in nanoseconds. The functions may be called by any thread. */
#ifndef MEANWHILE_H
#define MEANWHILE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A process under a debugger, as of one moment. */
struct meanwhile_peer;

/* What is known of a process, or of who is at the other end of a unix socket. 1: it is under a debugger, and *to
 * is what is known, to be given to meanwhile_free. 0: it is not, and *to is NULL. Negative: an error number. Only
 * the agent of the peer's own user is believed, and it answers that user and root. */
int meanwhile_peer(uint32_t pid, struct meanwhile_peer **to);
int meanwhile_peer_of(int socket, struct meanwhile_peer **to);
void meanwhile_free(struct meanwhile_peer *peer);

/* Whether it is halted, and the process that holds it so (0: none does). */
int meanwhile_is_halted(const struct meanwhile_peer *peer);
uint32_t meanwhile_debugger(const struct meanwhile_peer *peer);

/* What a clock of its shows at a moment of real time, and when it first showed a time, or will (UINT64_MAX: not
 * before it goes on). Of NULL, which is not under a debugger, both are the same. */
uint64_t meanwhile_logical(const struct meanwhile_peer *peer, uint64_t real);
uint64_t meanwhile_real(const struct meanwhile_peer *peer, uint64_t logical);

/* Real time, now. */
uint64_t meanwhile_now(void);

#ifdef __cplusplus
}
#endif

#endif

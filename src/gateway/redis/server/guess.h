/* guess.h - those who guess the password: they wait, others do not.
 *
 * (1) Whoever has failed from one place more often than FREE times within
 *     FORGET waits before the next password from there is even looked at,
 *     twice as long each time, up to two seconds. A place is a host (of IPv6 a
 *     network of 64 bits), on the unix socket a user.
 * (2) From one place no more than PLACE_WAITING wait at once, and no more than
 *     WAITING from all; the next is refused without being looked at. So a crowd
 *     gets no more guesses than these.
 * (3) Where very many places fail, all wait a little, a quarter of a second at
 *     the most; a place that has not failed is never refused.
 * (4) It takes the same time whether a password is right or wrong, and costs a
 *     fixed amount of memory: of PLACES places the one that failed least lately
 *     is forgotten first.
 *
 * Thread: any. */
#ifndef REEF_GATEWAY_REDIS_SERVER_GUESS_H
#define REEF_GATEWAY_REDIS_SERVER_GUESS_H

#include <stdbool.h>
#include <stdint.h>

struct redis_guesses;

/* -ENOMEM. */
int redis_guesses_create(struct redis_guesses **out);
void redis_guesses_destroy(struct redis_guesses *guesses); /* NULL is fine */

/* Where the other end of a connection is, as a number; is_unix: by its user. */
uint64_t redis_guess_place(int fd, bool is_unix);

struct redis_guess {
	uint64_t place;
	uint64_t until_ns; /* when it may be looked at */
	bool is_counted;   /* among those that wait */
};

/* Begin with a password from there: it may be looked at at out->until_ns. True:
 * redis_guess_end has to follow. False: it is refused. */
bool redis_guess_begin(struct redis_guesses *guesses, uint64_t place,
		       uint64_t now_ns, struct redis_guess *out);
/* Tell how it went; is_wrong: it was looked at, and is not the password. */
void redis_guess_end(struct redis_guesses *guesses,
		     const struct redis_guess *guess, uint64_t now_ns,
		     bool is_wrong);

#endif

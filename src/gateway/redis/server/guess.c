/* guess.c - see guess.h. */
#include "gateway/redis/server/guess.h"

#include "base/checksum.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define PLACES 1024u
#define FREE 4u		     /* failures of a place that cost nothing */
#define FORGET (60 * SECOND) /* after which a place is as new */
#define PLACE_WAITING 16u
#define WAITING 256u
#define DELAY_LEAST (10 * MS)
#define DELAY_MOST (2 * SECOND)
#define ALL_FREE 256u /* failures of all, fewer of them each second */
#define ALL_DELAY (250 * MS)

struct place {
	uint64_t name;	    /* 0: none */
	uint64_t failed_ns; /* when last */
	uint32_t failures, waiting;
};

struct redis_guesses {
	pthread_mutex_t lock;
	struct place places[PLACES];
	uint32_t waiting;
	uint32_t failures; /* of all; halved each second */
	uint64_t halved_ns;
};

int redis_guesses_create(struct redis_guesses **out)
{
	struct redis_guesses *guesses = calloc(1, sizeof(*guesses));

	if (!guesses)
		return -ENOMEM;
	pthread_mutex_init(&guesses->lock, NULL);
	*out = guesses;
	return 0;
}

void redis_guesses_destroy(struct redis_guesses *guesses)
{
	if (!guesses)
		return;
	pthread_mutex_destroy(&guesses->lock);
	free(guesses);
}

uint64_t redis_guess_place(int fd, bool is_unix)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} name;
	const uint8_t *six = name.six.sin6_addr.s6_addr;
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct ucred user = {0};
	socklen_t size = is_unix ? sizeof(user) : sizeof(name);
	uint64_t place = 0;

	memset(&name, 0, sizeof(name));
	if (is_unix) {
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size);
		place = reef_hash(&user.uid, sizeof(user.uid), AF_UNIX);
	} else if (!getpeername(fd, &name.any, &size)) {
		if (name.any.sa_family == AF_INET)
			place = reef_hash(&name.four.sin_addr, 4, AF_INET);
		else if (!memcmp(six, mapped, sizeof(mapped)))
			place = reef_hash(six + 12, 4, AF_INET);
		else
			place = reef_hash(six, 8, AF_INET6);
	}
	return place ? place : 1;
}

/* --- places --- */

static bool is_fresh(const struct place *place, uint64_t now_ns)
{
	return place->name && now_ns - place->failed_ns < FORGET;
}

/* A place that is known; NULL: it has not failed lately. */
static struct place *find_place(struct redis_guesses *guesses, uint64_t name,
				uint64_t now_ns)
{
	struct place *place = guesses->places;

	for (; place < guesses->places + PLACES; place++)
		if (place->name == name)
			return place->waiting || is_fresh(place, now_ns) ? place
									 : NULL;
	return NULL;
}

/* Make a place known, in place of the one that failed least lately. NULL: in
 * all of them somebody waits. */
static struct place *add_place(struct redis_guesses *guesses, uint64_t name)
{
	struct place *place = guesses->places, *oldest = NULL;

	for (; place < guesses->places + PLACES; place++) {
		if (place->name == name) {
			oldest = place;
			break;
		}
		if (!place->waiting &&
		    (!oldest || place->failed_ns < oldest->failed_ns))
			oldest = place;
	}
	if (oldest)
		*oldest = (struct place){.name = name};
	return oldest;
}

/* --- how long --- */

static uint64_t delay_of(const struct place *place)
{
	uint32_t over = place->failures < FREE ? 0 : place->failures - FREE + 1;

	if (!over)
		return 0;
	if (over > 16 || DELAY_LEAST << (over - 1) > DELAY_MOST)
		return DELAY_MOST;
	return DELAY_LEAST << (over - 1);
}

static uint64_t delay_of_all(struct redis_guesses *guesses, uint64_t now_ns)
{
	while (guesses->failures && now_ns - guesses->halved_ns >= SECOND) {
		guesses->failures /= 2;
		guesses->halved_ns += SECOND;
	}
	if (!guesses->failures)
		guesses->halved_ns = now_ns;
	return guesses->failures > ALL_FREE ? ALL_DELAY : 0;
}

bool redis_guess_begin(struct redis_guesses *guesses, uint64_t name,
		       uint64_t now_ns, struct redis_guess *out)
{
	uint64_t delay_ns;
	struct place *place;
	bool is_let = true;

	*out = (struct redis_guess){.place = name};
	pthread_mutex_lock(&guesses->lock);
	place = find_place(guesses, name, now_ns);
	delay_ns = delay_of_all(guesses, now_ns);
	if (place && place->failures) {
		if (delay_of(place) > delay_ns)
			delay_ns = delay_of(place);
		is_let = place->waiting < PLACE_WAITING &&
			 guesses->waiting < WAITING;
		place->waiting += is_let;
		guesses->waiting += is_let;
		out->is_counted = is_let;
	}
	pthread_mutex_unlock(&guesses->lock);
	out->until_ns = now_ns + delay_ns;
	return is_let;
}

void redis_guess_end(struct redis_guesses *guesses,
		     const struct redis_guess *guess, uint64_t now_ns,
		     bool is_wrong)
{
	struct place *place;

	pthread_mutex_lock(&guesses->lock);
	/* A place in which somebody waits is not forgotten. */
	place = find_place(guesses, guess->place, now_ns);
	if (guess->is_counted) {
		place->waiting--;
		guesses->waiting--;
	}
	if (is_wrong) {
		if (!place)
			place = add_place(guesses, guess->place);
		if (place) {
			place->failures += place->failures < UINT32_MAX;
			place->failed_ns = now_ns;
		}
		guesses->failures += guesses->failures < UINT32_MAX;
	}
	pthread_mutex_unlock(&guesses->lock);
}

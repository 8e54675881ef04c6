/* member.c - see member.h. */
#include "sync/member.h"

#include "sync/word.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WORDS ((SYNC_MEMBERS_MAX + 1) / 64)

struct members {
	uint32_t session;
	uint32_t count;
	uint64_t object;
	uint64_t taken[WORDS];
	struct members *next;
};

#define CHAINS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct members *chains[CHAINS]; /* locked */

static struct members **find_members(uint32_t session, uint64_t object)
{
	uint64_t mixed = (object ^ session) * UINT64_C(0x9e3779b97f4a7c15);
	struct members **at = &chains[mixed >> 56];

	while (*at && ((*at)->session != session || (*at)->object != object))
		at = &(*at)->next;
	return at;
}

static int take_lowest(struct members *members, uint16_t *member)
{
	uint32_t i, bit;

	for (i = 0; i < WORDS; i++) {
		if (!~members->taken[i])
			continue;
		bit = (uint32_t)__builtin_ctzll(~members->taken[i]);
		members->taken[i] |= UINT64_C(1) << bit;
		members->count++;
		*member = (uint16_t)(i * 64 + bit);
		return 0;
	}
	return -ENOSPC;
}

int sync_member_take(uint32_t session, uint64_t object, uint16_t *member)
{
	struct members **at;
	int rc = -ENOMEM;

	pthread_mutex_lock(&lock);
	at = find_members(session, object);
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (*at) {
			(*at)->session = session;
			(*at)->object = object;
			(*at)->taken[0] = 1; /* 0 is nobody */
		}
	}
	if (*at)
		rc = take_lowest(*at, member);
	pthread_mutex_unlock(&lock);
	return rc;
}

void sync_member_give(uint32_t session, uint64_t object, uint16_t member)
{
	struct members **at, *gone = NULL;

	pthread_mutex_lock(&lock);
	at = find_members(session, object);
	if (*at) {
		(*at)->taken[member / 64] &= ~(UINT64_C(1) << member % 64);
		if (!--(*at)->count) {
			gone = *at;
			*at = gone->next;
		}
	}
	pthread_mutex_unlock(&lock);
	free(gone);
}

/* barrier_world.h - members of a barrier in a simulated pool, and what must be
 * true of them.
 *
 * A guest is one open barrier, in a fiber; on a host with few of them with a
 * handle of its own. Who came to
 * which round stands in plain memory: it is all one process. */
#ifndef REEF_TESTS_BARRIER_WORLD_H
#define REEF_TESTS_BARRIER_WORLD_H

#define MEMBERS_MAX 16

#include "fabric/provider.h"
#include "pool_world.h"
#include "sync/barrier.h"

#define GUESTS_MAX 512
#define HANDLES_MAX 11 /* of a host; each takes a chunk of memory */

struct party;

struct guest {
	struct party *party;
	struct member *member;
	uint32_t index;
	struct reef *reef;
	struct reef_space *space;
	struct reef_barrier *barrier;
	uint64_t first;	 /* round; 0: it has not joined */
	uint64_t came;	 /* to that round */
	uint64_t passed; /* that round */
	uint64_t last;	 /* left after it; UINT64_MAX: it did not */
	bool excused;	 /* it may be dead */
	uint32_t told;	 /* how often of a death */
	uint32_t told_sessions[GUESTS_MAX > 16 ? 16 : GUESTS_MAX];
	int result; /* 1: it has not ended */
};

struct party {
	struct pool pool; /* first */
	struct guest guests[GUESTS_MAX];
	uint32_t count, hosts;
	uint32_t members_max, needed;
	enum barrier_mutant mutant;
	/* What befalls the last host, at its k-th batch; 0: nothing */
	uint64_t strike_at, strikes;
	bool strike_pauses, strike_before;
	bool struck, resumed;
	uint64_t stopped_ns; /* at least */
	uint32_t struck_session;
	uint64_t target;		    /* the round to end with */
	int (*fate)(struct member *member); /* one more host's; may be NULL */
	int (*script)(struct guest *guest);
	uint32_t phase[8]; /* how many have reached it */
	char wrong[256];   /* the first violation */
};

__attribute__((format(printf, 2, 3))) static inline void
party_wrong(struct party *party, const char *format, ...)
{
	va_list list;

	if (party->wrong[0])
		return;
	va_start(list, format);
	vsnprintf(party->wrong, sizeof(party->wrong), format, list);
	va_end(list);
	party->pool.over = true;
}

static inline int guest_open(struct guest *guest)
{
	struct party *party = guest->party;
	struct reef_barrier_options options = {.members_max =
						       party->members_max};
	uint32_t tries = 0;
	int rc;

	/* Many that make it at the same time are another matter. */
	while (guest->index && party->count > 16 && !party->guests[0].first)
		TRY(reef_sleep(MILLISECOND));
	/* While the broker has lost its links to all nodes, there is no memory
	 * to be had. */
	while ((rc = reef_barrier_open(guest->space, "barrier", &options,
				       party->needed, &guest->barrier)) ==
		       -ENOSPC &&
	       party->pool.lose_link_ppm && tries++ < 100)
		TRY(reef_sleep(10 * MILLISECOND));
	TRY(rc);
	barrier_set_mutant(guest->barrier, party->mutant);
	guest->last = UINT64_MAX;
	guest->came = guest->passed = reef_barrier_round(guest->barrier);
	guest->first = guest->passed + 1;
	return 0;
}

static inline void guest_close(struct guest *guest)
{
	reef_barrier_close(guest->barrier);
	guest->barrier = NULL;
}

/* Nobody passes a round before all who take part in it have come to it. */
static inline void guest_check(struct guest *guest)
{
	struct party *party = guest->party;
	uint64_t round = reef_barrier_round(guest->barrier);
	uint32_t i;

	if (round != guest->passed + 1)
		party_wrong(party, "guest %u passed %llu after %llu",
			    guest->index, (unsigned long long)round,
			    (unsigned long long)guest->passed);
	guest->passed = round;
	if (guest->excused)
		return; /* it does not know that it is dead */
	for (i = 0; i < party->count; i++) {
		const struct guest *other = &party->guests[i];

		if (other->first && other->first <= round &&
		    round <= other->last && !other->excused &&
		    other->came < round)
			party_wrong(party,
				    "guest %u passed %llu before %u came",
				    guest->index, (unsigned long long)round, i);
	}
}

/* One round, however often it takes; deaths are noted. */
static inline int guest_meet(struct guest *guest, uint64_t timeout_ns)
{
	enum reef_session_view view;
	uint32_t dead = 0;
	int rc;

	guest->came = guest->passed + 1;
	for (;;) {
		dead = 0;
		rc = reef_barrier_wait(guest->barrier, timeout_ns, &dead);
		if (rc == -REEF_EMEMBER) {
			if (reef_session_look(guest->reef, dead, &view) == 0 &&
			    view != REEF_VIEW_ENDED)
				party_wrong(guest->party, "%08x is not fenced",
					    dead);
			if (guest->told < 16)
				guest->told_sessions[guest->told] = dead;
			guest->told++;
		} else if (rc != -ETIMEDOUT) {
			break;
		} else if (reef_sleep(100000)) {
			return -REEF_EHOSTDEAD;
		}
		if (guest->party->wrong[0])
			return -EXDEV;
	}
	if (!rc)
		guest_check(guest);
	return rc;
}

/* Until all are here. */
static inline int guest_gather(struct guest *guest, uint32_t phase)
{
	struct party *party = guest->party;

	party->phase[phase]++;
	while (party->phase[phase] < party->count && !party->wrong[0])
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static inline int guest_main(void *arg)
{
	struct guest *guest = arg;
	int rc = guest_open(guest);

	if (!rc)
		rc = guest->party->script(guest);
	guest_close(guest);
	guest->result = rc;
	return rc;
}

static inline int handle_open(struct member *member, struct reef **reef,
			      struct reef_space **space)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};

	TRY(reef_client_handle(member->client, reef));
	TRY(reef_space_open(*reef, "space", &options, space));
	return 0;
}

/* All guests of a host, one fiber each. */
static inline int party_host(struct member *member)
{
	struct party *party = (struct party *)member->pool;
	struct reef_fiber *fibers[GUESTS_MAX] = {0};
	struct reef *handles[HANDLES_MAX] = {0};
	struct reef_space *spaces[HANDLES_MAX] = {0};
	uint32_t i, at = member->number - 1;
	int rc = 0, one, joined;

	if (member->number == party->hosts)
		party->struck_session = reef_session(member->reef);
	for (i = at; i < party->count && !rc; i += party->hosts) {
		struct guest *guest = &party->guests[i];
		uint32_t handle = i / party->hosts % HANDLES_MAX;

		if (!handles[handle])
			rc = handle_open(member, &handles[handle],
					 &spaces[handle]);
		if (rc)
			break;
		guest->reef = handles[handle];
		guest->space = spaces[handle];
		guest->party = party;
		guest->member = member;
		guest->index = i;
		rc = reef_fiber_spawn(reef_fiber_sched(), guest_main, guest,
				      &fibers[i]);
	}
	for (i = 0; i < party->count; i++)
		if (fibers[i]) {
			joined = reef_fiber_join(fibers[i], &one);
			rc = rc ? rc : joined;
			rc = rc ? rc : one;
		}
	/* Whoever would resume it may be gone. */
	if (member->number == party->hosts)
		party->strike_at = 0;
	for (i = 0; i < HANDLES_MAX; i++)
		reef_close(handles[i]);
	/* It was stopped for too long. */
	return rc == -REEF_EFENCED && party->guests[at].excused ? 0 : rc;
}

/* --- what befalls a host --- */

struct strike_layer {
	struct reef_layer layer;
	struct member *member;
};

static inline void strike(struct member *member)
{
	struct party *party = (struct party *)member->pool;
	uint32_t i;

	party->struck = true;
	for (i = member->number - 1; i < party->count; i += party->hosts)
		party->guests[i].excused = true;
	if (party->strike_pauses)
		reef_sim_host_pause(member->host);
	else
		reef_sim_host_kill(member->host);
}

static inline int strike_post(struct reef_layer *layer,
			      struct reef_queue *queue,
			      struct reef_batch *batch)
{
	struct reef_layer *next = layer->next;
	struct member *member = ((struct strike_layer *)layer)->member;
	struct party *party = (struct party *)member->pool;
	bool due = member->number == party->hosts && !party->struck &&
		   party->struck_session &&
		   ++party->strikes == party->strike_at;
	int rc;

	if (due && party->strike_before)
		strike(member);
	rc = next->ops.post(next, queue, batch);
	if (due && !party->strike_before)
		strike(member);
	return rc;
}

static inline void strike_close(struct reef_layer *layer)
{
	struct reef_layer *next = layer->next;

	free(layer);
	next->ops.close(next);
}

static inline int strike_opened(struct member *member,
				struct reef_fabric *fabric)
{
	static const struct reef_fabric_ops ops = {
		.name = "strike",
		.close = strike_close,
		.post = strike_post,
	};
	struct strike_layer *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->member = member;
	self->layer.ops = ops;
	reef_fabric_push(fabric, &self->layer);
	return 0;
}

/* 0, or what was not right. */
static inline int party_run(struct party *party, uint64_t seed)
{
	uint32_t i;
	int rc;

	if (!party->hosts)
		party->hosts = party->count < 6 ? party->count : 6;
	pool_start(&party->pool, seed);
	for (i = 0; i < party->count; i++)
		party->guests[i].result = 1;
	if (party->strike_at)
		party->pool.opened = strike_opened;
	for (i = 0; i < party->hosts; i++)
		pool_add(&party->pool, party_host);
	if (party->fate)
		pool_add(&party->pool, party->fate);
	rc = pool_end(&party->pool);
	if (party->wrong[0]) {
		if (!pool_quiet)
			print_message("seed %llu: %s\n",
				      (unsigned long long)seed, party->wrong);
		return -EXDEV;
	}
	return rc;
}

#endif

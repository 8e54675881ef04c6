/* pool_world.h - a simulated pool of real parts: a broker, two nodes, and
 * clients that do what a test tells them.
 *
 * Nothing is asserted inside a fiber: a script returns an error, with WANT
 * -EXDEV and a line on what was not so, and the test looks at it when the run
 * is over. */
#ifndef REEF_TESTS_POOL_WORLD_H
#define REEF_TESTS_POOL_WORLD_H

#include "base/log.h"
#include "base/store.h"
#include "fabric/hook/count.h"
#include "fabric/sim/sim.h"
#include "pool/broker/broker.h"
#include "pool/client/client.h"
#include "pool/keys.h"
#include "pool/mesh.h"
#include "pool/node/node.h"
#include "seeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define MILLISECOND 1000000ull
#define MIB (1ull << 20)
#define TTL (200 * MILLISECOND)
#define BROKER "sim:broker/1"
#define NODES 2
#ifndef MEMBERS_MAX
#define MEMBERS_MAX 4
#endif

#define TRY(call)                                                              \
	do {                                                                   \
		int try_rc = (call);                                           \
		if (try_rc) {                                                  \
			if (try_rc != -REEF_EHOSTDEAD && !pool_quiet)          \
				print_message("%s:%d: %s: %s\n", __FILE__,     \
					      __LINE__, #call,                 \
					      reef_error_name(try_rc));        \
			return try_rc;                                         \
		}                                                              \
	} while (0)

#define WANT(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			if (!pool_quiet)                                       \
				print_message("%s:%d: %s\n", __FILE__,         \
					      __LINE__, #condition);           \
			return -EXDEV;                                         \
		}                                                              \
	} while (0)

/* -EXDEV: it returned something else. */
#define WANT_RC(call, wanted)                                                  \
	do {                                                                   \
		int want_rc = (call);                                          \
		if (want_rc != (wanted)) {                                     \
			if (!pool_quiet)                                       \
				print_message("%s:%d: %s: %s\n", __FILE__,     \
					      __LINE__, #call,                 \
					      reef_error_name(want_rc));       \
			return -EXDEV;                                         \
		}                                                              \
	} while (0)

static bool pool_quiet; /* a mutant is about: it is to be found */

/* The first and last seed that a test takes; REEF_SEED: only that, and with the
 * parts' log. */
static inline uint64_t pool_first_seed(void)
{
	const char *seed = getenv("REEF_SEED");

	if (seed)
		reef_log_set(reef_log_to_stream, stderr, REEF_LOG_DEBUG);
	return seed ? strtoull(seed, NULL, 10) : 1;
}

static inline uint64_t pool_last_seed(void)
{
	const char *seed = getenv("REEF_SEED");

	if (seed)
		return strtoull(seed, NULL, 10);
	return seeds_of(5, 200);
}

struct pool;

/* A process that joins. */
struct member {
	struct pool *pool;
	uint32_t number; /* from 1 */
	struct reef_sim_host *host;
	int (*script)(struct member *member);
	int result; /* of the script; 1: it has not ended */
	struct reef_mesh *mesh;
	struct reef_client *client;
	struct reef *reef;
	struct reef_count count;
	struct reef_credential credential;
};

struct lender {
	struct pool *pool;
	uint32_t number;
	struct reef_sim_host *host;
	struct reef_node *node;
};

struct pool {
	struct reef_sim *sim;
	struct reef_key key;
	uint64_t ttl_ns, node_ttl_ns, extent_size, capacity;
	uint32_t lose_link_ppm, drift_max_ppm;
	bool calm;
	enum reef_client_mutant mutant;
	uint32_t heap_mutant, inbox_links_max;
	uint64_t seed;
	struct reef_sim_host *host;
	struct reef_broker *broker; /* NULL: not serving */
	struct lender lenders[NODES];
	struct member members[MEMBERS_MAX];
	uint32_t count;
	bool over;
	/* A hook of the test's own, on top of the counters; optional. */
	int (*opened)(struct member *member, struct reef_fabric *fabric);
	uint64_t note[8];
};

static inline int pool_broker_main(struct reef_sim_host *host, void *arg)
{
	struct reef_mesh_options mesh = {.kinds = "sim"};
	struct pool *pool = arg;
	struct reef_broker_options options = {
		.store = reef_sim_host_store(host),
		.key = &pool->key,
		.listen = BROKER,
		.sync_inline = true,
		.ttl_ns = pool->ttl_ns,
		.node_ttl_ns = pool->node_ttl_ns,
		.extent_size = pool->extent_size,
		.seed = 1 + reef_random_below(reef_sim_host_random(host), 999),
	};
	struct reef_broker *broker = NULL;
	int rc;

	rc = reef_mesh_open(&mesh, &options.mesh);
	if (rc)
		return rc;
	rc = reef_broker_start(&options, &broker);
	if (!rc)
		pool->broker = broker;
	while (!rc && !pool->over)
		rc = reef_sleep(MILLISECOND);
	if (pool->broker == broker)
		pool->broker = NULL;
	reef_broker_stop(broker);
	reef_mesh_close(options.mesh);
	return rc;
}

static inline int pool_node_main(struct reef_sim_host *host, void *arg)
{
	struct reef_mesh_options mesh = {.kinds = "sim"};
	struct lender *lender = arg;
	char listen[32], name[16];
	struct reef_node_options options = {
		.key = &lender->pool->key,
		.broker = BROKER,
		.listen = listen,
		.name = name,
		.capacity = lender->pool->capacity,
		.simulated = true,
		.seed = 1 + reef_random_next(reef_sim_host_random(host)) / 2,
	};
	struct reef_node *node = NULL;
	int rc;

	snprintf(listen, sizeof(listen), "sim:node%u/1", lender->number);
	snprintf(name, sizeof(name), "node%u", lender->number);
	rc = reef_mesh_open(&mesh, &options.mesh);
	if (rc)
		return rc;
	rc = reef_node_start(&options, &node);
	if (!rc)
		lender->node = node;
	while (!rc && !lender->pool->over)
		rc = reef_sleep(MILLISECOND);
	if (lender->node == node)
		lender->node = NULL;
	reef_node_stop(node);
	reef_mesh_close(options.mesh);
	return rc;
}

/* --- members --- */

static inline int count_opened(void *context, struct reef_fabric *fabric)
{
	struct member *member = context;
	int rc = reef_count_push(fabric, &member->count);

	if (!rc && member->pool->opened)
		rc = member->pool->opened(member, fabric);
	return rc;
}

static inline int member_wait(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_node_status status;
	uint32_t i = 0;

	while (i < NODES) {
		if (pool->lenders[i].node) {
			reef_node_status(pool->lenders[i].node, &status);
			if (status.id && !status.link) {
				i++;
				continue;
			}
		}
		if (reef_sleep(MILLISECOND))
			return -REEF_EHOSTDEAD;
	}
	return 0;
}

static inline int member_join(struct member *member)
{
	struct reef_client_options options = {
		.mesh = member->mesh,
		.sched = reef_fiber_sched(),
		.broker = BROKER,
		.credential = &member->credential,
		.name = "test",
		.seed = 1 + member->number,
		.mutant = member->pool->mutant,
		.heap_mutant = member->pool->heap_mutant,
		.inbox_links_max = member->pool->inbox_links_max,
	};

	TRY(reef_client_create(&options, &member->client));
	TRY(reef_client_handle(member->client, &member->reef));
	return 0;
}

static inline void member_leave(struct member *member)
{
	reef_close(member->reef);
	reef_client_unref(member->client);
	member->reef = NULL;
	member->client = NULL;
}

static inline int member_main(struct reef_sim_host *host, void *arg)
{
	struct member *member = arg;
	struct reef_mesh_options options = {
		.kinds = "sim",
		.opened = count_opened,
		.context = member,
	};
	bool over = true;
	uint32_t i;
	int rc;

	rc = reef_mesh_open(&options, &member->mesh);
	if (!rc)
		rc = member_wait(member);
	if (!rc)
		rc = member_join(member);
	if (!rc)
		rc = member->script(member);
	member_leave(member);
	reef_mesh_close(member->mesh);
	member->mesh = NULL;
	member->result = rc;
	for (i = 0; i < member->pool->count; i++)
		over &= member->pool->members[i].result != 1;
	if (over || (rc && rc != -REEF_EHOSTDEAD))
		member->pool->over = true;
	return rc;
}

static inline void pool_start(struct pool *pool, uint64_t seed)
{
	struct reef_sim_options options = {
		.seed = seed,
		.lose_link_ppm = pool->lose_link_ppm,
		.drift_max_ppm = pool->drift_max_ppm,
		.calm = pool->calm,
	};
	uint32_t i;
	char name[16];

	pool->seed = seed;
	memset(pool->key.bytes, 42, sizeof(pool->key.bytes));
	if (!pool->ttl_ns)
		pool->ttl_ns = TTL;
	if (!pool->node_ttl_ns)
		pool->node_ttl_ns = 400 * MILLISECOND;
	if (!pool->extent_size)
		pool->extent_size = 4 * MIB;
	if (!pool->capacity)
		pool->capacity = 32 * MIB;
	assert_int_equal(reef_sim_create(&options, &pool->sim), 0);
	assert_int_equal(reef_sim_host_add(pool->sim, "broker",
					   pool_broker_main, pool, &pool->host),
			 0);
	for (i = 0; i < NODES; i++) {
		pool->lenders[i] = (struct lender){pool, i + 1, NULL, NULL};
		snprintf(name, sizeof(name), "node%u", i + 1);
		assert_int_equal(reef_sim_host_add(pool->sim, name,
						   pool_node_main,
						   &pool->lenders[i],
						   &pool->lenders[i].host),
				 0);
	}
}

static inline struct member *pool_add(struct pool *pool,
				      int (*script)(struct member *member))
{
	struct member *member = &pool->members[pool->count++];
	char name[16];

	member->pool = pool;
	member->number = pool->count;
	member->script = script;
	member->result = 1;
	assert_int_equal(
		reef_key_derive_user(&pool->key, 0, 0, &member->credential.key),
		0);
	snprintf(name, sizeof(name), "member%u", member->number);
	assert_int_equal(reef_sim_host_add(pool->sim, name, member_main, member,
					   &member->host),
			 0);
	return member;
}

/* Run it to its end: what went wrong, or 0. Who was killed went well. */
static inline int pool_end(struct pool *pool)
{
	int rc = reef_sim_run(pool->sim, 300 * SECOND);
	uint32_t i;

	reef_sim_destroy(pool->sim);
	for (i = 0; i < pool->count && !rc; i++)
		if (pool->members[i].result != -REEF_EHOSTDEAD)
			rc = pool->members[i].result;
	if (rc && !pool_quiet)
		print_message("seed %llu\n", (unsigned long long)pool->seed);
	return rc;
}

static inline void pool_finish(struct pool *pool)
{
	assert_int_equal(pool_end(pool), 0);
}

/* One script or two, for every seed; with links that fall, under leases that
 * outlast it. */
static inline void pool_run_lossy(uint32_t lose_link_ppm,
				  int (*first)(struct member *),
				  int (*second)(struct member *))
{
	uint64_t seed;

	for (seed = pool_first_seed(); seed <= pool_last_seed(); seed++) {
		struct pool pool = {.lose_link_ppm = lose_link_ppm};

		if (lose_link_ppm) {
			pool.node_ttl_ns = 60 * SECOND;
			pool.ttl_ns = 60 * SECOND;
		}
		pool_start(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
}

/* Two scripts, with a mutant: some seed must find it. */
static inline void pool_find(enum reef_client_mutant mutant,
			     uint32_t lose_link_ppm,
			     int (*first)(struct member *member),
			     int (*second)(struct member *member))
{
	bool found = false;
	uint64_t seed;

	pool_quiet = true;
	for (seed = 1; seed <= 20 && !found; seed++) {
		struct pool pool = {
			.mutant = mutant,
			.lose_link_ppm = lose_link_ppm,
		};

		pool_start(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		found = pool_end(&pool) != 0;
	}
	pool_quiet = false;
	assert_true(found);
}

static inline int member_space(struct member *member, struct reef_space **out)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};

	return reef_space_open(member->reef, "space", &options, out);
}

#endif

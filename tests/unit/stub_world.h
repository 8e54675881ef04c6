/* stub_world.h - a simulated pool for tests of the broker's memory: the real
 * broker, stub nodes, and a driver that does what a test tells it.
 *
 * A stub node speaks as a node does, and lends one number per extent instead of
 * memory: `value`, which clients raise where their key still opens it. So that
 * what a move or a restart loses can be counted.
 *
 * Nothing is asserted inside a fiber: scripts return what went wrong, and the
 * test looks when the run is over. */
#ifndef REEF_TESTS_STUB_WORLD_H
#define REEF_TESTS_STUB_WORLD_H

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "pool/broker/broker.h"
#include "pool/broker/state/state.h"
#include "pool/keys.h"
#include "pool/rpc.h"

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
#define STUBS_MAX 12
#define STUB_EXTENTS 512
#define NODE_TTL (200 * MILLISECOND)

static int wrong_line; /* the first WANT that did not hold */

#define WANT(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			if (!wrong_line)                                       \
				wrong_line = __LINE__;                         \
			return -EXDEV;                                         \
		}                                                              \
	} while (0)
#define TRY(call)                                                              \
	do {                                                                   \
		int try_rc = (call);                                           \
		if (try_rc) {                                                  \
			if (!wrong_line)                                       \
				wrong_line = __LINE__;                         \
			return try_rc;                                         \
		}                                                              \
	} while (0)

struct pool;

struct stub_extent {
	uint32_t number, era;
	uint64_t size, value, key, read_key;
	bool closed;
};

/* A stub between its start and its death; kept until the test is over, because
 * what is left of a killed host still looks at it. */
struct stub_life {
	struct stub *stub;
	uint64_t incarnation;
	uint32_t id;
	bool ready;
	struct stub_extent extents[STUB_EXTENTS];
	uint32_t count;
	uint32_t fences; /* rows and calls */
	uint32_t last_fenced;
	uint32_t creates, drops;
	uint32_t pulls[64]; /* under way, by number */
	struct stub_life *before;
};

struct stub {
	struct pool *pool;
	char name[16];
	struct reef_sim_host *host;
	uint64_t capacity;
	struct stub_life *life; /* the last one */
	/* What the test wants of it. */
	bool leave;	       /* no link to the broker */
	uint32_t rests;	       /* none either, for so many turns */
	bool mute;	       /* a link, but no pulse */
	bool hidden;	       /* never begins */
	bool stays_unready;    /* never says READY */
	int refuses_create;    /* with this */
	int refuses_pull;      /* with this */
	uint64_t slow_drop_ns; /* how long one takes */
	bool ends_broker;      /* right after a pull, before its answer */
	bool forgets;	       /* tells of no extents */
	uint64_t limit;	       /* what is over it, it wants back; 0: none */
	bool killed;	       /* at any time */
	int refused;	       /* what REGISTER said last */
};

struct pool {
	struct reef_sim *sim;
	struct reef_key key;
	uint64_t seed;
	struct reef_broker_options options;
	struct reef_sim_host *broker_host, *driver_host;
	struct reef_broker *broker;
	uint32_t starts;
	bool over;
	uint64_t next_key;
	struct stub stubs[STUBS_MAX];
	uint32_t stubs_count;
	/* The driver. */
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct driver {
		struct pool *pool;
		uint32_t user, era, provisional, session, sequence;
		struct reef_key key;
		struct reef_peer *peer;
		uint8_t secret[32];
	} owner, guest;
	int (*script)(struct pool *pool);
	int result;
};

/* --- the broker --- */

static inline int pool_broker_main(struct reef_sim_host *host, void *arg)
{
	struct pool *pool = arg;
	struct reef_mesh_options mesh_options = {
		.kinds = "sim",
		.fabric = {.sim_host = host, .message_max = 8192},
	};
	struct reef_broker_options options = pool->options;
	struct reef_broker *broker = NULL;
	struct reef_mesh *mesh = NULL;
	int rc = reef_mesh_open(&mesh_options, &mesh);

	options.mesh = mesh;
	options.store = reef_sim_host_store(host);
	options.key = &pool->key;
	options.listen = "sim:broker/1";
	options.sync_inline = true;
	options.seed = pool->seed + ++pool->starts;
	if (!options.ttl_ns)
		options.ttl_ns = 86400 * SECOND;
	if (!options.node_ttl_ns)
		options.node_ttl_ns = NODE_TTL;
	if (!options.extent_size)
		options.extent_size = MIB;
	if (rc == 0)
		rc = reef_broker_start(&options, &broker);
	if (rc == 0)
		pool->broker = broker;
	while (rc == 0 && !pool->over)
		rc = reef_sleep(MILLISECOND);
	if (pool->broker == broker)
		pool->broker = NULL;
	reef_broker_stop(broker);
	reef_mesh_close(mesh);
	return rc;
}

static inline int pool_broker_restart(struct pool *pool)
{
	reef_sim_host_kill(pool->broker_host);
	pool->broker = NULL;
	return reef_sim_host_restart(pool->broker_host, pool_broker_main, pool);
}

/* --- stub nodes --- */

static inline struct stub_extent *stub_find(struct stub_life *life,
					    uint32_t number)
{
	for (uint32_t i = 0; i < life->count; i++)
		if (life->extents[i].number == number)
			return &life->extents[i];
	return NULL;
}

static inline struct stub_extent *stub_insert(struct stub_life *life,
					      const struct reef_body *body)
{
	struct stub_extent *extent = &life->extents[life->count++];

	reef_assert(life->count < STUB_EXTENTS);
	*extent = (struct stub_extent){
		.number = body->extent,
		.era = body->era,
		.size = body->size,
		.key = ++life->stub->pool->next_key,
	};
	return extent;
}

static inline uint64_t stub_lent(const struct stub_life *life)
{
	uint64_t lent = 0;

	for (uint32_t i = 0; i < life->count; i++)
		lent += life->extents[i].size;
	return lent;
}

/* Whoever has an extent behind this key. */
static inline struct stub_extent *pool_behind(struct pool *pool, uint64_t key)
{
	for (uint32_t i = 0; i < pool->stubs_count; i++) {
		struct stub_life *life = pool->stubs[i].life;

		for (uint32_t j = 0; life && j < life->count; j++)
			if (life->extents[j].key == key ||
			    life->extents[j].read_key == key)
				return &life->extents[j];
	}
	return NULL;
}

/* Some time between two moments of a copy or a withdrawal. */
static inline int stub_take_time(struct stub *stub)
{
	return reef_sleep(reef_random_below(reef_sim_random(stub->pool->sim),
					    2 * MILLISECOND));
}

static inline int stub_pull(struct stub_life *life,
			    const struct reef_body *body, uint64_t *key)
{
	struct pool *pool = life->stub->pool;
	struct stub_extent *source, *extent;
	uint64_t value;
	int rc;

	if (life->stub->refuses_pull)
		return life->stub->refuses_pull;
	extent = stub_find(life, body->extent);
	if (extent && extent->era == body->era) {
		*key = extent->key;
		return 0;
	}
	source = pool_behind(pool, body->keys[0]);
	if (!source)
		return -REEF_EKEY;
	value = source->value;
	life->pulls[body->extent % 64]++;
	rc = stub_take_time(life->stub);
	life->pulls[body->extent % 64]--;
	if (rc)
		return rc;
	source = pool_behind(pool, body->keys[0]);
	if (!source && pool->options.mutant == REEF_BROKER_MUTANT_NONE)
		return -REEF_EKEY;
	extent = stub_find(life, body->extent);
	if (!extent)
		extent = stub_insert(life, body);
	extent->era = body->era;
	extent->value = value;
	*key = extent->key;
	return 0;
}

static inline void stub_drop(struct stub_life *life, uint32_t number)
{
	struct stub_extent *extent = stub_find(life, number);

	life->drops++;
	if (extent)
		*extent = life->extents[--life->count];
}

static inline int stub_handle(void *context, const struct reef_request *request,
			      struct reef_body *answer,
			      struct reef_cursor_out *room)
{
	struct stub_life *life = context;
	const struct reef_body *body = &request->body;
	struct pool *pool = life->stub->pool;
	struct stub_extent *extent = stub_find(life, body->extent);
	int rc = stub_take_time(life->stub);

	if (rc)
		return rc;
	extent = stub_find(life, body->extent);
	reef_log(REEF_LOG_DEBUG, "stub", "%s: %s extent %u era %u",
		 life->stub->name, reef_pool_kind_name(request->header.kind),
		 body->extent, body->era);
	switch (request->header.kind) {
	case REEF_POOL_EXTENT_CREATE:
		life->creates++;
		if (life->stub->refuses_create)
			return life->stub->refuses_create;
		if (!extent &&
		    stub_lent(life) + body->size > life->stub->capacity)
			return -ENOSPC;
		if (!extent)
			extent = stub_insert(life, body);
		answer->keys[0] = extent->key;
		return 0;
	case REEF_POOL_EXTENT_DROP:
		/* One thing at a time. */
		while (rc == 0 && life->pulls[body->extent % 64])
			rc = reef_sleep(100000);
		if (rc == 0)
			rc = reef_sleep(life->stub->slow_drop_ns);
		if (rc)
			return rc;
		stub_drop(life, body->extent);
		return 0;
	case REEF_POOL_EXTENT_CLOSE:
		if (!extent)
			return -ENOENT;
		if (!extent->closed)
			extent->read_key = ++pool->next_key;
		extent->closed = true;
		extent->key = 0;
		answer->keys[0] = extent->read_key;
		return 0;
	case REEF_POOL_EXTENT_REOPEN:
		if (!extent)
			return -ENOENT;
		if (extent->closed)
			extent->key = ++pool->next_key;
		extent->closed = false;
		extent->read_key = 0;
		extent->era = body->era;
		answer->keys[0] = extent->key;
		return 0;
	case REEF_POOL_EXTENT_PULL:
		rc = stub_pull(life, body, &answer->keys[0]);
		if (rc == 0 && life->stub->ends_broker && pool->broker) {
			reef_sim_host_kill(pool->broker_host);
			pool->broker = NULL;
		}
		return rc;
	case REEF_POOL_FENCE:
		life->fences++;
		life->last_fenced = body->session;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static inline int stub_register(struct stub_life *life, struct reef_peer *peer)
{
	struct stub *stub = life->stub;
	char address[32];
	struct reef_body body = {
		.name = {stub->name, (uint16_t)strlen(stub->name)},
		.incarnation = life->incarnation,
		.domain = 1,
		.size = stub->capacity,
	};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row;
	int rc;

	snprintf(address, sizeof(address), "sim:%s/1",
		 reef_sim_host_name(stub->host));
	body.addresses = (struct reef_text){address, (uint16_t)strlen(address)};
	rc = reef_rpc_call(peer, REEF_POOL_NODE_REGISTER, 0, &body, &answer,
			   NODE_TTL / 4);
	stub->refused = rc;
	if (rc)
		return rc;
	life->id = answer.body.node;
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while (reef_row_decode(&in, &row) > 0) {
		life->fences++;
		life->last_fenced = row.session;
	}
	reef_answer_free(&answer);
	return 0;
}

static inline int stub_tell(struct stub_life *life, struct reef_peer *peer)
{
	struct reef_cursor_out rows = {0};
	struct reef_body body = {0};
	int rc = 0;

	for (uint32_t i = 0; i < life->count && !life->stub->forgets; i++) {
		struct stub_extent *extent = &life->extents[i];
		struct reef_row row = {
			.row = REEF_ROW_EXTENT,
			.extent = extent->number,
			.node = life->id,
			.era = extent->era,
			.size = extent->size,
			.state = extent->closed ? REEF_EXTENT_MOVING
						: REEF_EXTENT_LIVE,
			.keys = {extent->closed ? extent->read_key
						: extent->key},
		};

		reef_row_encode(&row, &rows);
	}
	body.rows = rows.bytes;
	body.rows_size = rows.size;
	if (rows.size)
		rc = reef_rpc_call(peer, REEF_POOL_NODE_EXTENTS, 0, &body, NULL,
				   NODE_TTL / 4);
	free(rows.bytes);
	if (rc == 0 && !life->stub->stays_unready)
		rc = reef_rpc_call(peer, REEF_POOL_NODE_READY, 0, NULL, NULL,
				   NODE_TTL / 4);
	return rc;
}

static inline uint64_t stub_over(const struct stub_life *life)
{
	uint64_t lent = stub_lent(life);

	return life->stub->limit && lent > life->stub->limit
		       ? lent - life->stub->limit
		       : 0;
}

/* Until the link is lost. */
static inline int stub_stay(struct stub_life *life, struct reef_peer *peer)
{
	struct stub *stub = life->stub;
	struct reef_body body = {.incarnation = life->incarnation};
	int rc = 0;

	while (rc == 0 && peer->link && !stub->pool->over && !stub->leave &&
	       !stub->rests) {
		body.generation = stub_over(life);
		if (!stub->mute)
			rc = reef_rpc_call(peer, REEF_POOL_NODE_PULSE, 0, &body,
					   NULL, NODE_TTL / 4);
		if (rc == 0)
			rc = reef_sleep(NODE_TTL / 8);
	}
	return rc;
}

static inline struct stub_life *stub_begin(struct stub *stub)
{
	struct stub_life *life = calloc(1, sizeof(*life));

	reef_assert(life);
	life->stub = stub;
	life->incarnation = reef_random_next(reef_sim_random(stub->pool->sim));
	life->before = stub->life;
	stub->life = life;
	return life;
}

/* As a node. */
static inline int stub_connect(struct pool *pool, uint32_t number,
			       struct reef_rpc *rpc, struct reef_peer **peer)
{
	struct reef_connect_options options = {
		.session = 0x80000001u + (number << 16),
		.identity = "node",
		.timeout_ns = NODE_TTL / 8,
	};
	struct reef_key key;

	if (reef_key_derive_node(&pool->key, &key))
		return -ENOMEM;
	memcpy(options.key, key.bytes, sizeof(key.bytes));
	return reef_rpc_connect(rpc, "sim:broker/1", 0, &options, peer, NULL);
}

static inline int stub_main(struct reef_sim_host *host, void *arg)
{
	struct stub *stub = arg;
	struct pool *pool = stub->pool;
	struct stub_life *life = stub_begin(stub);
	struct reef_mesh_options mesh_options = {
		.kinds = "sim",
		.fabric = {.sim_host = host, .message_max = 8192},
	};
	struct reef_rpc_options options = {.handle = stub_handle,
					   .context = life};
	struct reef_mesh *mesh = NULL;
	struct reef_port *port = NULL;
	struct reef_rpc *rpc = NULL;
	struct reef_peer *peer;
	int rc = reef_mesh_open(&mesh_options, &mesh);

	if (rc == 0)
		rc = reef_port_open(mesh, NULL, &port);
	if (rc == 0)
		rc = reef_rpc_create(port, &options, &rpc);
	while (rc == 0 && !pool->over) {
		peer = NULL;
		rc = -EAGAIN;
		if (stub->rests)
			stub->rests--;
		else if (!stub->leave)
			rc = stub_connect(pool, (uint32_t)(stub - pool->stubs),
					  rpc, &peer);
		if (rc == 0)
			rc = stub_register(life, peer);
		if (rc == -ESTALE) {
			/* Taken for dead: as another from now on. */
			life->incarnation++;
			life->count = 0;
		}
		if (rc == 0)
			rc = stub_tell(life, peer);
		life->ready = rc == 0;
		if (rc == 0)
			rc = stub_stay(life, peer);
		life->ready = false;
		reef_log(REEF_LOG_DEBUG, "stub", "%s: %s", stub->name,
			 reef_error_text(rc));
		reef_peer_close(peer);
		rc = reef_sleep(10 * MILLISECOND);
	}
	reef_rpc_destroy(rpc);
	reef_port_close(port);
	reef_mesh_close(mesh);
	return 0;
}

static inline int stub_kill(struct stub *stub)
{
	stub->killed = true;
	stub->life->ready = false;
	stub->life->count = 0;
	reef_sim_host_kill(stub->host);
	return 0;
}

static inline int stub_restart(struct stub *stub)
{
	return reef_sim_host_restart(stub->host, stub_main, stub);
}

/* Also with the name of another that is there. */
static inline struct stub *pool_add_named(struct pool *pool, uint64_t capacity,
					  const char *name)
{
	struct stub *stub = &pool->stubs[pool->stubs_count++];
	char host[16];

	reef_assert(pool->stubs_count <= STUBS_MAX);
	*stub = (struct stub){.pool = pool, .capacity = capacity};
	snprintf(host, sizeof(host), "node%u", pool->stubs_count);
	snprintf(stub->name, sizeof(stub->name), "%s", name ? name : host);
	reef_assert(reef_sim_host_add(pool->sim, host, stub_main, stub,
				      &stub->host) == 0);
	return stub;
}

static inline struct stub *pool_add(struct pool *pool, uint64_t capacity)
{
	return pool_add_named(pool, capacity, NULL);
}

static inline struct stub *pool_stub(struct pool *pool, uint32_t id)
{
	for (uint32_t i = 0; i < pool->stubs_count; i++)
		if (pool->stubs[i].life && pool->stubs[i].life->id == id)
			return &pool->stubs[i];
	return NULL;
}

/* --- the driver --- */

static inline int driver_handle(void *context,
				const struct reef_request *request,
				struct reef_body *answer,
				struct reef_cursor_out *room)
{
	return 0; /* RECOVER: there is nothing to do */
}

static inline int driver_connect(struct driver *driver)
{
	struct reef_connect_options options = {.session = driver->provisional,
					       .timeout_ns = NODE_TTL};
	struct reef_body body = {
		.session = driver->session, .name = {"test", 4}, .pid = 1};
	struct reef_answer answer = {0};
	char identity[32];
	int rc;

	snprintf(identity, sizeof(identity), "user:%u:%u", driver->user,
		 driver->era);
	options.identity = identity;
	memcpy(options.key, driver->key.bytes, sizeof(options.key));
	rc = reef_rpc_connect(driver->pool->rpc, "sim:broker/1", 0, &options,
			      &driver->peer, NULL);
	if (rc)
		return rc;
	memcpy(body.secret, driver->secret, sizeof(body.secret));
	rc = reef_rpc_call(driver->peer,
			   driver->session ? REEF_POOL_SESSION_RESUME
					   : REEF_POOL_SESSION_OPEN,
			   0, &body, &answer, SECOND);
	if (rc) {
		reef_peer_close(driver->peer);
		driver->peer = NULL;
		return rc;
	}
	driver->session = answer.body.session;
	memcpy(driver->secret, answer.body.secret, sizeof(driver->secret));
	reef_answer_free(&answer);
	return 0;
}

static inline bool driver_may_retry(int rc)
{
	return rc == -REEF_EINDOUBT || rc == -REEF_ENOLINK ||
	       rc == -ETIMEDOUT || rc == -ECONNREFUSED || rc == -ECANCELED ||
	       rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

/* Ask, over as many links and brokers as it takes. */
static inline int driver_call(struct driver *driver, uint16_t kind,
			      uint32_t sequence, const struct reef_body *body,
			      struct reef_answer *answer)
{
	int rc = 0;

	for (uint32_t tries = 0; tries < 2000; tries++) {
		if (!driver->peer)
			rc = driver_connect(driver);
		if (driver->peer)
			rc = reef_rpc_call(driver->peer, kind, sequence, body,
					   answer, SECOND / 2);
		if (!driver_may_retry(rc))
			return rc;
		reef_peer_close(driver->peer);
		driver->peer = NULL;
		rc = reef_sleep(5 * MILLISECOND);
		if (rc)
			return rc;
	}
	return -ETIMEDOUT;
}

static inline int driver_ask(struct driver *driver, uint16_t kind,
			     const struct reef_body *body,
			     struct reef_answer *answer)
{
	return driver_call(driver, kind, 0, body, answer);
}

/* Mutating. */
static inline int driver_do(struct driver *driver, uint16_t kind,
			    const struct reef_body *body,
			    struct reef_answer *answer)
{
	return driver_call(driver, kind, ++driver->sequence, body, answer);
}

static inline struct reef_text pool_text(const char *text)
{
	return (struct reef_text){text, (uint16_t)strlen(text)};
}

/* Open a space; *id. */
static inline int driver_open(struct driver *driver, const char *name,
			      uint32_t flags, uint8_t keeping, uint64_t quota,
			      uint32_t *id)
{
	struct reef_body body = {
		.name = pool_text(name),
		.flags = flags,
		.keeping = keeping,
		.size = quota,
	};
	struct reef_answer answer = {0};
	int rc = driver_do(driver, REEF_POOL_SPACE_OPEN, &body, &answer);

	if (rc == 0)
		*id = answer.body.space;
	reef_answer_free(&answer);
	return rc;
}

static inline int driver_add(struct driver *driver, uint32_t space,
			     uint64_t size, struct reef_row *out)
{
	struct reef_body body = {.space = space, .size = size};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row = {0}, last = {0};
	int rc = driver_do(driver, REEF_POOL_EXTENT_ADD, &body, &answer);

	if (rc)
		return rc;
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while (reef_row_decode(&in, &row) > 0)
		if (row.row == REEF_ROW_EXTENT)
			last = row;
	if (out)
		*out = last;
	reef_answer_free(&answer);
	return 0;
}

/* All extents of a space, page by page; rows without their texts. */
static inline int driver_extents(struct driver *driver, uint32_t space,
				 struct reef_row *rows, uint32_t max,
				 uint32_t *found)
{
	struct reef_body body = {.space = space};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row;
	bool more = true;
	int rc;

	*found = 0;
	while (more) {
		rc = driver_ask(driver, REEF_POOL_SPACE_EXTENTS, &body,
				&answer);
		if (rc)
			return rc;
		in = (struct reef_cursor_in){answer.body.rows,
					     answer.body.rows_size, false};
		while (reef_row_decode(&in, &row) > 0) {
			if (row.row != REEF_ROW_EXTENT || *found == max)
				continue;
			rows[(*found)++] = row;
			body.ordinal = row.ordinal + 1;
		}
		more = answer.body.flags & REEF_POOL_MORE;
		reef_answer_free(&answer);
		answer = (struct reef_answer){0};
	}
	return 0;
}

/* The row of that number in a list; texts are not in it. */
static inline int driver_look(struct driver *driver, enum reef_row_kind kind,
			      uint32_t number, struct reef_row *out)
{
	struct reef_body body = {.kind = kind, .node = number - 1};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	int rc = driver_ask(driver, REEF_POOL_LIST, &body, &answer);

	if (rc)
		return rc;
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	rc = reef_row_decode(&in, out) > 0 ? 0 : -ENOENT;
	if (rc == 0 && kind == REEF_ROW_NODE && out->node != number)
		rc = -ENOENT;
	if (rc == 0 && kind == REEF_ROW_EXTENT && out->extent != number)
		rc = -ENOENT;
	out->name = out->addresses = (struct reef_text){0};
	reef_answer_free(&answer);
	return rc;
}

static inline int pool_driver_main(struct reef_sim_host *host, void *arg)
{
	struct pool *pool = arg;
	struct reef_mesh_options mesh_options = {
		.kinds = "sim",
		.fabric = {.sim_host = host, .message_max = 8192},
	};
	struct reef_rpc_options options = {.handle = driver_handle,
					   .context = pool};
	int rc = reef_mesh_open(&mesh_options, &pool->mesh);

	if (rc == 0)
		rc = reef_port_open(pool->mesh, NULL, &pool->port);
	if (rc == 0)
		rc = reef_rpc_create(pool->port, &options, &pool->rpc);
	while (rc == 0 && !pool->broker)
		rc = reef_sleep(MILLISECOND);
	if (rc == 0)
		rc = pool->script(pool);
	pool->result = rc;
	reef_peer_close(pool->owner.peer);
	reef_peer_close(pool->guest.peer);
	pool->owner.peer = pool->guest.peer = NULL;
	reef_rpc_destroy(pool->rpc);
	reef_port_close(pool->port);
	reef_mesh_close(pool->mesh);
	pool->over = true;
	return rc;
}

/* Wait until every stub that is to be is ready. */
static inline int pool_ready(struct pool *pool, uint32_t count)
{
	uint32_t ready = 0;
	int rc;

	for (uint32_t tries = 0; ready != count; tries++) {
		ready = 0;
		for (uint32_t i = 0; i < pool->stubs_count; i++)
			ready += pool->stubs[i].life &&
				 pool->stubs[i].life->ready;
		if (tries > 2000)
			return -ETIMEDOUT;
		rc = reef_sleep(5 * MILLISECOND);
		if (rc)
			return rc;
	}
	return 0;
}

static inline void pool_start(struct pool *pool, uint64_t seed,
			      int (*script)(struct pool *pool))
{
	struct reef_sim_options options = {.seed = seed};

	wrong_line = 0;
	if (getenv("REEF_TEST_LOG"))
		reef_log_set(reef_log_to_stream, stderr, REEF_LOG_DEBUG);
	pool->seed = seed * 1000;
	pool->script = script;
	memset(pool->key.bytes, 9, sizeof(pool->key.bytes));
	pool->owner = (struct driver){.pool = pool, .provisional = 0xf0000001u};
	pool->guest = (struct driver){.pool = pool, .provisional = 0xf0010001u};
	assert_int_equal(
		reef_key_derive_user(&pool->key, 0, 0, &pool->owner.key), 0);
	assert_int_equal(reef_sim_create(&options, &pool->sim), 0);
	assert_int_equal(reef_sim_host_add(pool->sim, "broker",
					   pool_broker_main, pool,
					   &pool->broker_host),
			 0);
	assert_int_equal(reef_sim_host_add(pool->sim, "driver",
					   pool_driver_main, pool,
					   &pool->driver_host),
			 0);
}

/* Run it to its end; what the script returned. */
static inline int pool_finish(struct pool *pool)
{
	int rc = reef_sim_run(pool->sim, 10000 * SECOND);

	reef_sim_destroy(pool->sim);
	for (uint32_t i = 0; i < pool->stubs_count; i++) {
		while (pool->stubs[i].life) {
			struct stub_life *life = pool->stubs[i].life;

			pool->stubs[i].life = life->before;
			free(life);
		}
	}
	if (rc == 0)
		rc = pool->result;
	if (rc)
		print_error("seed %lu, line %d: %s\n",
			    (unsigned long)(pool->seed / 1000), wrong_line,
			    reef_error_text(rc));
	return rc;
}

#endif

/* test_broker_spaces.c - who reaches which space; memory that goes back; what
 * nodes know of fences; lists: one situation each, with stub nodes. */
#include "fixture/fill_fields.h"
#include "fixture/seeds.h"
#include "fixture/stub_world.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run(int (*script)(struct stub_pool *pool), uint32_t nodes,
		uint64_t capacity, uint64_t seeds)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds); seed++) {
		struct stub_pool pool = {0};

		pool.options.revoke_notice_ns = 300 * MILLISECOND;
		stub_pool_start(&pool, seed, script);
		for (uint32_t i = 0; i < nodes; i++)
			stub_pool_add(&pool, capacity);
		assert_int_equal(stub_pool_finish(&pool), 0);
	}
}

static int make_token(struct stub_pool *pool, uint32_t space, uint8_t rights,
		      struct reef_body *open)
{
	struct reef_ask_space_open *ask = &open->ask.space_open;
	struct reef_body body = {.ask.space_token = {space, rights}};
	struct reef_answer answer = {0};
	int rc =
		driver_ask(&pool->owner, REEF_POOL_SPACE_TOKEN, &body, &answer);

	if (rc)
		return rc;
	ask->space = answer.body.reply.space_token.space;
	ask->rights = answer.body.reply.space_token.rights;
	ask->era = answer.body.reply.space_token.era;
	memcpy(ask->secret, answer.body.reply.space_token.secret,
	       sizeof(ask->secret));
	reef_answer_free(&answer);
	return 0;
}

static int open_with(struct driver *driver, const struct reef_body *body)
{
	return driver_do(driver, REEF_POOL_SPACE_OPEN, body, NULL);
}

/* --- tokens --- */

/* The key of a space's first extent, as a driver is told it. */
static int told_key(struct driver *driver, uint32_t space, uint64_t *key)
{
	struct reef_row_extent rows[8];
	uint32_t found;

	TRY(driver_extents(driver, space, rows, 8, &found));
	WANT(found > 0 && rows[0].state == REEF_EXTENT_LIVE);
	for (int i = 0; i < REEF_DOORS_MAX; i++)
		WANT(rows[0].read_keys[i] == 0);
	*key = rows[0].keys[0];
	return 0;
}

static int shows_tokens(struct stub_pool *pool)
{
	struct driver *guest = &pool->guest;
	struct reef_body open = {.ask.space_open.name = stub_pool_text("a")};
	struct reef_body forged, extents, drop, revoke, close, token;
	uint64_t key, told;
	uint32_t space, other;

	TRY(stub_pool_ready(pool, 1));
	TRY(stub_pool_add_guest(pool));
	TRY(driver_open(&pool->owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	TRY(driver_open(&pool->owner, "b", REEF_POOL_CREATE, 0, 0, &other));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	/* Without one: nothing, by name or by number. */
	WANT(open_with(guest, &open) == -EACCES);
	extents = (struct reef_body){.ask.space_extents.space = space};
	drop = (struct reef_body){.ask.space_drop.space = space};
	revoke = (struct reef_body){.ask.space_revoke.space = space};
	close = (struct reef_body){.ask.space_close.space = space};
	token = (struct reef_body){.ask.space_token = {space, REEF_RIGHT_READ}};
	WANT(driver_ask(guest, REEF_POOL_SPACE_EXTENTS, &extents, NULL) ==
	     -EACCES);
	WANT(driver_add(guest, space, MIB, NULL) == -EACCES);
	WANT(driver_do(guest, REEF_POOL_SPACE_DROP, &drop, NULL) == -EACCES);
	WANT(driver_do(guest, REEF_POOL_SPACE_REVOKE, &revoke, NULL) ==
	     -EACCES);
	WANT(driver_ask(guest, REEF_POOL_SPACE_TOKEN, &token, NULL) == -EACCES);
	/* To read: that, and no more. */
	TRY(make_token(pool, space, REEF_RIGHT_READ, &open));
	forged = open;
	forged.ask.space_open.secret[31] ^= 1;
	WANT(open_with(guest, &forged) == -EACCES);
	forged = open;
	forged.ask.space_open.rights = REEF_RIGHT_ALL;
	WANT(open_with(guest, &forged) == -EACCES);
	forged = open;
	forged.ask.space_open.rights = 0x80;
	WANT(open_with(guest, &forged) == -EACCES);
	forged = open;
	forged.ask.space_open.name = stub_pool_text("b");
	WANT(open_with(guest, &forged) == -EACCES);
	TRY(open_with(guest, &open));
	TRY(told_key(&pool->owner, space, &key));
	TRY(told_key(guest, space, &told));
	WANT(stub_pool_behind(pool, key)->key == key);
	WANT(stub_pool_behind(pool, key)->read_key == told && told != key);
	WANT(driver_add(guest, space, MIB, NULL) == -EACCES);
	WANT(driver_do(guest, REEF_POOL_SPACE_DROP, &drop, NULL) == -EACCES);
	/* To write; to give away what one has, and no more. */
	TRY(make_token(pool, space, REEF_RIGHT_READ | REEF_RIGHT_WRITE, &open));
	TRY(open_with(guest, &open));
	TRY(driver_add(guest, space, MIB, NULL));
	TRY(told_key(guest, space, &told));
	WANT(told == key);
	TRY(driver_ask(guest, REEF_POOL_SPACE_CLOSE, &close, NULL));
	TRY(make_token(pool, space, REEF_RIGHT_MANAGE, &open));
	TRY(open_with(guest, &open));
	TRY(told_key(guest, space, &told));
	WANT(told == 0);
	TRY(make_token(pool, space, REEF_RIGHT_READ, &open));
	TRY(open_with(guest, &open));
	TRY(told_key(guest, space, &told));
	WANT(stub_pool_behind(pool, key)->read_key == told);
	TRY(driver_ask(guest, REEF_POOL_SPACE_TOKEN, &token, NULL));
	token.ask.space_token.rights = REEF_RIGHT_WRITE;
	WANT(driver_ask(guest, REEF_POOL_SPACE_TOKEN, &token, NULL) == -EACCES);
	/* Closed is closed. */
	TRY(driver_ask(guest, REEF_POOL_SPACE_CLOSE, &close, NULL));
	WANT(driver_ask(guest, REEF_POOL_SPACE_EXTENTS, &extents, NULL) ==
	     -EACCES);
	return 0;
}

static void broker_spaces_token_opens_what_it_says(void **state)
{
	run(shows_tokens, 1, 64 * MIB, 3);
}

/* Old tokens and old keys are void, new ones good, and nothing is lost; also if
 * the broker dies meanwhile. */
static int revokes(struct stub_pool *pool)
{
	struct driver *guest = &pool->guest;
	struct reef_body open = {.ask.space_open.name = stub_pool_text("a")};
	struct reef_body revoke = {0}, extents = {0};
	struct reef_row_extent before[8], after[8];
	uint32_t space, found;
	bool crash = reef_random_chance(reef_sim_random(pool->sim), 1, 2);

	TRY(stub_pool_ready(pool, 2));
	TRY(stub_pool_add_guest(pool));
	TRY(driver_open(&pool->owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	for (int i = 0; i < 8; i++)
		TRY(driver_add(&pool->owner, space, MIB, NULL));
	TRY(make_token(pool, space, REEF_RIGHT_ALL, &open));
	TRY(open_with(guest, &open));
	TRY(driver_extents(guest, space, before, 8, &found));
	WANT(found == 8);
	for (int i = 0; i < 8; i++) {
		stub_pool_behind(pool, before[i].keys[0])->value = 100 + i;
		stub_pool_behind(pool, before[i].keys[0])->fresh = false;
	}
	revoke.ask.space_revoke.space = space;
	extents.ask.space_extents.space = space;
	if (crash) {
		/* Asked, and dead before it can answer. */
		pool->owner.sequence++;
		(void)reef_rpc_call(
			pool->owner.peer, REEF_POOL_SPACE_REVOKE,
			pool->owner.sequence, &revoke, NULL,
			reef_random_below(reef_sim_random(pool->sim),
					  10 * MILLISECOND));
		TRY(stub_pool_broker_restart(pool));
		TRY(driver_call(&pool->owner, REEF_POOL_SPACE_REVOKE,
				pool->owner.sequence, &revoke, NULL));
	} else {
		TRY(driver_do(&pool->owner, REEF_POOL_SPACE_REVOKE, &revoke,
			      NULL));
	}
	for (int i = 0; i < 8; i++)
		WANT(!stub_pool_behind(pool, before[i].keys[0]));
	WANT(driver_ask(guest, REEF_POOL_SPACE_EXTENTS, &extents, NULL) ==
	     -EACCES);
	WANT(driver_add(guest, space, MIB, NULL) == -EACCES);
	WANT(open_with(guest, &open) == -EACCES);
	TRY(driver_extents(&pool->owner, space, after, 8, &found));
	WANT(found == 8);
	for (int i = 0; i < 8; i++) {
		WANT(after[i].state == REEF_EXTENT_LIVE);
		WANT(stub_pool_behind(pool, after[i].keys[0])->value ==
		     100 + (uint64_t)i);
		WANT(stub_pool_behind(pool, after[i].keys[0])->fresh);
	}
	TRY(make_token(pool, space, REEF_RIGHT_READ, &open));
	return open_with(guest, &open);
}

static void broker_spaces_revoked_tokens_and_keys_are_void(void **state)
{
	run(revokes, 2, 64 * MIB, 30);
}

static int has_scratch(struct stub_pool *pool)
{
	struct driver *guest = &pool->guest;
	struct reef_body body = {0};
	uint32_t mine, again, theirs;

	TRY(stub_pool_ready(pool, 1));
	TRY(stub_pool_add_guest(pool));
	TRY(driver_open(guest, "", 0, 0, 0, &mine));
	TRY(driver_open(guest, "", 0, 0, 0, &again));
	WANT(mine != again);
	TRY(driver_add(guest, mine, MIB, NULL));
	TRY(driver_open(guest, "g", REEF_POOL_CREATE, 0, 0, &theirs));
	/* It ends with its session, and so does what nobody else has. */
	TRY(driver_ask(guest, REEF_POOL_SESSION_CLOSE, NULL, NULL));
	body.ask.space_extents.space = mine;
	while (driver_ask(&pool->owner, REEF_POOL_SPACE_EXTENTS, &body, NULL) !=
	       -ENOENT)
		TRY(reef_sleep(MILLISECOND));
	while (pool->stubs[0].life->count)
		TRY(reef_sleep(MILLISECOND));
	body.ask.space_extents.space = theirs;
	TRY(driver_ask(&pool->owner, REEF_POOL_SPACE_EXTENTS, &body, NULL));
	return 0;
}

static void broker_spaces_scratch_ends_with_its_session(void **state)
{
	run(has_scratch, 1, 64 * MIB, 5);
}

static int refuses_names(struct stub_pool *pool)
{
	static char name[60000];
	struct reef_body body = {.ask.space_open.flags = REEF_POOL_CREATE};
	struct reef_ask_space_open *ask = &body.ask.space_open;
	uint32_t space;

	TRY(stub_pool_ready(pool, 1));
	memset(name, 'x', sizeof(name));
	ask->name = (struct reef_text){name, 256};
	WANT(driver_do(&pool->owner, REEF_POOL_SPACE_OPEN, &body, NULL) ==
	     -ENAMETOOLONG);
	ask->name.size = 60000;
	WANT(driver_do(&pool->owner, REEF_POOL_SPACE_OPEN, &body, NULL) ==
	     -EMSGSIZE);
	WANT(driver_open(&pool->owner, "a\nb", REEF_POOL_CREATE, 0, 0,
			 &space) == -EINVAL);
	ask->name.size = 5;
	ask->kind = 9;
	WANT(driver_do(&pool->owner, REEF_POOL_SPACE_OPEN, &body, NULL) ==
	     -EINVAL);
	ask->kind = 0;
	ask->keeping = 9;
	WANT(driver_do(&pool->owner, REEF_POOL_SPACE_OPEN, &body, NULL) ==
	     -EINVAL);
	WANT(driver_open(&pool->owner, "xxxxx", 0, 0, 0, &space) == -ENOENT);
	return 0;
}

static void broker_spaces_name_that_cannot_be_is_refused(void **state)
{
	run(refuses_names, 1, 64 * MIB, 1);
}

/* --- memory that goes back --- */

static int goes_back(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct stub *stub = &pool->stubs[0];
	struct reef_row_extent kept[8], lent[8];
	uint32_t keeps, lends, found, lost;
	uint64_t begun_ns;

	TRY(stub_pool_ready(pool, 1));
	TRY(driver_open(owner, "k", REEF_POOL_CREATE, REEF_KEEPING_KEPT, 0,
			&keeps));
	TRY(driver_open(owner, "r", REEF_POOL_CREATE, REEF_KEEPING_REVOCABLE, 0,
			&lends));
	for (int i = 0; i < 6; i++) {
		TRY(driver_add(owner, keeps, MIB, NULL));
		TRY(driver_add(owner, lends, MIB, NULL));
	}
	/* It wants three, and asks with every pulse until it has them. */
	stub->limit = 9 * MIB;
	begun_ns = reef_now_ns();
	while (stub->life->count == 12) {
		if (reef_now_ns() - begun_ns < 250 * MILLISECOND) {
			TRY(driver_extents(owner, lends, lent, 8, &found));
			for (uint32_t i = 0; i < found; i++)
				WANT(lent[i].state == REEF_EXTENT_LIVE);
		}
		TRY(reef_sleep(MILLISECOND));
	}
	while (stub->life->count != 9)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(SECOND));
	WANT(stub->life->count == 9);
	TRY(driver_extents(owner, lends, lent, 8, &found));
	lost = 0;
	for (uint32_t i = 0; i < found; i++)
		lost += lent[i].state == REEF_EXTENT_LOST;
	WANT(found == 6 && lost == 3);
	/* All that there is, by an operator: kept ones stay. */
	TRY(driver_ask(owner, REEF_POOL_NODE_RECLAIM,
		       &(struct reef_body){
			       .ask.node_reclaim = {stub->life->id, 100 * MIB}},
		       NULL));
	while (stub->life->count != 6)
		TRY(reef_sleep(MILLISECOND));
	TRY(driver_extents(owner, keeps, kept, 8, &found));
	for (uint32_t i = 0; i < found; i++)
		WANT(kept[i].state == REEF_EXTENT_LIVE &&
		     stub_pool_behind(pool, kept[i].keys[0]));
	return 0;
}

static void broker_spaces_revocable_memory_goes_back(void **state)
{
	run(goes_back, 1, 64 * MIB, 5);
}

/* --- fences --- */

/* How many of the first stubs have been asked to fence, or told so. */
static uint32_t count_fenced(const struct stub_pool *pool, uint32_t stubs)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < stubs; i++)
		count += pool->stubs[i].life->fences > 0;
	return count;
}

/* Extents for the guest, until so many stubs have one. */
static int touch_stubs(struct stub_pool *pool, uint32_t wanted)
{
	uint32_t space, touched;

	TRY(driver_open(&pool->guest, "touched", REEF_POOL_CREATE, 0, 0,
			&space));
	do {
		TRY(driver_add(&pool->guest, space, 0, NULL));
		touched = 0;
		for (uint32_t i = 0; i < pool->stubs_count; i++)
			touched += pool->stubs[i].life->creates > 0;
	} while (touched < wanted);
	return 0;
}

/* Close the guest's session, and wait until it is FENCED. */
static int end_guest(struct stub_pool *pool)
{
	struct reef_body body = {.ask.list.row = REEF_ROW_SESSION};
	uint32_t session = pool->guest.session;
	struct reef_answer answer;
	struct reef_cursor_in in;
	struct reef_row row;
	bool ends = true;

	TRY(driver_ask(&pool->guest, REEF_POOL_SESSION_CLOSE, NULL, NULL));
	while (ends) {
		ends = false;
		TRY(reef_sleep(MILLISECOND));
		answer = (struct reef_answer){0};
		TRY(driver_ask(&pool->owner, REEF_POOL_LIST, &body, &answer));
		in = (struct reef_cursor_in){answer.body.rows,
					     answer.body.rows_size, false};
		while (reef_row_decode(&in, &row) > 0)
			ends |= row.session.id == session &&
				row.session.state < REEF_SESSION_FENCED;
		reef_answer_free(&answer);
	}
	return 0;
}

#define MANY_STUBS 16

/* A session ends that had memory at one node of many. */
static int fences_where_it_was(struct stub_pool *pool)
{
	TRY(stub_pool_ready(pool, MANY_STUBS));
	TRY(stub_pool_add_guest(pool));
	TRY(touch_stubs(pool, 1));
	TRY(end_guest(pool));
	WANT(count_fenced(pool, MANY_STUBS) == 1);
	return 0;
}

/* The same, of a broker that does not know what the one before it told. */
static int fences_everywhere_after_a_start(struct stub_pool *pool)
{
	TRY(stub_pool_ready(pool, MANY_STUBS));
	TRY(stub_pool_add_guest(pool));
	TRY(touch_stubs(pool, 1));
	TRY(stub_pool_broker_restart(pool));
	TRY(reef_sleep(NODE_TTL));
	TRY(stub_pool_ready(pool, MANY_STUBS));
	TRY(end_guest(pool));
	WANT(count_fenced(pool, MANY_STUBS) == MANY_STUBS);
	return 0;
}

/* Memory that it was told of moved on, and it asked where to: both nodes are
 * fenced, and no others. */
static int fences_where_memory_was(struct stub_pool *pool)
{
	struct reef_row_extent rows[8];
	struct stub *source = NULL;
	struct reef_body drain = {0};
	uint32_t space, found;

	TRY(stub_pool_ready(pool, 4));
	TRY(stub_pool_add_guest(pool));
	TRY(touch_stubs(pool, 1));
	TRY(driver_open(&pool->owner, "touched", 0, 0, 0, &space));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(found == 1);
	source = stub_pool_stub(pool, rows[0].node);
	drain.ask.node_drain.node = rows[0].node;
	TRY(driver_do(&pool->owner, REEF_POOL_NODE_DRAIN, &drain, NULL));
	do {
		TRY(reef_sleep(MILLISECOND));
		TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	} while (stub_pool_stub(pool, rows[0].node) == source ||
		 rows[0].state != REEF_EXTENT_LIVE);
	TRY(driver_extents(&pool->guest, space, rows, 8, &found));
	TRY(end_guest(pool));
	WANT(source->life->fences == 1);
	WANT(stub_pool_stub(pool, rows[0].node)->life->fences == 1);
	WANT(count_fenced(pool, 4) == 2);
	return 0;
}

static void broker_spaces_fence_goes_where_the_session_was(void **state)
{
	run(fences_where_it_was, MANY_STUBS, 64 * MIB, 3);
	run(fences_everywhere_after_a_start, MANY_STUBS, 64 * MIB, 4);
	run(fences_where_memory_was, 4, 64 * MIB, 5);
}

static void broker_spaces_forgotten_fence_is_found(void **state)
{
	struct stub_pool pool = {0};

	try_quiet = true;
	reef_mutate(REEF_MUTANT_BROKER_FENCE_FORGETS);
	stub_pool_start(&pool, 4, fences_everywhere_after_a_start);
	for (uint32_t i = 0; i < MANY_STUBS; i++)
		stub_pool_add(&pool, 64 * MIB);
	assert_int_equal(stub_pool_finish(&pool), -EXDEV);
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
}

/* A session ends: every node that it was at hears of it, those that come later
 * too, and one that is not ready yet is asked as well. */
static int tells_fences(struct stub_pool *pool)
{
	struct driver *guest = &pool->guest;
	struct stub *late;
	uint32_t session;

	TRY(stub_pool_ready(pool, 2));
	TRY(stub_pool_add_guest(pool));
	TRY(driver_connect(guest));
	session = guest->session;
	WANT(session);
	TRY(touch_stubs(pool, 2));
	pool->stubs[1].stays_unready = true;
	pool->stubs[1].rests = 1;
	TRY(reef_sleep(150 * MILLISECOND));
	TRY(driver_ask(guest, REEF_POOL_SESSION_CLOSE, NULL, NULL));
	for (uint32_t i = 0; i < 2; i++)
		while (pool->stubs[i].life->last_fenced != session)
			TRY(reef_sleep(MILLISECOND));
	late = stub_pool_add(pool, MIB);
	while (!late->life || !late->life->ready)
		TRY(reef_sleep(MILLISECOND));
	WANT(late->life->fences >= 1 && late->life->last_fenced == session);
	return 0;
}

static void broker_spaces_every_node_knows_of_fences(void **state)
{
	run(tells_fences, 2, 64 * MIB, 5);
}

/* More of them than an answer has room for. */
static int tells_many_fences(struct stub_pool *pool)
{
	struct driver *guest = &pool->guest;
	struct stub *late;

	TRY(stub_pool_ready(pool, 1));
	TRY(stub_pool_add_guest(pool));
	for (uint32_t i = 0; i < 300; i++) {
		guest->session = 0;
		guest->sequence = 0;
		guest->provisional += 0x10000;
		guest->peer = NULL;
		TRY(driver_connect(guest));
		TRY(reef_rpc_call(guest->peer, REEF_POOL_SESSION_CLOSE, 0, NULL,
				  NULL, SECOND));
		reef_peer_close(guest->peer);
		guest->peer = NULL;
	}
	late = stub_pool_add(pool, MIB);
	while (!late->life || !late->life->ready)
		TRY(reef_sleep(MILLISECOND));
	WANT(late->life->fences >= 300);
	return 0;
}

static void broker_spaces_many_fences_are_told_before_ready(void **state)
{
	run(tells_many_fences, 1, 64 * MIB, 1);
}

/* --- lists --- */

static int count_rows(struct driver *driver, uint8_t kind, uint32_t *count,
		      uint32_t *pages)
{
	struct reef_body body = {.ask.list.row = kind};
	uint32_t *after = &body.ask.list.after;
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row;
	bool more = true;

	*count = *pages = 0;
	while (more) {
		TRY(driver_ask(driver, REEF_POOL_LIST, &body, &answer));
		in = (struct reef_cursor_in){answer.body.rows,
					     answer.body.rows_size, false};
		while (reef_row_decode(&in, &row) > 0) {
			WANT(row.row == kind);
			++*count;
			*after = kind == REEF_ROW_EXTENT    ? row.extent.number
				 : kind == REEF_ROW_SPACE   ? row.space.number
				 : kind == REEF_ROW_SESSION ? row.session.id
				 : kind == REEF_ROW_NODE    ? row.node.number
				 : kind == REEF_ROW_USER    ? row.user.number
				 : kind == REEF_ROW_EVENT
					 ? (uint32_t)row.event.number
					 : *after + 1;
		}
		++*pages;
		more = answer.body.reply.list.flags & REEF_POOL_MORE;
		reef_answer_free(&answer);
		answer = (struct reef_answer){0};
	}
	return 0;
}

static int lists_all(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct reef_row_extent rows[256];
	uint32_t space, count, pages, found;
	char name[16];

	TRY(stub_pool_ready(pool, 2));
	TRY(stub_pool_add_guest(pool));
	for (int i = 0; i < 150; i++) {
		snprintf(name, sizeof(name), "space%d", i);
		TRY(driver_open(owner, name, REEF_POOL_CREATE, 0, 0, &space));
	}
	for (int i = 0; i < 150; i++)
		TRY(driver_add(owner, space, 4096, NULL));
	TRY(driver_extents(owner, space, rows, 256, &found));
	WANT(found == 150 && rows[149].ordinal == 149);
	TRY(count_rows(owner, REEF_ROW_SPACE, &count, &pages));
	WANT(count == 150 && pages > 1);
	TRY(count_rows(owner, REEF_ROW_EXTENT, &count, &pages));
	WANT(count == 150 && pages > 1);
	TRY(count_rows(owner, REEF_ROW_NODE, &count, &pages));
	WANT(count == 2);
	TRY(count_rows(owner, REEF_ROW_USER, &count, &pages));
	WANT(count == 1);
	TRY(count_rows(owner, REEF_ROW_SETTING, &count, &pages));
	WANT(count == REEF_SETTING_COUNT);
	TRY(count_rows(owner, REEF_ROW_EVENT, &count, &pages));
	WANT(count >= 5);
	TRY(count_rows(owner, REEF_ROW_SESSION, &count, &pages));
	WANT(count == 1);
	WANT(driver_ask(owner, REEF_POOL_LIST,
			&(struct reef_body){.ask.list.row = REEF_ROW_NAME},
			NULL) == -EINVAL);
	WANT(driver_ask(owner, REEF_POOL_LIST,
			&(struct reef_body){.ask.list.row = 99},
			NULL) == -EINVAL);
	return 0;
}

static void broker_spaces_lists_come_in_pages(void **state)
{
	run(lists_all, 2, 64 * MIB, 1);
}

/* --- anything --- */

static uint64_t small_number(struct reef_random *random)
{
	return reef_random_chance(random, 1, 2)
		       ? reef_random_below(random, 10)
		       : reef_random_below(random, 4) * 4096;
}

static struct reef_text some_text(struct reef_random *random)
{
	static const char *const names[] = {
		"",	 "a",	      "b",    "node1",
		"guest", "nodes_max", "\x01", "sim:nowhere/1"};

	return stub_pool_text(names[reef_random_below(random, 8)]);
}

/* What a kind asks, with fields that are small, or anything. */
static void fill_body(struct reef_random *random, uint16_t kind,
		      struct reef_body *body)
{
	struct reef_pool_header header = {.type = REEF_POOL_REQUEST,
					  .kind = kind};

	*body = (struct reef_body){0};
	fill_fields(reef_pool_fields(&header), body, random,
		    reef_random_chance(random, 1, 8) ? reef_random_next
						     : small_number,
		    some_text);
}

/* The same from one that holds the key of a node. */
static int says_as_node(struct stub_pool *pool, struct reef_peer **peer)
{
	struct reef_random *random = reef_sim_random(pool->sim);
	struct reef_cursor_out rows = {0};
	struct reef_row row = {.row = REEF_ROW_EXTENT, .extent.size = 4096};
	struct reef_body body;
	uint16_t kind;
	int rc;

	if (!*peer) {
		rc = stub_connect(pool, 77, pool->nodes, pool->rpc, peer);
		if (rc)
			return rc == -REEF_EHOSTDEAD ? rc : 0;
	}
	kind = (uint16_t)reef_random_between(random, REEF_POOL_NODE_REGISTER,
					     REEF_POOL_FENCE);
	fill_body(random, kind, &body);
	/* A node that says that another broker was chosen is believed. */
	if (kind == REEF_POOL_NODE_REGISTER)
		body.ask.node_register.confirmed_start = 0;
	for (uint32_t i = 0; i < 3; i++) {
		row.extent.number = (uint32_t)reef_random_below(random, 8);
		row.extent.epoch = (uint32_t)reef_random_below(random, 3);
		row.extent.state = (uint8_t)reef_random_below(random, 4);
		reef_row_encode(&row, &rows);
	}
	if (kind == REEF_POOL_NODE_EXTENTS) {
		body.rows = rows.bytes;
		body.rows_size = rows.size;
	}
	(void)reef_rpc_call(*peer, kind, 0, &body, NULL, 5 * MILLISECOND);
	free(rows.bytes);
	if (reef_random_chance(random, 1, 50)) {
		reef_peer_close(*peer);
		*peer = NULL;
	}
	return 0;
}

static int says_anything(struct stub_pool *pool)
{
	struct reef_random *random = reef_sim_random(pool->sim);
	struct driver *driver;
	struct reef_body body;
	struct reef_peer *node = NULL;
	uint32_t space;
	uint16_t kind;

	TRY(stub_pool_ready(pool, BROKER_WITNESSES_MAX));
	TRY(stub_pool_add_guest(pool));
	pool->nodes++;
	for (uint32_t i = 0; i < 1500; i++) {
		if (reef_random_chance(random, 1, 4))
			TRY(says_as_node(pool, &node));
		driver = reef_random_chance(random, 1, 2) ? &pool->guest
							  : &pool->owner;
		if (!driver->peer && driver_connect(driver)) {
			/* It ended itself. */
			driver->session = driver->sequence = 0;
			TRY(reef_sleep(MILLISECOND));
			continue;
		}
		if (reef_random_chance(random, 9, 10))
			driver->sequence++;
		kind = (uint16_t)reef_random_between(random, 1,
						     REEF_POOL_KINDS - 1);
		if ((kind == REEF_POOL_SESSION_CLOSE ||
		     kind == REEF_POOL_SESSION_END) &&
		    reef_random_chance(random, 19, 20))
			kind = REEF_POOL_EXTENT_ADD;
		fill_body(random, kind, &body);
		/* The owner keeps its own credential. */
		if (kind == REEF_POOL_USER_ROTATE)
			body.ask.user_rotate.user |= 1;
		(void)reef_rpc_call(driver->peer, kind, driver->sequence, &body,
				    NULL, 5 * MILLISECOND);
		if (reef_random_chance(random, 1, 100)) {
			reef_peer_close(driver->peer);
			driver->peer = NULL;
		}
	}
	/* It serves as if nothing had been. */
	reef_peer_close(node);
	WANT(pool->broker && reef_broker_health(pool->broker) == 0);
	reef_peer_close(pool->owner.peer);
	pool->owner.peer = NULL;
	pool->owner.session = pool->owner.sequence = 0;
	TRY(driver_open(&pool->owner, "afterwards", REEF_POOL_CREATE, 0, 0,
			&space));
	return 0;
}

static void broker_spaces_any_request_is_survived(void **state)
{
	/* As many nodes as there are witnesses: nobody else becomes one. */
	run(says_anything, BROKER_WITNESSES_MAX, 64 * MIB, seeds_of(10, 500));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_spaces_token_opens_what_it_says),
		cmocka_unit_test(
			broker_spaces_revoked_tokens_and_keys_are_void),
		cmocka_unit_test(broker_spaces_scratch_ends_with_its_session),
		cmocka_unit_test(broker_spaces_name_that_cannot_be_is_refused),
		cmocka_unit_test(broker_spaces_revocable_memory_goes_back),
		cmocka_unit_test(
			broker_spaces_fence_goes_where_the_session_was),
		cmocka_unit_test(broker_spaces_forgotten_fence_is_found),
		cmocka_unit_test(broker_spaces_every_node_knows_of_fences),
		cmocka_unit_test(
			broker_spaces_many_fences_are_told_before_ready),
		cmocka_unit_test(broker_spaces_lists_come_in_pages),
		cmocka_unit_test(broker_spaces_any_request_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

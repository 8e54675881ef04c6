/* test_client_rights.c - what a session may do with the memory of a space that
 * it opened with a token, and what comes of a second one. */
#include "fixture/pool_world.h"
#include "index/hash/layout.h"
#include "pool/rpc.h"
#include "txn/internal.h"

#include <errno.h>
#include <string.h>

static int token_for(struct member *member, uint32_t space, uint8_t rights,
		     char text[REEF_KEY_TEXT_SIZE])
{
	struct reef_body body = {.ask.space_token = {space, rights}};
	struct reef_answer answer = {0};
	struct reef_token token = {0};

	TRY(reef_client_ask(member->reef, REEF_POOL_SPACE_TOKEN, false, &body,
			    &answer));
	token.space = answer.body.reply.space_token.space;
	token.era = answer.body.reply.space_token.era;
	token.rights = answer.body.reply.space_token.rights;
	memcpy(token.key.bytes, answer.body.reply.space_token.secret, 32);
	reef_token_format(&token, text);
	reef_answer_free(&answer);
	return 0;
}

static char read_token[REEF_KEY_TEXT_SIZE], write_token[REEF_KEY_TEXT_SIZE];

static int owner(struct member *member)
{
	struct reef_body body = {.ask.user_add.name = {"ada", 3}};
	struct reef_credential *other = &member->pool->members[1].credential;
	struct reef_answer answer = {0};
	struct reef_space *space;
	uint64_t address, value = 9;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 64, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	member->pool->note[1] = address;
	TRY(token_for(member, reef_space_id(space), REEF_RIGHT_READ,
		      read_token));
	TRY(token_for(member, reef_space_id(space),
		      REEF_RIGHT_READ | REEF_RIGHT_WRITE, write_token));
	TRY(reef_client_ask(member->reef, REEF_POOL_USER_ADD, true, &body,
			    &answer));
	other->user = answer.body.reply.user_add.user;
	other->era = answer.body.reply.user_add.era;
	memcpy(other->key.bytes, answer.body.reply.user_add.secret, 32);
	reef_answer_free(&answer);
	member->pool->note[0] = 1;
	while (member->pool->note[0] == 1)
		TRY(reef_sleep(MILLISECOND));
	/* Revoked: what was granted by tokens ends. */
	body = (struct reef_body){.ask.space_revoke.space =
					  reef_space_id(space)};
	TRY(reef_client_ask(member->reef, REEF_POOL_SPACE_REVOKE, true, &body,
			    NULL));
	TRY(reef_write(member->reef, address, &value, 8));
	member->pool->note[0] = 3;
	return 0;
}

static int guest(struct member *member)
{
	struct reef_space_options options = {0};
	uint64_t address, value;
	struct reef_space *space;

	member_leave(member);
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(member_join(member));
	address = member->pool->note[1];
	WANT_RC(reef_read(member->reef, address, &value, 8), -EFAULT);
	WANT_RC(reef_space_open(member->reef, "space", NULL, &space), -EACCES);
	options.token = "reef-space-rubbish";
	WANT_RC(reef_space_open(member->reef, "space", &options, &space),
		-EACCES);
	options.token = read_token;
	TRY(reef_space_open(member->reef, "space", &options, &space));
	TRY(reef_read(member->reef, address, &value, 8));
	WANT(value == 9);
	WANT_RC(reef_write(member->reef, address, &value, 8), -EACCES);
	WANT_RC(reef_faa(member->reef, address, 1, NULL), -EACCES);
	WANT_RC(reef_alloc(space, 8, &address), -EACCES);
	WANT_RC(reef_name_bind(space, "x", 1, NULL), -EACCES);
	options.token = write_token;
	TRY(reef_space_open(member->reef, "space", &options, &space));
	TRY(reef_write(member->reef, address, &value, 8));
	/* A new start of the broker is told of the tokens. */
	reef_sim_host_kill(member->pool->host);
	TRY(reef_sim_host_restart(member->pool->host, pool_broker_main,
				  member->pool));
	TRY(reef_name_bind(space, "x", 1, NULL));
	TRY(reef_write(member->reef, address, &value, 8));
	member->pool->note[0] = 2;
	while (member->pool->note[0] == 2)
		TRY(reef_sleep(MILLISECOND));
	WANT_RC(reef_write(member->reef, address, &value, 8), -REEF_ELOST);
	WANT_RC(reef_space_open(member->reef, "space", &options, &space),
		-EACCES);
	return 0;
}

static void client_token_allows_what_it_says(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, owner);
		pool_add(&pool, guest);
		pool_finish(&pool);
	}
}

/* --- a second token --- */

/* More than the rows of one answer tell of. */
#define EXTENTS 800u

static char manage_token[REEF_KEY_TEXT_SIZE];

static int owner_of_many(struct member *member)
{
	struct reef_body body = {0};
	struct reef_space *space;
	uint64_t address;
	uint32_t i;

	/* The first is for blocks. */
	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 64, &address));
	body.ask.extent_add.space = reef_space_id(space);
	body.ask.extent_add.size = REEF_EXTENT_ALIGN;
	for (i = 0; i < EXTENTS; i++)
		TRY(reef_client_ask(member->reef, REEF_POOL_EXTENT_ADD, true,
				    &body, NULL));
	TRY(token_for(member, reef_space_id(space), REEF_RIGHT_MANAGE,
		      manage_token));
	return owner(member);
}

/* Read or change a word of the first, the last, and one in between. */
static int touch(struct member *member, bool changes, int wanted)
{
	static const uint32_t numbers[] = {1, EXTENTS / 2, EXTENTS};
	uint64_t address, word;

	for (int i = 0; i < 3; i++) {
		address = (uint64_t)numbers[i] << 32;
		WANT_RC(changes ? reef_faa(member->reef, address, 0, NULL)
				: reef_read(member->reef, address, &word, 8),
			wanted);
	}
	return 0;
}

/* The keys that the session is told are others each time, and of all extents,
 * whether they were attached by then or not. */
static int guest_of_many(struct member *member)
{
	struct reef_space_options options = {.token = manage_token};
	struct reef_space *space;

	member_leave(member);
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(member_join(member));
	TRY(reef_space_open(member->reef, "space", &options, &space));
	TRY(touch(member, false, -EACCES));
	TRY(touch(member, true, -EACCES));
	options.token = read_token;
	TRY(reef_space_open(member->reef, "space", &options, &space));
	TRY(touch(member, false, 0));
	TRY(touch(member, true, -EACCES));
	options.token = write_token;
	TRY(reef_space_open(member->reef, "space", &options, &space));
	TRY(touch(member, true, 0));
	TRY(touch(member, false, 0));
	/* The next broker is shown the token that allows to write. */
	reef_sim_host_kill(member->pool->host);
	TRY(reef_sim_host_restart(member->pool->host, pool_broker_main,
				  member->pool));
	TRY(reef_name_bind(space, "x", 1, NULL));
	TRY(touch(member, true, 0));
	member->pool->note[0] = 2;
	while (member->pool->note[0] == 2)
		TRY(reef_sleep(MILLISECOND));
	return touch(member, false, -REEF_ELOST);
}

static void client_second_token_adds_to_the_first(void **state)
{
	struct pool pool = {0};

	pool_start(&pool, seeds_first());
	pool_add(&pool, owner_of_many);
	pool_add(&pool, guest_of_many);
	pool_finish(&pool);
}

/* --- transactions of who may only read --- */

/* Has a map with a key whose slot is frozen, as if somebody who split the table
 * had died there. */
static int owner_of_frozen(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_space *space;
	struct reef_map *map;
	struct reef_txn *txn;
	uint64_t at, word;

	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "m", NULL, &map));
	TRY(reef_map_put(map, "a", 1, "1", 1, 0, NULL));
	TRY(reef_map_put(map, "b", 1, "1", 1, 0, NULL));
	TRY(reef_txn_begin(space, NULL, &txn));
	TRY(reef_txn_take(txn, map, "a", 1, &value));
	at = txn->items[0]->hold->slot_at;
	reef_txn_close(txn);
	TRY(reef_read(member->reef, at, &word, 8));
	word |= HASH_FROZEN;
	TRY(reef_write(member->reef, at, &word, 8));
	reef_map_value_free(&value);
	reef_map_close(map);
	return owner(member);
}

struct reading {
	struct reef_map *map;
	const char *key;
	uint32_t losses; /* so often it has lost first */
};

static int read_late(struct reef_txn *txn, void *context)
{
	struct reading *reading = context;
	struct reef_map_value value = {0};
	int rc = reef_txn_get(txn, reading->map, reading->key, 1, &value);

	if (!rc && reading->losses) {
		reading->losses--;
		rc = -ECANCELED;
	}
	reef_map_value_free(&value);
	return rc;
}

static int reader(struct member *member)
{
	const struct reef_space_options options = {.token = read_token};
	const struct reef_map_options there = {.flags = REEF_MAP_EXISTING};
	const struct reef_txn_options reads = {.flags = REEF_TXN_READ_ONLY};
	struct reading reading = {.key = "a"};
	struct reef_space *space;

	member_leave(member);
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(member_join(member));
	TRY(reef_space_open(member->reef, "space", &options, &space));
	TRY(reef_map_open(space, "m", &there, &reading.map));
	/* What is frozen is for others to go on with. */
	TRY(reef_txn_run(space, read_late, &reading, &reads));
	/* However often it has lost, it holds nothing. */
	reading = (struct reading){reading.map, "b", 20};
	TRY(reef_txn_run(space, read_late, &reading, &reads));
	WANT(!reading.losses);
	reef_map_close(reading.map);
	member->pool->note[0] = 2;
	return 0;
}

static void client_who_may_read_has_transactions(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, seeds_first());
	pool_add(&pool, owner_of_frozen);
	pool_add(&pool, reader);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_token_allows_what_it_says),
		cmocka_unit_test(client_second_token_adds_to_the_first),
		cmocka_unit_test(client_who_may_read_has_transactions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

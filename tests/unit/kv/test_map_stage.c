/* test_map_stage.c - values that are in the pool before they are put, as those
 * see them who read the same map over tcp; and the other calls for services
 * (pieces.h), where memory is near and far. */
#include "base/log.h"
#include "fixture/local_pool.h"
#include "kv/pieces.h"
#include "kv/stage.h"
#include "pool/client/client.h"
#include "wire/pool.h"

#include <errno.h>
#include <poll.h>
#include <reef/map.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 300000u

struct user {
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
};

static struct server server;
static struct user near, far;
/* Nothing is under the thread sanitizer, and without membarrier(2). */
static bool is_near;

static void join(struct user *user, const char *fabrics)
{
	struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_options options = {.fabrics = fabrics};

	assert_int_equal(reef_open("local", &options, &user->reef), 0);
	assert_int_equal(
		reef_space_open(user->reef, "s", &create, &user->space), 0);
	assert_int_equal(reef_map_open(user->space, "m", NULL, &user->map), 0);
}

static int begin(void **state)
{
	struct map_stage *stage;
	int rc;

	scratch_make(state);
	server_start(&server);
	join(&near, "shm");
	join(&far, "tcp");
	rc = map_stage_begin(near.map, 3, SIZE, 2, &stage);
	is_near = rc != -EOPNOTSUPP;
	if (!rc)
		map_stage_end(stage);
	return 0;
}

static int end(void **state)
{
	reef_map_close(near.map);
	reef_map_close(far.map);
	reef_close(near.reef);
	reef_close(far.reef);
	server_stop(&server);
	return scratch_remove(state);
}

/* The bytes of a value, from the first on; in pieces of `part`. */
struct flow {
	uint32_t seed;
	size_t at, part;
};

static void fill(const struct flow *flow, uint8_t *to, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to[i] = (uint8_t)((flow->at + i) * (flow->seed + 7));
}

/* The next piece, but no more than `left`. */
static void add_piece(struct map_stage *stage, struct flow *flow, size_t left)
{
	size_t size = left < flow->part ? left : flow->part;
	uint8_t *bytes;

	reef_assert(size > 0);
	bytes = malloc(size);
	fill(flow, bytes, size);
	map_stage_add(stage, bytes, size);
	flow->at += size;
	free(bytes);
}

static struct map_stage *stage_whole(uint32_t seed, size_t key_size,
				     size_t part)
{
	struct flow flow = {.seed = seed, .part = part};
	struct map_stage *stage;

	assert_int_equal(map_stage_begin(near.map, key_size, SIZE, 2, &stage),
			 0);
	while (!map_stage_is_whole(stage))
		add_piece(stage, &flow, SIZE + 2 - flow.at);
	assert_int_equal(flow.at, SIZE + 2);
	return stage;
}

static void expect(const struct user *user, const char *key, uint32_t seed)
{
	struct reef_map_value value = {0};
	struct flow flow = {.seed = seed, .part = SIZE};
	uint8_t *wanted = malloc(SIZE);

	fill(&flow, wanted, SIZE);
	assert_int_equal(reef_map_get(user->map, key, strlen(key), &value), 0);
	assert_int_equal(value.size, SIZE);
	assert_memory_equal(value.bytes, wanted, SIZE);
	reef_map_value_free(&value);
	free(wanted);
}

/* Who reads over tcp checks its checksum. */
static void map_stage_put_is_read_by_others(void **state)
{
	static const char *const keys[] = {"new", "new", "another key"};
	static const size_t parts[] = {SIZE + 2, 1448, 65536};
	struct map_stage *stage;

	if (!is_near)
		return;
	for (uint32_t i = 0; i < 3; i++) {
		stage = stage_whole(i, strlen(keys[i]), parts[i]);
		assert_int_equal(map_stage_put(stage, near.map, keys[i], 0), 0);
		map_stage_end(stage);
		expect(&far, keys[i], i);
		expect(&near, keys[i], i);
	}
	expect(&far, "new", 1);
	assert_int_equal(reef_map_delete(far.map, "new", 3, 0), 0);
	assert_int_equal(reef_map_delete(far.map, "another key", 11, 0), 0);
}

/* Far more than the pool has, so what ended must be back. */
static void map_stage_ended_gives_its_memory_back(void **state)
{
	struct map_stage *stage;

	if (!is_near)
		return;
	for (uint32_t i = 0; i < 300; i++) {
		assert_int_equal(
			map_stage_begin(near.map, 3, 1u << 20, 2, &stage), 0);
		add_piece(stage, &(struct flow){.part = 20000}, 20000);
		map_stage_end(stage);
	}
}

static void map_stage_half_can_be_read(void **state)
{
	struct flow flow = {.seed = 5, .part = 1000}, again = flow;
	struct map_stage *stage;
	uint8_t got[3000], wanted[3000];

	if (!is_near)
		return;
	assert_int_equal(map_stage_begin(near.map, 3, SIZE, 2, &stage), 0);
	while (flow.at < sizeof(got))
		add_piece(stage, &flow, sizeof(got) - flow.at);
	assert_int_equal(map_stage_read(stage, got), 0);
	map_stage_end(stage);
	fill(&again, wanted, sizeof(wanted));
	assert_memory_equal(got, wanted, sizeof(got));
}

static void map_stage_what_is_not_for_it_is_refused(void **state)
{
	struct map_stage *stage;

	(void)state;
	assert_int_equal(map_stage_begin(far.map, 3, SIZE, 2, &stage),
			 -EOPNOTSUPP);
	if (!is_near)
		return;
	assert_int_equal(map_stage_begin(near.map, 3, 1000, 2, &stage),
			 -EINVAL);
	assert_int_equal(map_stage_begin(near.map, 65537, SIZE, 2, &stage),
			 -EINVAL);
	assert_int_equal(
		map_stage_begin(near.map, 3, (64u << 20) + 1, 2, &stage),
		-EINVAL);
	/* There is not so much. */
	assert_int_equal(map_stage_begin(near.map, 3, 60u << 20, 2, &stage),
			 -ENOSPC);
}

/* --- from a socket --- */

struct receiver {
	struct map_stage *stage;
	int fd; /* one that blocks */
	_Atomic bool is_dry;
	_Atomic int failed;
};

static void *receive_all(void *arg)
{
	struct receiver *receiver = arg;
	struct pollfd pollfd = {receiver->fd, POLLIN, 0};

	while (!map_stage_is_whole(receiver->stage)) {
		ssize_t got = map_stage_receive(receiver->stage, receiver->fd,
						SIZE_MAX);

		if (got > 0)
			continue;
		if (got == 0 || errno != EAGAIN) {
			receiver->failed = errno;
			break;
		}
		receiver->is_dry = true;
		poll(&pollfd, 1, 1000);
	}
	return NULL;
}

/* Every key of the space's memory becomes void, which takes a withdraw from
 * every holder. */
static int revoke_keys(const struct user *user)
{
	struct reef_body body = {
		.ask.space_revoke.space = reef_space_id(user->space),
	};

	return reef_client_ask(user->reef, REEF_POOL_SPACE_REVOKE, true, &body,
			       NULL);
}

static void map_stage_sender_that_stops_holds_no_withdraw_up(void **state)
{
	struct flow flow = {.seed = 9};
	uint8_t *bytes = malloc(SIZE + 2);
	struct receiver receiver = {0};
	size_t half = 50001;
	pthread_t thread;
	int ends[2];

	if (!is_near) {
		free(bytes);
		return;
	}
	fill(&flow, bytes, SIZE + 2);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	receiver.fd = ends[1];
	assert_int_equal(map_stage_begin(near.map, 4, SIZE, 2, &receiver.stage),
			 0);
	assert_int_equal(send(ends[0], bytes, half, 0), half);
	assert_int_equal(pthread_create(&thread, NULL, receive_all, &receiver),
			 0);
	/* It has all of that, and now waits for more. */
	for (uint32_t i = 0; i < 10000000 && !receiver.is_dry; i++)
		sched_yield();
	assert_true(receiver.is_dry);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(revoke_keys(&far), 0);
	while (half < SIZE + 2) {
		ssize_t sent = send(ends[0], bytes + half, SIZE + 2 - half, 0);

		assert_true(sent > 0);
		half += (size_t)sent;
	}
	pthread_join(thread, NULL);
	assert_int_equal(receiver.failed, 0);
	assert_int_equal(map_stage_put(receiver.stage, near.map, "slow", 0), 0);
	map_stage_end(receiver.stage);
	expect(&far, "slow", 9);
	assert_int_equal(reef_map_delete(far.map, "slow", 4, 0), 0);
	close(ends[0]);
	close(ends[1]);
	free(bytes);
}

/* A forked child is told so, and keeps its hands off. */
static void map_stage_forked_child_takes_nothing(void **state)
{
	struct map_stage *stage;
	char bytes[2000] = {0};
	int ends[2], status;
	pid_t child;

	if (!is_near)
		return;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(map_stage_begin(near.map, 3, SIZE, 2, &stage), 0);
	map_stage_add(stage, bytes, sizeof(bytes));
	assert_int_equal(send(ends[0], bytes, sizeof(bytes), 0), sizeof(bytes));
	child = fork();
	if (!child) {
		if (map_stage_receive(stage, ends[1], SIZE) != sizeof(bytes))
			_exit(1);
		_exit(map_stage_read(stage, bytes) != -REEF_EFORKED);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	map_stage_end(stage);
	close(ends[0]);
	close(ends[1]);
}

/* --- pieces.h --- */

static void get_short(struct reef_map *map)
{
	static const size_t sizes[] = {0, 1, 1000, 1001, SIZE};
	struct reef_map_item items[6] = {0};
	char keys[6][4], *bytes = calloc(1, SIZE);
	uint32_t i, round;

	assert_non_null(bytes);
	for (i = 0; i < 6; i++) {
		items[i].key = memcpy(keys[i], "len", 4);
		items[i].key_size = 4;
		keys[i][3] = (char)('0' + i);
		if (i < 5)
			assert_int_equal(reef_map_put(map, keys[i], 4, bytes,
						      sizes[i], 0, NULL),
					 0);
	}
	/* In the second round their places are remembered. */
	for (round = 0; round < 2; round++) {
		assert_int_equal(map_get_many_short(map, items, 6, 1000), 0);
		for (i = 0; i < 5; i++) {
			assert_int_equal(items[i].status, 0);
			assert_int_equal(items[i].value.size, sizes[i]);
			assert_int_equal(!items[i].value.bytes,
					 sizes[i] > 1000);
			assert_true(items[i].value.room_size < SIZE);
		}
		assert_int_equal(items[5].status, -ENOENT);
	}
	assert_int_equal(reef_map_get_many(map, items, 6), 0);
	assert_non_null(items[4].value.bytes);
	for (i = 0; i < 6; i++)
		reef_map_value_free(&items[i].value);
	free(bytes);
}

static void map_pieces_long_values_are_not_read(void **state)
{
	(void)state;
	get_short(near.map);
	get_short(far.map);
}

static void map_pieces_clear_in_parts_clears_all(void **state)
{
	uint64_t cursor = 0, count;
	uint32_t i, parts = 0;

	(void)state;
	for (i = 0; i < 5000; i++)
		assert_int_equal(
			reef_map_put(near.map, &i, sizeof(i), "v", 1, 0, NULL),
			0);
	do {
		assert_int_equal(map_clear_some(far.map, &cursor), 0);
		parts++;
	} while (cursor);
	assert_true(parts > 1);
	assert_int_equal(reef_map_count(near.map, &count), 0);
	assert_int_equal(count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_stage_put_is_read_by_others),
		cmocka_unit_test(map_stage_ended_gives_its_memory_back),
		cmocka_unit_test(map_stage_half_can_be_read),
		cmocka_unit_test(map_stage_what_is_not_for_it_is_refused),
		cmocka_unit_test(
			map_stage_sender_that_stops_holds_no_withdraw_up),
		cmocka_unit_test(map_stage_forked_child_takes_nothing),
		cmocka_unit_test(map_pieces_long_values_are_not_read),
		cmocka_unit_test(map_pieces_clear_in_parts_clears_all),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

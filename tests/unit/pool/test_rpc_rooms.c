/* test_rpc_rooms.c - who asks for more than a share: rooms, accounts, answers
 * that are not read, requests that are answered later. In simulation: a server,
 * and a client that has several links. */
#include "fixture/rpc_station.h"
#include "fixture/seeds.h"
#include "fixture/try.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINKS 12
#define HANDLERS 16

struct many {
	struct reef_sim *sim;
	struct reef_sim_host *hosts[2];
	struct reef_fabric_options fabric;
	struct reef_rpc_options limits;
	struct station server, client;
	struct reef_peer *peers[LINKS];
	int (*script)(struct many *many);
	bool ready, over;
};

/* Links 0 to 2 are one user's, 3 to 9 are users of their own, then come the
 * owner and a node. */
static void place(struct reef_peer *peer)
{
	uint32_t number = (peer->session >> 16) - 1;

	peer->account = number < 3 ? 0 : number;
	if (number == LINKS - 2)
		peer->room = REEF_ROOM_OWNER;
	if (number == LINKS - 1)
		peer->room = REEF_ROOM_SERVERS;
}

static int open_station(struct many *many, struct station *station,
			struct reef_sim_host *host,
			const struct reef_rpc_options *limits)
{
	struct reef_mesh_options options = {.kinds = "sim",
					    .fabric = many->fabric};

	options.fabric.sim_host = host;
	return station_open(station, &options, limits);
}

static int run_server(struct reef_sim_host *host, void *arg)
{
	struct many *many = arg;
	int rc;

	many->server.place = place;
	TRY(open_station(many, &many->server, host, &many->limits));
	rc = station_listen(&many->server, "sim:server/1");
	many->ready = true;
	while (!rc && !many->over)
		rc = reef_sleep(MILLISECOND);
	station_close(&many->server);
	return rc;
}

static int run_client(struct reef_sim_host *host, void *arg)
{
	struct many *many = arg;
	int rc;

	rc = open_station(many, &many->client, host, NULL);
	while (!rc && !many->ready)
		rc = reef_sleep(MILLISECOND);
	for (uint32_t i = 0; !rc && i < LINKS; i++) {
		rc = station_connect(&many->client, "sim:server/1",
				     SESSION(i + 1));
		many->peers[i] = many->client.peer;
	}
	if (!rc)
		rc = many->script(many);
	if (many->client.rpc)
		station_close(&many->client);
	many->over = true;
	return rc;
}

static void run(const struct many *from)
{
	struct many many;
	int result;

	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct reef_sim_options options = {.seed = seed};

		many = *from;
		assert_int_equal(reef_sim_create(&options, &many.sim), 0);
		assert_int_equal(reef_sim_host_add(many.sim, "server",
						   run_server, &many,
						   &many.hosts[0]),
				 0);
		assert_int_equal(reef_sim_host_add(many.sim, "client",
						   run_client, &many,
						   &many.hosts[1]),
				 0);
		assert_int_equal(reef_sim_run(many.sim, 100 * SECOND), 0);
		assert_int_equal(reef_sim_host_result(many.hosts[1], &result),
				 0);
		assert_int_equal(result, 0);
		reef_sim_destroy(many.sim);
	}
}

/* --- many questions at once --- */

struct asker {
	struct reef_peer *peer;
	uint32_t what, rows;
	int rc;
	struct reef_fiber *fiber;
};

static int ask(void *arg)
{
	struct asker *asker = arg;

	asker->rc = asker->rows ? station_ask_rows(asker->peer, asker->rows)
				: station_ask(asker->peer, asker->what, 5,
					      20 * SECOND);
	return 0;
}

static int begin_asking(struct asker *askers, uint32_t count,
			struct asker question)
{
	for (uint32_t i = 0; i < count; i++) {
		askers[i] = question;
		askers[i].rc = 1;
		TRY(reef_fiber_spawn(reef_fiber_sched(), ask, &askers[i],
				     &askers[i].fiber));
	}
	return reef_sleep(20 * MILLISECOND);
}

/* How many of them got `want`. */
static int end_asking(struct asker *askers, uint32_t count, int want)
{
	int found = 0;

	for (uint32_t i = 0; i < count; i++) {
		TRY(reef_fiber_join(askers[i].fiber, NULL));
		found += askers[i].rc == want;
	}
	return found;
}

/* --- handlers --- */

static int one_asks_for_all(struct many *many)
{
	struct asker askers[3][HANDLERS];
	int done = 0;

	for (uint32_t i = 0; i < 3; i++)
		TRY(begin_asking(
			askers[i], HANDLERS,
			(struct asker){.peer = many->peers[i], .what = SLOW}));
	for (uint32_t i = 3; i < LINKS; i++)
		TRY(station_ask(many->peers[i], ECHO, 1, SECOND));
	for (uint32_t i = 0; i < 3; i++)
		done += end_asking(askers[i], HANDLERS, 0);
	WANT(done == HANDLERS / 2);
	return 0;
}

static void rpc_rooms_one_account_leaves_half(void **state)
{
	struct many many = {.script = one_asks_for_all,
			    .server = {.slow_ns = SECOND},
			    .limits = {.handlers_max = HANDLERS}};

	(void)state;
	run(&many);
}

static int all_users_ask_for_all(struct many *many)
{
	struct asker askers[10][HANDLERS];
	int done = 0;

	for (uint32_t i = 0; i < 10; i++)
		TRY(begin_asking(
			askers[i], HANDLERS,
			(struct asker){.peer = many->peers[i], .what = SLOW}));
	WANT(station_ask(many->peers[9], ECHO, 1, SECOND) == -EBUSY);
	TRY(station_ask(many->peers[10], ECHO, 1, SECOND));
	TRY(station_ask(many->peers[11], ECHO, 1, SECOND));
	for (uint32_t i = 0; i < 10; i++)
		done += end_asking(askers[i], HANDLERS, 0);
	WANT(done <= HANDLERS);
	/* And all is as before. */
	for (uint32_t i = 0; i < LINKS; i++)
		TRY(station_ask(many->peers[i], ECHO, 1, SECOND));
	return 0;
}

static void rpc_rooms_users_leave_the_owner_and_nodes_theirs(void **state)
{
	struct many many = {.script = all_users_ask_for_all,
			    .server = {.slow_ns = SECOND},
			    .limits = {.handlers_max = HANDLERS}};

	(void)state;
	run(&many);
}

/* --- answers that wait --- */

static int one_asks_for_much(struct many *many)
{
	struct asker askers[3][60];
	struct reef_rpc_counts counts;
	int busy = 0;

	for (uint32_t i = 0; i < 3; i++)
		TRY(begin_asking(
			askers[i], 60,
			(struct asker){.peer = many->peers[i], .rows = 100}));
	for (uint32_t i = 3; i < LINKS; i++)
		TRY(station_ask_rows(many->peers[i], 100));
	for (uint32_t i = 0; i < 3; i++)
		busy += end_asking(askers[i], 60, -EBUSY);
	reef_rpc_counts(many->server.rpc, &counts);
	WANT(busy > 0 && counts.refused >= (uint32_t)busy);
	TRY(station_ask_rows(many->peers[0], 100));
	return 0;
}

static void rpc_rooms_unread_answers_are_bounded(void **state)
{
	struct many many = {.script = one_asks_for_much,
			    .fabric = {.inbox_max = 1, .depth_max = 1},
			    .limits = {.unread_max = 12000}};

	(void)state;
	run(&many);
}

/* --- later --- */

/* Who waits for an event takes no handler, however many they are. */
static int many_wait(struct many *many)
{
	struct asker askers[3][HANDLERS];
	struct reef_rpc_counts counts;

	for (uint32_t i = 0; i < 3; i++)
		TRY(begin_asking(
			askers[i], HANDLERS,
			(struct asker){.peer = many->peers[i], .what = LATER}));
	WANT(many->server.laters_count == 3 * HANDLERS);
	WANT(many->server.running == 0);
	TRY(station_ask(many->peers[0], ECHO, 1, SECOND));
	TRY(station_ask(many->peers[3], OTHERS, 1, SECOND));
	for (uint32_t i = 0; i < 3; i++)
		WANT(end_asking(askers[i], HANDLERS, 0) == HANDLERS);
	reef_rpc_counts(many->server.rpc, &counts);
	WANT(counts.refused == 0);
	return 0;
}

static void rpc_rooms_who_waits_takes_no_handler(void **state)
{
	struct many many = {.script = many_wait,
			    .limits = {.handlers_max = HANDLERS}};

	(void)state;
	run(&many);
}

/* A peer's own limit counts those that wait. */
static int too_many_wait(struct many *many)
{
	struct asker askers[HANDLERS];

	TRY(begin_asking(
		askers, HANDLERS,
		(struct asker){.peer = many->peers[0], .what = LATER}));
	WANT(many->server.laters_count == 3);
	WANT(station_ask(many->peers[0], ECHO, 1, SECOND) == -EBUSY);
	TRY(station_ask(many->peers[1], OTHERS, 1, SECOND));
	WANT(end_asking(askers, HANDLERS, 0) == 3);
	return station_ask(many->peers[0], ECHO, 1, SECOND);
}

static void rpc_rooms_who_waits_counts_for_its_peer(void **state)
{
	struct many many = {.script = too_many_wait, .limits = {.peer_max = 3}};

	(void)state;
	run(&many);
}

/* The link is gone before the answer is there. */
static int goes_while_it_waits(struct many *many)
{
	struct asker askers[3];

	TRY(begin_asking(
		askers, 3,
		(struct asker){.peer = many->peers[0], .what = LATER}));
	reef_peer_close(many->peers[0]);
	WANT(end_asking(askers, 3, -REEF_EINDOUBT) == 3);
	TRY(reef_sleep(20 * MILLISECOND));
	TRY(station_ask(many->peers[3], OTHERS, 1, SECOND));
	WANT(many->server.laters_count == 0);
	return station_ask(many->peers[1], ECHO, 1, SECOND);
}

static void rpc_rooms_later_answer_to_nobody_is_dropped(void **state)
{
	struct many many = {.script = goes_while_it_waits};

	(void)state;
	run(&many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_rooms_one_account_leaves_half),
		cmocka_unit_test(
			rpc_rooms_users_leave_the_owner_and_nodes_theirs),
		cmocka_unit_test(rpc_rooms_unread_answers_are_bounded),
		cmocka_unit_test(rpc_rooms_who_waits_takes_no_handler),
		cmocka_unit_test(rpc_rooms_who_waits_counts_for_its_peer),
		cmocka_unit_test(rpc_rooms_later_answer_to_nobody_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

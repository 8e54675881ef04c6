/* test_rpc.c - calls over links: one situation each, in simulation, and once
 * with threads on shm and tcp. test_rpc_chaos.c has the seeds. */
#include "base/log.h"
#include "fixture/rpc_station.h"
#include "fixture/scratch.h"
#include "fixture/seeds.h"
#include "fixture/try.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- two hosts: a server that stays until the client's script is over --- */

struct duo {
	struct reef_sim *sim;
	struct reef_sim_host *hosts[2];
	struct reef_fabric_options fabric;
	struct reef_rpc_options limits; /* of the server */
	struct station server, client;
	int (*script)(struct duo *duo);
	bool ready, over, server_gone;
	uint64_t note[4];
};

static int duo_open(struct duo *duo, struct station *station,
		    struct reef_sim_host *host,
		    const struct reef_rpc_options *limits)
{
	struct reef_mesh_options options = {.kinds = "sim",
					    .fabric = duo->fabric};

	options.fabric.sim_host = host;
	return station_open(station, &options, limits);
}

static int duo_server(struct reef_sim_host *host, void *arg)
{
	struct duo *duo = arg;
	int rc;

	TRY(duo_open(duo, &duo->server, host, &duo->limits));
	rc = station_listen(&duo->server, "sim:server/1");
	duo->ready = true;
	while (!rc && !duo->over)
		rc = reef_sleep(MILLISECOND);
	station_close(&duo->server);
	duo->server_gone = true;
	return rc;
}

static int duo_client(struct reef_sim_host *host, void *arg)
{
	struct duo *duo = arg;
	int rc;

	rc = duo_open(duo, &duo->client, host, NULL);
	while (!rc && !duo->ready)
		rc = reef_sleep(MILLISECOND);
	if (!rc)
		rc = station_connect(&duo->client, "sim:server/1", SESSION(1));
	if (!rc)
		rc = duo->script(duo);
	if (duo->client.rpc)
		station_close(&duo->client);
	duo->over = true;
	return rc;
}

static void run_seed(struct duo *duo, uint64_t seed, int want)
{
	struct reef_sim_options options = {.seed = seed};
	int result;

	assert_int_equal(reef_sim_create(&options, &duo->sim), 0);
	assert_int_equal(reef_sim_host_add(duo->sim, "server", duo_server, duo,
					   &duo->hosts[0]),
			 0);
	assert_int_equal(reef_sim_host_add(duo->sim, "client", duo_client, duo,
					   &duo->hosts[1]),
			 0);
	assert_int_equal(reef_sim_run(duo->sim, 100 * SECOND), 0);
	assert_int_equal(reef_sim_host_result(duo->hosts[1], &result), 0);
	if (result != want)
		print_error("seed %lu: %s\n", (unsigned long)seed,
			    reef_error_text(result));
	assert_int_equal(result, want);
	reef_sim_destroy(duo->sim);
	assert_int_equal(duo->server.opened, duo->server.closed);
}

static void run(const struct duo *duo, int want)
{
	struct duo copy;

	for (uint64_t seed = seeds_first(); seeds_has(seed, 20); seed++) {
		copy = *duo;
		run_seed(&copy, seed, want);
	}
}

/* --- calls --- */

static int both_ways(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;
	struct reef_rpc_counts counts;

	TRY(station_ask(peer, ECHO, 7, SECOND));
	WANT(station_ask(peer, FAIL, 8, SECOND) == -ENOENT);
	TRY(station_ask(peer, BACK, 9, SECOND));
	WANT(duo->server.back_failed == 0);
	TRY(station_ask_rows(peer, 0));
	TRY(station_ask_rows(peer, 100));
	WANT(reef_rpc_call(peer, REEF_POOL_STATUS, 0, NULL, NULL, SECOND) ==
	     -EOPNOTSUPP);
	reef_rpc_counts(duo->server.rpc, &counts);
	WANT(counts.handled == 6 && counts.calls == 1);
	WANT(!counts.refused && !counts.malformed && !counts.unasked);
	return 0;
}

static void rpc_call_is_answered_both_ways(void **state)
{
	struct duo duo = {.script = both_ways};

	run(&duo, 0);
}

static int late(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;
	struct reef_rpc_counts counts;

	WANT(station_ask(peer, SLOW, 1, MILLISECOND) == -ETIMEDOUT);
	TRY(station_ask(peer, ECHO, 2, SECOND));
	TRY(reef_sleep(200 * MILLISECOND));
	reef_rpc_counts(duo->client.rpc, &counts);
	WANT(counts.unasked == 1);
	return station_ask(peer, SLOW, 3, SECOND);
}

static void rpc_late_answer_is_ignored(void **state)
{
	struct duo duo = {.script = late,
			  .server = {.slow_ns = 50 * MILLISECOND}};

	run(&duo, 0);
}

static int tell_notes(struct duo *duo)
{
	for (int i = 0; i < 5; i++)
		TRY(reef_rpc_note(duo->client.peer, REEF_POOL_NOTICE, NULL));
	TRY(reef_sleep(100 * MILLISECOND));
	WANT(duo->server.notes == 5);
	return 0;
}

static void rpc_note_is_told(void **state)
{
	struct duo duo = {.script = tell_notes};

	run(&duo, 0);
}

static int too_long(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;
	char *name = malloc(60000);
	struct reef_body body = {.ask.name_bind.name = {name, 60000}};
	int rc;

	if (!name)
		return -ENOMEM;
	memset(name, 'x', 60000);
	rc = reef_rpc_call(peer, REEF_POOL_NAME_BIND, 0, &body, NULL, SECOND);
	free(name);
	WANT(rc == -EMSGSIZE);
	WANT(station_ask_rows(peer, 1000) == -EMSGSIZE);
	return station_ask(peer, ECHO, 1, SECOND);
}

static void rpc_too_long_is_told(void **state)
{
	struct duo duo = {.script = too_long, .fabric = {.message_max = 4096}};

	run(&duo, 0);
}

static int lower_epoch(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;
	struct reef_answer answer = {0};

	TRY(reef_rpc_call(peer, REEF_POOL_NAME_LIST, 0, NULL, &answer, SECOND));
	WANT(answer.epoch == 5 && peer->epoch == 5);
	reef_answer_free(&answer);
	reef_rpc_set_epoch(duo->server.rpc, 4);
	WANT(station_ask(peer, ECHO, 1, SECOND) == -ESTALE);
	/* And what it asks us is refused. */
	duo->server.back_failed = 0;
	WANT(station_ask(peer, BACK, 1, SECOND) == -ESTALE);
	WANT(duo->server.back_failed == 1);
	reef_rpc_set_epoch(duo->server.rpc, 6);
	return station_ask(peer, BACK, 1, SECOND);
}

static void rpc_lower_epoch_is_stale(void **state)
{
	struct duo duo = {.script = lower_epoch, .limits = {.epoch = 5}};

	run(&duo, 0);
}

/* Somebody who is none speaks like a broker, and then does not any more. */
static int epoch_of_others(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;

	reef_rpc_set_epoch(duo->client.rpc, 9);
	TRY(station_ask(peer, ECHO, 1, SECOND));
	reef_rpc_set_epoch(duo->client.rpc, 0);
	TRY(station_ask(peer, ECHO, 1, SECOND));
	TRY(station_ask(peer, BACK, 1, SECOND));
	WANT(duo->server.back_failed == 0);
	return 0;
}

static void rpc_broker_hears_no_epochs(void **state)
{
	struct duo duo = {.script = epoch_of_others, .limits = {.epoch = 5}};

	run(&duo, 0);
}

/* --- many at once --- */

struct asker {
	struct reef_peer *peer;
	uint32_t what;
	uint64_t timeout_ns;
	int rc;
};

static int asker_main(void *arg)
{
	struct asker *asker = arg;

	asker->rc = station_ask(asker->peer, asker->what, 5, asker->timeout_ns);
	return 0;
}

/* How many of `count` askers at once got `want`, or a negative code. */
static int ask_all(struct reef_peer *peer, uint32_t what, int count, int want)
{
	struct asker askers[256];
	struct reef_fiber *fibers[256];
	int result = 0;

	for (int i = 0; i < count; i++) {
		askers[i] = (struct asker){peer, what, 5 * SECOND, 1};
		TRY(reef_fiber_spawn(reef_fiber_sched(), asker_main, &askers[i],
				     &fibers[i]));
	}
	for (int i = 0; i < count; i++) {
		TRY(reef_fiber_join(fibers[i], NULL));
		result += askers[i].rc == want;
	}
	return result;
}

static int flood(struct duo *duo)
{
	struct reef_rpc_counts counts;

	WANT(ask_all(duo->client.peer, SLOW, 20, -EBUSY) == 17);
	WANT(duo->server.running_most == 3);
	reef_rpc_counts(duo->server.rpc, &counts);
	WANT(counts.handled == 3 && counts.refused == 17);
	return station_ask(duo->client.peer, SLOW, 1, SECOND);
}

static void rpc_over_the_limit_of_a_peer_is_busy(void **state)
{
	struct duo duo = {.script = flood,
			  .server = {.slow_ns = 50 * MILLISECOND},
			  .limits = {.peer_max = 3}};

	run(&duo, 0);
}

static void rpc_over_the_limit_of_all_is_busy(void **state)
{
	struct duo duo = {.script = flood,
			  .server = {.slow_ns = 50 * MILLISECOND},
			  .limits = {.handlers_max = 5}}; /* half of them */

	run(&duo, 0);
}

/* Both ask each other, with nearly no room between them. */
static int cramped(struct duo *duo)
{
	WANT(ask_all(duo->client.peer, BACK, 60, 0) == 60);
	WANT(duo->server.back_failed == 0);
	return 0;
}

static void rpc_full_inboxes_on_both_sides_go_on(void **state)
{
	struct duo duo = {.script = cramped,
			  .fabric = {.inbox_max = 1, .depth_max = 1}};

	run(&duo, 0);
}

static int crowd(struct duo *duo)
{
	int done = ask_all(duo->client.peer, ECHO, 256, 0);

	/* 4 times peer_max may wait; the link takes nobody meanwhile. */
	WANT(done > 0);
	WANT(ask_all(duo->client.peer, ECHO, 10, 0) == 10);
	return 0;
}

static void rpc_more_than_may_wait_is_busy(void **state)
{
	struct duo duo = {.script = crowd, .fabric = {.depth_max = 1}};

	run(&duo, 0);
}

/* --- losses --- */

static int loser_main(void *arg)
{
	struct duo *duo = arg;

	TRY(reef_sleep(10 * MILLISECOND));
	reef_sim_lose_link(duo->client.peer->link);
	return 0;
}

static int lost(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;

	TRY(reef_fiber_spawn(reef_fiber_sched(), loser_main, duo, NULL));
	WANT(station_ask(peer, SLOW, 1, 10 * SECOND) == -REEF_EINDOUBT);
	WANT(!peer->link && duo->client.lost == 1);
	WANT(station_ask(peer, ECHO, 1, SECOND) == -REEF_ENOLINK);
	WANT(reef_rpc_note(peer, REEF_POOL_NOTICE, NULL) == -REEF_ENOLINK);
	reef_peer_close(peer);
	TRY(station_connect(&duo->client, "sim:server/1", SESSION(1)));
	TRY(station_ask(duo->client.peer, ECHO, 1, SECOND));
	WANT(duo->client.lost == 1);
	return 0;
}

static void rpc_lost_link_is_told_once(void **state)
{
	struct duo duo = {.script = lost, .server = {.slow_ns = SECOND}};

	run(&duo, 0);
}

static int closer_main(void *arg)
{
	struct duo *duo = arg;

	TRY(reef_sleep(10 * MILLISECOND));
	reef_peer_close(duo->client.peer);
	return 0;
}

static int closed_under_way(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;
	int rc;

	reef_peer_ref(peer);
	TRY(reef_fiber_spawn(reef_fiber_sched(), closer_main, duo, NULL));
	rc = station_ask(peer, SLOW, 1, 10 * SECOND);
	WANT(rc == -REEF_EINDOUBT && !peer->link && !duo->client.lost);
	WANT(station_ask(peer, ECHO, 1, SECOND) == -REEF_ENOLINK);
	reef_peer_unref(peer);
	/* The server's end is gone, too, and what it did was for nobody. */
	TRY(reef_sleep(5 * SECOND));
	WANT(duo->server.closed == 1 && duo->server.running == 0);
	return 0;
}

static void rpc_closed_peer_ends_its_calls(void **state)
{
	struct duo duo = {.script = closed_under_way,
			  .server = {.slow_ns = SECOND}};

	run(&duo, 0);
}

static int fenced(struct duo *duo)
{
	struct reef_peer *peer = duo->client.peer;

	TRY(station_ask(peer, ECHO, 1, SECOND));
	TRY(reef_fence(reef_port_queue(duo->server.port, 0), SESSION(1),
		       SECOND));
	TRY(reef_sleep(5 * SECOND));
	WANT(station_ask(peer, ECHO, 1, SECOND) == -REEF_EFENCED);
	WANT(duo->client.reason == -REEF_EFENCED);
	return 0;
}

static int destroyer_main(void *arg)
{
	struct duo *duo = arg;

	TRY(reef_sleep(10 * MILLISECOND));
	station_close(&duo->client);
	duo->note[0] = 1;
	return 0;
}

static int destroyed_under_way(struct duo *duo)
{
	TRY(reef_fiber_spawn(reef_fiber_sched(), destroyer_main, duo, NULL));
	WANT(ask_all(duo->client.peer, SLOW, 10, -REEF_EINDOUBT) == 10);
	while (!duo->note[0])
		TRY(reef_sleep(MILLISECOND));
	WANT(duo->client.reason == -ECANCELED);
	return 0;
}

static void rpc_destroyed_ends_its_calls(void **state)
{
	struct duo duo = {.script = destroyed_under_way,
			  .server = {.slow_ns = SECOND}};

	run(&duo, 0);
}

static void rpc_destroyed_waits_for_its_handlers(void **state)
{
	struct duo duo = {.script = late,
			  .server = {.slow_ns = 50 * MILLISECOND}};

	/* The script's last request but one is still handled when it ends. */
	run(&duo, 0);
}

/* --- kills --- */

static int killer_main(void *arg)
{
	struct duo *duo = arg;

	TRY(reef_sleep(10 * MILLISECOND));
	reef_sim_host_kill(duo->hosts[duo->note[0]]);
	return 0;
}

static int killed(struct duo *duo)
{
	struct reef_group *outside = reef_sched_group(reef_fiber_sched());
	struct reef_peer *peer = duo->client.peer;

	TRY(reef_fiber_spawn_in(outside, killer_main, duo, NULL));
	if (duo->note[0] == 1) {
		WANT(ask_all(peer, SLOW, 10, -REEF_EHOSTDEAD) ==
		     -REEF_EHOSTDEAD);
		return -REEF_EHOSTDEAD;
	}
	WANT(ask_all(peer, SLOW, 10, -REEF_EINDOUBT) == 10);
	WANT(!peer->link && duo->client.lost == 1);
	return 0;
}

static void rpc_killed_server_leaves_calls_in_doubt(void **state)
{
	struct duo duo = {.script = killed, .server = {.slow_ns = SECOND}};

	run(&duo, 0);
}

static int killed_client(struct duo *duo)
{
	struct reef_group *outside = reef_sched_group(reef_fiber_sched());
	int rc = 0;

	TRY(reef_fiber_spawn_in(outside, killer_main, duo, NULL));
	while (!rc)
		rc = station_ask(duo->client.peer, BACK, 1, SECOND);
	return rc;
}

static void rpc_killed_client_unwinds(void **state)
{
	struct duo duo = {.script = killed_client, .note = {1}};

	run(&duo, -REEF_EHOSTDEAD);
}

static void rpc_fenced_is_told(void **state)
{
	struct duo duo = {.script = fenced};

	run(&duo, 0);
}

/* --- peers that do not keep to it --- */

struct raw {
	struct duo *duo;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *link;
};

static int raw_open(struct raw *raw, struct duo *duo)
{
	struct reef_fabric_options fabric = duo->fabric;
	struct reef_connect_options options = {
		.session = SESSION(2),
		.identity = "test",
		.timeout_ns = SECOND,
	};
	int rc;

	*raw = (struct raw){.duo = duo};
	memset(options.key, 7, REEF_KEY_SIZE);
	fabric.sim_host = duo->hosts[1];
	TRY(reef_fabric_open("sim", &fabric, &raw->fabric));
	rc = reef_queue_open(raw->fabric, NULL, &raw->queue);
	return rc ? rc
		  : reef_connect(raw->queue, "sim:server/1", &options,
				 &raw->link);
}

static void raw_close(struct raw *raw)
{
	reef_link_close(raw->link);
	reef_queue_close(raw->queue);
	reef_fabric_close(raw->fabric);
}

static int raw_send(struct raw *raw, const void *bytes, size_t size)
{
	struct reef_op op = {.kind = REEF_SEND,
			     .local = (void *)bytes,
			     .length = (uint32_t)size};
	struct reef_batch batch = {.link = raw->link, .ops = &op, .count = 1};

	return reef_run(raw->queue, &batch);
}

static int raw_garbage(struct raw *raw)
{
	struct reef_random *random = reef_sim_host_random(raw->duo->hosts[1]);
	struct reef_pool_header header = {.version = REEF_POOL_VERSION,
					  .type = REEF_POOL_REQUEST,
					  .kind = REEF_POOL_NAME_BIND,
					  .id = 1};
	struct reef_cursor_out out = {0};
	uint8_t noise[64];
	int rc = 0;

	reef_pool_encode(&header, NULL, &out);
	for (int i = 0; !rc && i < 100; i++) {
		reef_random_fill(random, noise, sizeof(noise));
		rc = raw_send(raw, noise,
			      reef_random_below(random, sizeof(noise)));
	}
	for (size_t i = 0; !rc && i < out.size; i++)
		rc = raw_send(raw, out.bytes, i);
	/* Answers that nobody waits for. */
	out.bytes[1] = REEF_POOL_ANSWER;
	reef_put16(out.bytes + 2, REEF_POOL_FENCE);
	for (int i = 0; !rc && i < 10; i++)
		rc = raw_send(raw, out.bytes, REEF_POOL_HEADER_SIZE);
	free(out.bytes);
	return rc;
}

static int garbage(struct duo *duo)
{
	struct reef_rpc_counts counts;
	struct raw raw;
	int rc;

	rc = raw_open(&raw, duo);
	if (!rc)
		rc = raw_garbage(&raw);
	if (!rc)
		rc = station_ask(duo->client.peer, BACK, 1, SECOND);
	raw_close(&raw);
	TRY(rc);
	reef_rpc_counts(duo->server.rpc, &counts);
	WANT(counts.malformed >= 100 && counts.unasked == 10);
	WANT(counts.handled == 1);
	return 0;
}

static void rpc_garbage_is_dropped(void **state)
{
	struct duo duo = {.script = garbage};

	run(&duo, 0);
}

/* Ask in another version of the protocol, or for what is not known in this one.
 * The body may be anything. */
static int raw_ask_foreign(struct raw *raw, uint8_t version, uint16_t kind)
{
	struct reef_pool_header header = {.version = version,
					  .type = REEF_POOL_REQUEST,
					  .kind = kind,
					  .id = 77};
	uint8_t bytes[REEF_POOL_HEADER_SIZE + 5] = {0};
	struct reef_message *message;
	const uint8_t *answer;
	int32_t status;

	bytes[0] = header.version;
	bytes[1] = header.type;
	reef_put16(bytes + 2, header.kind);
	reef_put32(bytes + 4, header.id);
	TRY(raw_send(raw, bytes, sizeof(bytes)));
	TRY(reef_receive(raw->queue, SECOND, &message));
	answer = message->bytes;
	status = (int32_t)reef_get32(answer + 8);
	WANT(message->length == REEF_POOL_HEADER_SIZE);
	WANT(answer[0] == version && answer[1] == REEF_POOL_ANSWER);
	WANT(reef_get16(answer + 2) == kind && reef_get32(answer + 4) == 77);
	WANT(status == -REEF_EVERSION);
	reef_message_free(message);
	return 0;
}

static int foreign(struct duo *duo)
{
	struct raw raw;
	int rc;

	rc = raw_open(&raw, duo);
	if (!rc)
		rc = raw_ask_foreign(&raw, 1, REEF_POOL_NAME_BIND);
	if (!rc)
		rc = raw_ask_foreign(&raw, REEF_POOL_VERSION + 1, 65535);
	if (!rc)
		rc = raw_ask_foreign(&raw, REEF_POOL_VERSION, REEF_POOL_KINDS);
	raw_close(&raw);
	return rc;
}

static void rpc_request_of_another_version_is_told_so(void **state)
{
	struct duo duo = {.script = foreign};

	run(&duo, 0);
}

/* It asks, and never takes an answer: each costs the server nothing more. */
static int raw_stuffed(struct raw *raw)
{
	struct reef_pool_header header = {.version = REEF_POOL_VERSION,
					  .type = REEF_POOL_REQUEST,
					  .kind = REEF_POOL_NAME_LIST};
	struct reef_cursor_out out = {0};
	int rc = 0;

	for (uint32_t i = 1; !rc && i < 400; i++) {
		header.id = i;
		out.size = 0;
		reef_pool_encode(&header, NULL, &out);
		rc = raw_send(raw, out.bytes, out.size);
	}
	free(out.bytes);
	return rc;
}

static int stuffed(struct duo *duo)
{
	struct reef_rpc_counts counts;
	struct raw raw;
	int rc;

	rc = raw_open(&raw, duo);
	if (!rc)
		rc = raw_stuffed(&raw);
	if (!rc)
		rc = station_ask(duo->client.peer, BACK, 1, SECOND);
	raw_close(&raw);
	TRY(rc);
	reef_rpc_counts(duo->server.rpc, &counts);
	WANT(counts.handled < 400 && counts.refused > 0);
	WANT(counts.handled + counts.refused == 400);
	TRY(reef_sleep(5 * SECOND));
	WANT(duo->server.closed == 1);
	return 0;
}

static void rpc_peer_that_takes_nothing_costs_a_bounded_part(void **state)
{
	struct duo duo = {.script = stuffed,
			  .limits = {.peer_max = 4},
			  .fabric = {.inbox_max = 4, .depth_max = 8}};

	run(&duo, 0);
}

/* --- threads --- */

struct threaded {
	struct station server;
	const char *kinds;
	char listen[256], address[256];
	pthread_t thread;
	_Atomic bool ready, over;
	int result;
};

static int threaded_server(void *arg)
{
	struct threaded *threaded = arg;
	struct reef_mesh_options options = {.kinds = threaded->kinds};
	int rc;

	rc = station_open(&threaded->server, &options, NULL);
	if (!rc)
		rc = station_listen(&threaded->server, threaded->listen);
	threaded->result = rc;
	atomic_store(&threaded->ready, true);
	while (!rc && !atomic_load(&threaded->over))
		rc = reef_sleep(MILLISECOND);
	if (threaded->server.rpc)
		station_close(&threaded->server);
	return rc;
}

static void *threaded_main(void *arg)
{
	struct reef_sched *sched;

	if (reef_sched_create(NULL, &sched))
		return NULL;
	if (!reef_fiber_spawn(sched, threaded_server, arg, NULL))
		reef_sched_run(sched);
	reef_sched_destroy(sched);
	return NULL;
}

static int threaded_client(void *arg)
{
	struct threaded *threaded = arg;
	struct reef_mesh_options options = {.kinds = threaded->kinds};
	struct station client = {.close_in_closed = true};
	int rc;

	while (!atomic_load(&threaded->ready))
		TRY(reef_sleep(MILLISECOND));
	TRY(threaded->result);
	TRY(station_open(&client, &options, NULL));
	rc = station_connect(&client, threaded->server.address, SESSION(1));
	for (int i = 0; !rc && i < 20; i++)
		rc = ask_all(client.peer, i & 1 ? BACK : ECHO, 50, 0) == 50
			     ? 0
			     : -EXDEV;
	if (!rc)
		rc = station_ask_rows(client.peer, 1000);
	if (!rc)
		rc = station_ask_rows(client.peer, 10000) == -EMSGSIZE ? 0
								       : -EXDEV;
	/* The server goes first: that is noticed, and the peer given up. */
	atomic_store(&threaded->over, true);
	while (!rc && client.peer)
		rc = reef_sleep(MILLISECOND);
	if (!rc && client.lost != 1)
		rc = -EXDEV;
	station_close(&client);
	return rc;
}

static void run_threaded(const char *kinds, const char *address)
{
	struct threaded threaded = {.kinds = kinds};
	struct reef_sched *sched;
	struct reef_fiber *fiber;
	int result;

	snprintf(threaded.listen, sizeof(threaded.listen), "%s", address);
	assert_int_equal(pthread_create(&threaded.thread, NULL, threaded_main,
					&threaded),
			 0);
	assert_int_equal(reef_sched_create(NULL, &sched), 0);
	assert_int_equal(
		reef_fiber_spawn(sched, threaded_client, &threaded, &fiber), 0);
	assert_int_equal(reef_sched_run(sched), 0);
	assert_int_equal(reef_fiber_join(fiber, &result), 0);
	atomic_store(&threaded.over, true);
	pthread_join(threaded.thread, NULL);
	reef_sched_destroy(sched);
	assert_int_equal(result, 0);
	assert_int_equal(threaded.server.opened, 1);
	assert_int_equal(threaded.server.closed, 1);
}

static void rpc_over_shm_between_threads(void **state)
{
	char address[128];

	snprintf(address, sizeof(address), "shm:%s", scratch_path("door"));
	run_threaded("shm", address);
}

static void rpc_over_tcp_between_threads(void **state)
{
	run_threaded("tcp", "tcp:127.0.0.1:0");
}

static void rpc_over_a_mesh_between_threads(void **state)
{
	char address[128];

	snprintf(address, sizeof(address), "tcp:127.0.0.1:0 shm:%s",
		 scratch_path("door"));
	run_threaded("shm tcp", address);
}

#define IN_SCRATCH(name)                                                       \
	cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_call_is_answered_both_ways),
		cmocka_unit_test(rpc_late_answer_is_ignored),
		cmocka_unit_test(rpc_note_is_told),
		cmocka_unit_test(rpc_too_long_is_told),
		cmocka_unit_test(rpc_lower_epoch_is_stale),
		cmocka_unit_test(rpc_broker_hears_no_epochs),
		cmocka_unit_test(rpc_over_the_limit_of_a_peer_is_busy),
		cmocka_unit_test(rpc_over_the_limit_of_all_is_busy),
		cmocka_unit_test(rpc_full_inboxes_on_both_sides_go_on),
		cmocka_unit_test(rpc_more_than_may_wait_is_busy),
		cmocka_unit_test(rpc_lost_link_is_told_once),
		cmocka_unit_test(rpc_closed_peer_ends_its_calls),
		cmocka_unit_test(rpc_fenced_is_told),
		cmocka_unit_test(rpc_destroyed_ends_its_calls),
		cmocka_unit_test(rpc_destroyed_waits_for_its_handlers),
		cmocka_unit_test(rpc_killed_server_leaves_calls_in_doubt),
		cmocka_unit_test(rpc_killed_client_unwinds),
		cmocka_unit_test(rpc_garbage_is_dropped),
		cmocka_unit_test(rpc_request_of_another_version_is_told_so),
		cmocka_unit_test(
			rpc_peer_that_takes_nothing_costs_a_bounded_part),
		IN_SCRATCH(rpc_over_shm_between_threads),
		cmocka_unit_test(rpc_over_tcp_between_threads),
		IN_SCRATCH(rpc_over_a_mesh_between_threads),
	};

	reef_log_set(reef_log_to_stream, stderr, REEF_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

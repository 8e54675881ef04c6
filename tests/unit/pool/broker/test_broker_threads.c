/* test_broker_threads.c - a broker on a thread of its own, with shm, tcp, a
 * real disk and the journal's thread: what differs by fabric, and that all of
 * it works together. */
#include "base/fiber/sched.h"
#include "base/store/store.h"
#include "fixture/scratch.h"
#include "fixture/try.h"
#include "fixture/units.h"
#include "pool/broker/broker.h"
#include "pool/broker/state/state.h"
#include "pool/keys.h"
#include "pool/rpc.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* --- the broker's thread --- */

static struct server {
	pthread_t thread;
	struct reef_sched *sched;
	struct reef_key key;
	uint64_t ttl_ns;
	bool lease_kills;
	char addresses[512], listen[512], directory[256];
	uint64_t epoch;
	int rc;
	_Atomic int ready; /* 1: serves or failed */
	_Atomic bool over;
} server;

static int serve(void *arg)
{
	struct reef_mesh_options kinds = {.kinds = "shm tcp"};
	struct reef_broker_options options = {
		.key = &server.key,
		.listen = server.listen,
		.ttl_ns = server.ttl_ns,
		.lease_kills = server.lease_kills,
	};
	struct reef_broker *broker = NULL;

	server.rc = reef_store_open_directory(server.directory, &options.store);
	if (server.rc == 0)
		server.rc = reef_mesh_open(&kinds, &options.mesh);
	if (server.rc == 0)
		server.rc = reef_broker_start(&options, &broker);
	if (server.rc == 0) {
		snprintf(server.addresses, sizeof(server.addresses), "%s",
			 reef_broker_addresses(broker));
		server.epoch = reef_broker_epoch(broker);
	}
	/* Released to the clients' thread: the fields above. */
	atomic_store(&server.ready, 1);
	while (server.rc == 0 && !atomic_load(&server.over))
		(void)reef_sleep(1000000);
	reef_broker_stop(broker);
	reef_mesh_close(options.mesh);
	reef_store_destroy(options.store);
	return 0;
}

static void *server_main(void *arg)
{
	reef_sched_run(server.sched);
	reef_sched_destroy(server.sched);
	return NULL;
}

static void server_start(uint64_t ttl_ns, bool lease_kills)
{
	memset(&server, 0, sizeof(server));
	memset(server.key.bytes, 9, sizeof(server.key.bytes));
	server.ttl_ns = ttl_ns;
	server.lease_kills = lease_kills;
	snprintf(server.listen, sizeof(server.listen), "shm:%s tcp:127.0.0.1:0",
		 scratch_path("door"));
	snprintf(server.directory, sizeof(server.directory), "%s",
		 scratch_path("journal"));
	assert_int_equal(reef_sched_create(NULL, &server.sched), 0);
	assert_int_equal(reef_fiber_spawn(server.sched, serve, NULL, NULL), 0);
	assert_int_equal(
		pthread_create(&server.thread, NULL, server_main, NULL), 0);
	while (!atomic_load(&server.ready))
		sched_yield();
	assert_int_equal(server.rc, 0);
}

static void server_stop(void)
{
	atomic_store(&server.over, true);
	pthread_join(server.thread, NULL);
}

/* --- clients: all on the test's thread, in one fiber --- */

static struct reef_mesh *mesh;
static struct reef_port *port;
static struct reef_rpc *rpc;

struct client {
	struct reef_peer *peer;
	struct reef_reply_session opened;
	struct reef_remote *table, *renewal;
	uint32_t counter;
};

static int refuse(void *context, const struct reef_request *request,
		  struct reef_body *answer, struct reef_cursor_out *room)
{
	return -ENOSYS;
}

/* "shm:..." or "tcp:...", as it really is. */
static const char *address_of(const char *kind)
{
	static char address[512];
	const char *at = strstr(server.addresses, kind);

	assert_non_null(at);
	snprintf(address, sizeof(address), "%.*s", (int)strcspn(at, " "), at);
	return address;
}

static int join(struct client *client, const char *kind)
{
	static uint32_t links;
	struct reef_connect_options options = {
		.session = 0x80010000 + ++links,
		.identity = "user:0:0",
	};
	struct reef_answer answer;
	struct reef_queue *queue;
	struct reef_key key;

	TRY(reef_key_derive_user(&server.key, 0, 0, &key));
	memcpy(options.key, key.bytes, sizeof(key.bytes));
	TRY(reef_rpc_connect(rpc, address_of(kind), 0, &options, &client->peer,
			     NULL));
	TRY(reef_rpc_call(client->peer, REEF_POOL_SESSION_OPEN, 0, NULL,
			  &answer, 10 * SECOND));
	client->opened = answer.body.reply.session;
	reef_answer_free(&answer);
	queue = reef_port_queue_of(port, client->peer->link);
	TRY(reef_attach(queue, client->peer->link, client->opened.table_key,
			&client->table));
	return reef_attach(queue, client->peer->link,
			   client->opened.renewal_key, &client->renewal);
}

static int run(struct client *client, struct reef_op *op)
{
	struct reef_batch batch = {
		.link = client->peer->link,
		.ops = op,
		.count = 1,
	};

	return reef_run(reef_port_queue_of(port, batch.link), &batch);
}

static int renew(struct client *client)
{
	uint64_t word = reef_renewal_word(++client->counter, 1);
	struct reef_op op = {
		.kind = REEF_WRITE,
		.remote = client->renewal,
		.local = &word,
		.length = 8,
	};

	return run(client, &op);
}

/* The state of a session, as another sees it. */
static int look(struct client *client, uint32_t session)
{
	uint64_t word;
	struct reef_op op = {
		.kind = REEF_READ,
		.remote = client->table,
		.offset = reef_table_offset(session),
		.local = &word,
		.length = 8,
	};

	TRY(run(client, &op));
	return (uint16_t)word == (uint16_t)session ? (uint8_t)(word >> 16) : 0;
}

static int await(struct client *client, uint32_t session, int state)
{
	int i, rc = 0;

	for (i = 0; i < 60000 && rc >= 0 && rc < state; i++) {
		rc = look(client, session);
		if (rc < state)
			TRY(reef_sleep(1000000));
	}
	return rc >= state ? 0 : rc < 0 ? rc : -ETIMEDOUT;
}

/* Nobody renews. On tcp that is the end; on shm it is not, but losing the link
 * is. */
static int by_fabric(void *arg)
{
	struct client watcher, silent, victim;
	uint64_t nothing = 0;
	struct reef_op op = {
		.kind = REEF_WRITE,
		.local = &nothing,
		.length = 8,
	};

	TRY(join(&watcher, "shm:"));
	TRY(join(&victim, "shm:"));
	TRY(join(&silent, "tcp:"));
	TRY(renew(&watcher));
	TRY(renew(&silent));
	TRY(await(&watcher, silent.opened.session, REEF_SESSION_RECOVERED));
	WANT(look(&watcher, watcher.opened.session) == REEF_SESSION_ALIVE);
	WANT(look(&watcher, victim.opened.session) == REEF_SESSION_ALIVE);
	WANT(reef_rpc_call(silent.peer, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL,
			   10 * SECOND) == -REEF_EFENCED);
	/* The table is to be read, and nothing else. */
	op.remote = watcher.table;
	WANT(run(&watcher, &op) == -EACCES);
	op.remote = silent.table;
	WANT(run(&silent, &op) == -EACCES);
	reef_peer_close(victim.peer);
	TRY(await(&watcher, victim.opened.session, REEF_SESSION_RECOVERED));
	return reef_rpc_call(watcher.peer, REEF_POOL_SESSION_CLOSE, 0, NULL,
			     NULL, 10 * SECOND);
}

static int by_lease(void *arg)
{
	struct client silent, watcher;
	int i;

	TRY(join(&silent, "shm:"));
	TRY(join(&watcher, "tcp:"));
	for (i = 0; i < 60000; i++) {
		TRY(renew(&watcher));
		if (look(&watcher, silent.opened.session) ==
		    REEF_SESSION_RECOVERED)
			return 0;
		TRY(reef_sleep(1000000));
	}
	return -ETIMEDOUT;
}

/* Renew, announcing the newest epoch; lacks: without room. */
static int renew_with_epoch(struct client *client, bool lacks)
{
	struct reef_renewal words = {
		.waiting = lacks ? REEF_RENEWAL_LACKS : 0,
	};
	struct reef_table_header header;
	struct reef_op op = {
		.kind = REEF_READ,
		.remote = client->table,
		.local = &header,
		.length = sizeof(header),
	};

	TRY(run(client, &op));
	words.word = reef_renewal_word(++client->counter,
				       (uint32_t)header.reclaim_epoch);
	op = (struct reef_op){
		.kind = REEF_WRITE,
		.remote = client->renewal,
		.local = &words,
		.length = sizeof(words),
	};
	return run(client, &op);
}

/* Who is silent on shm stays, until another lacks room. */
static int by_pin(void *arg)
{
	struct client silent, lacking;
	uint64_t begun = reef_now_ns();
	int i;

	TRY(join(&silent, "shm:"));
	TRY(join(&lacking, "shm:"));
	while (reef_now_ns() - begun < 8 * server.ttl_ns) {
		TRY(renew_with_epoch(&lacking, false));
		TRY(reef_sleep(1000000));
	}
	WANT(look(&lacking, silent.opened.session) == REEF_SESSION_ALIVE);
	for (i = 0; i < 60000; i++) {
		TRY(renew_with_epoch(&lacking, true));
		if (look(&lacking, silent.opened.session) ==
		    REEF_SESSION_RECOVERED)
			return 0;
		TRY(reef_sleep(1000000));
	}
	return -ETIMEDOUT;
}

static int (*script)(void *arg);
static int result;

static int clients_main(void *arg)
{
	struct reef_mesh_options kinds = {.kinds = "shm tcp"};
	struct reef_rpc_options options = {.handle = refuse};

	result = reef_mesh_open(&kinds, &mesh);
	if (result == 0)
		result = reef_port_open(mesh, NULL, &port);
	if (result == 0)
		result = reef_rpc_create(port, &options, &rpc);
	if (result == 0)
		result = script(arg);
	reef_rpc_destroy(rpc);
	reef_port_close(port);
	reef_mesh_close(mesh);
	rpc = NULL;
	port = NULL;
	mesh = NULL;
	return 0;
}

static void run_clients(int (*what)(void *arg))
{
	struct reef_sched *sched;

	script = what;
	assert_int_equal(reef_sched_create(NULL, &sched), 0);
	assert_int_equal(reef_fiber_spawn(sched, clients_main, NULL, NULL), 0);
	assert_int_equal(reef_sched_run(sched), 0);
	reef_sched_destroy(sched);
	assert_int_equal(result, 0);
}

static void broker_session_ends_as_its_fabric_says(void **state)
{
	server_start(SECOND / 50, false);
	run_clients(by_fabric);
	server_stop();
}

static void broker_lease_kills_ends_sessions_on_shm_too(void **state)
{
	/* Long enough for the one that does renew, on a busy machine. */
	server_start(SECOND, true);
	run_clients(by_lease);
	server_stop();
}

static void broker_pin_ends_sessions_on_shm_if_others_lack_room(void **state)
{
	server_start(SECOND / 10, false);
	run_clients(by_pin);
	server_stop();
}

static void broker_starts_again_from_its_directory(void **state)
{
	uint64_t epoch;

	server_start(SECOND / 50, false);
	run_clients(by_fabric);
	server_stop();
	for (epoch = 2; epoch < 5; epoch++) {
		server_start(SECOND / 50, false);
		assert_int_equal(server.epoch, epoch);
		server_stop();
	}
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(broker_session_ends_as_its_fabric_says),
		TEST(broker_lease_kills_ends_sessions_on_shm_too),
		TEST(broker_pin_ends_sessions_on_shm_if_others_lack_room),
		TEST(broker_starts_again_from_its_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

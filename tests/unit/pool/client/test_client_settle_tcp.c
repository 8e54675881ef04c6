/* test_client_settle_tcp.c - SETTLE over a real network: a client that cannot
 * connect to the node any more has what was in doubt settled by the broker, and
 * goes on when it can. */
#include "fixture/local_pool.h"

#include "fabric/hook/fault.h"
#include "pool/client/client.h"
#include "pool/target.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ROUNDS 20
#define REFUSALS 24 /* of connects: about a second of them */

static struct reef_fault *fault;

static int push_fault(void *context, struct reef_fabric *fabric)
{
	(void)context;
	return reef_fault_push(fabric, NULL, &fault);
}

/* Lose the link that the next batch is posted on, and refuse to connect. */
static void lose_next(void)
{
	struct reef_fault_rule lose = {
		.call = REEF_CALL_POST,
		.kind = REEF_FAULT_UNDONE,
		.nth = 1,
	};
	struct reef_fault_rule refuse = {
		.call = REEF_CALL_CONNECT,
		.kind = REEF_FAULT_REFUSE,
		.error = -ECONNREFUSED,
	};

	for (refuse.nth = 1; refuse.nth <= REFUSALS; refuse.nth++)
		assert_int_equal(reef_fault_add(fault, &refuse), 0);
	assert_int_equal(reef_fault_add(fault, &lose), 0);
}

/* WRITE to a word until it is in doubt: the keeper's own batch may be the one
 * that is lost. True if it was settled while no connect was let through. */
static bool write_in_doubt(struct reef *reef, uint64_t address, uint64_t value)
{
	uint64_t before = reef_fault_count(fault);
	int rc;

	lose_next();
	rc = reef_write(reef, address, &value, 8);
	assert_true(rc == 0 || rc == -REEF_EINDOUBT);
	if (rc == 0)
		return false;
	return reef_fault_count(fault) - before <= REFUSALS;
}

static void client_settle_over_tcp_goes_on_afterwards(void **state)
{
	struct reef_mesh_options mesh_options = {
		.kinds = "tcp",
		.opened = push_fault,
	};
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_client_options options = {0};
	struct reef_credential credential;
	char broker[REEF_TARGET_MAX];
	struct reef_client *client;
	struct reef_space *space;
	struct reef_mesh *mesh;
	struct server server;
	struct reef *reef;
	uint64_t address, value, round;
	bool settled = false;

	server_start(&server);
	assert_int_equal(reef_target_broker("local", NULL, broker), 0);
	assert_int_equal(reef_target_credential(NULL, NULL, &credential), 0);
	assert_int_equal(reef_mesh_open(&mesh_options, &mesh), 0);
	options.mesh = mesh;
	options.broker = broker;
	options.credential = &credential;
	assert_int_equal(reef_client_create(&options, &client), 0);
	assert_int_equal(reef_client_handle(client, &reef), 0);
	assert_int_equal(reef_space_open(reef, "space", &create, &space), 0);
	assert_int_equal(reef_alloc(space, 64, &address), 0);
	value = 0;
	assert_int_equal(reef_write(reef, address, &value, 8), 0);
	for (round = 1; round <= ROUNDS && !settled; round++) {
		settled = write_in_doubt(reef, address, 2 * round + 1);
		/* Connects are let through again in the end. */
		value = 2 * round;
		assert_int_equal(reef_write(reef, address, &value, 8), 0);
		assert_int_equal(reef_read(reef, address, &value, 8), 0);
		assert_int_equal(value, 2 * round);
	}
	assert_true(settled);
	reef_close(reef);
	reef_client_unref(client);
	reef_mesh_close(mesh);
	server_stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			client_settle_over_tcp_goes_on_afterwards, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_host.c - broker and node in one process, and what they must not share.
 */
#include "fabric/fabric.h"
#include "fixture/units.h"
#include "pool/host.h"
#include "pool/rpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

/* Nothing is asserted in a fiber: the line of what did not hold. */
#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition))                                              \
			return __LINE__;                                       \
	} while (0)

struct guest {
	struct reef_host *host;
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer;
	uint32_t sequence;
};

static int refuse(void *context, const struct reef_request *request,
		  struct reef_body *answer, struct reef_cursor_out *room)
{
	return -ENOSYS;
}

static int guest_open(struct guest *guest, const char *kinds)
{
	struct reef_mesh_options mesh = {.kinds = kinds};
	struct reef_rpc_options rpc = {.handle = refuse};
	struct reef_connect_options options = {
		.session = 0x80010001,
		.identity = "user:0:0",
	};
	struct reef_broker *broker = reef_host_broker(guest->host);

	memcpy(options.key, reef_host_owner(guest->host)->key.bytes,
	       sizeof(options.key));
	CHECK(!reef_mesh_open(&mesh, &guest->mesh));
	CHECK(!reef_port_open(guest->mesh, NULL, &guest->port));
	CHECK(!reef_rpc_create(guest->port, &rpc, &guest->rpc));
	CHECK(!reef_rpc_connect(guest->rpc, reef_broker_addresses(broker), 0,
				&options, &guest->peer, NULL));
	return 0;
}

static void guest_close(struct guest *guest)
{
	reef_peer_close(guest->peer);
	reef_rpc_destroy(guest->rpc);
	reef_port_close(guest->port);
	reef_mesh_close(guest->mesh);
	memset(guest, 0, sizeof(*guest));
}

static int ask(struct guest *guest, uint16_t kind, bool numbered,
	       const struct reef_body *body, struct reef_body *answer,
	       struct reef_row_extent *row)
{
	struct reef_answer got = {0};
	struct reef_cursor_in in;
	struct reef_row next;

	CHECK(!reef_rpc_call(guest->peer, kind,
			     numbered ? ++guest->sequence : 0, body, &got,
			     10 * SECOND));
	*answer = got.body;
	in = (struct reef_cursor_in){got.body.rows, got.body.rows_size, false};
	while (reef_row_decode(&in, &next) > 0)
		if (next.row == REEF_ROW_EXTENT)
			*row = next.extent;
	reef_answer_free(&got);
	return 0;
}

/* Make an extent, and try its keys on the link to the broker. */
static int intrude(struct guest *guest)
{
	struct reef_body body = {.ask.session_open.program = {"guest", 5}};
	struct reef_body answer;
	struct reef_queue *queue;
	struct reef_remote *remote;
	struct reef_row_extent row = {0};
	int rc;

	rc = ask(guest, REEF_POOL_SESSION_OPEN, false, &body, &answer, &row);
	if (rc)
		return rc;
	body = (struct reef_body){0};
	rc = ask(guest, REEF_POOL_SPACE_OPEN, true, &body, &answer, &row);
	if (rc)
		return rc;
	body = (struct reef_body){
		.ask.extent_add = {answer.reply.space_open.space, MIB, 0}};
	rc = ask(guest, REEF_POOL_EXTENT_ADD, true, &body, &answer, &row);
	if (rc)
		return rc;
	CHECK(row.keys[0] && row.keys[1]);
	queue = reef_port_queue_of(guest->port, guest->peer->link);
	for (int i = 0; i < 2; i++)
		CHECK(reef_attach(queue, guest->peer->link, row.keys[i],
				  &remote) == -REEF_EKEY);
	return 0;
}

static int visit(void *arg)
{
	static const char *const fabrics[] = {"shm", "tcp"};
	struct reef_host_options options = {
		.with_broker = true,
		.with_node = true,
		.mesh.kinds = "shm tcp",
		.broker.listen = "tcp:127.0.0.1:0",
		.broker.extent_size = MIB,
		.node.listen = "tcp:127.0.0.1:0",
		.node_name = "node",
		.node.capacity = 8 * MIB,
	};
	struct reef_host *host;
	int rc = 0;

	CHECK(!reef_host_start(&options, &host, NULL));
	rc = reef_node_wait(reef_host_node(host), 20 * SECOND);
	for (int i = 0; !rc && i < 2; i++) {
		struct guest guest = {.host = host};

		rc = guest_open(&guest, fabrics[i]);
		if (!rc)
			rc = intrude(&guest);
		guest_close(&guest);
	}
	reef_host_stop(host);
	return rc;
}

/* A link to the broker belongs to no session, so no fence ends it. */
static void host_links_to_broker_reach_no_extent(void **state)
{
	struct reef_sched *sched;
	struct reef_fiber *fiber;
	int result = -1;

	assert_int_equal(reef_sched_create(NULL, &sched), 0);
	assert_int_equal(reef_fiber_spawn(sched, visit, NULL, &fiber), 0);
	assert_int_equal(reef_sched_run(sched), 0);
	assert_int_equal(reef_fiber_join(fiber, &result), 0);
	reef_sched_destroy(sched);
	assert_int_equal(result, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_links_to_broker_reach_no_extent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

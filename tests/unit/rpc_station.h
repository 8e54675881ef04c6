/* rpc_station.h - an rpc with what is under it, for tests: a *station* opens a
 * mesh, a port and an rpc, and answers a few requests.
 *
 * What a station answers to NAME_BIND {space: what to do, value: a number}:
 *   ECHO    generation = number + 1
 *   FAIL    -ENOENT
 *   SLOW    as ECHO, after slow_ns
 *   BACK    as ECHO, after a call of RECOVER to the one who asked
 * and to NAME_LIST {space: how many} with so many rows, to RECOVER with 0.
 *
 * Nothing is asserted inside a fiber. */
#ifndef REEF_TESTS_RPC_STATION_H
#define REEF_TESTS_RPC_STATION_H

#include "base/random.h"
#include "base/sched.h"
#include "fabric/sim/sim.h"
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

#define MILLISECOND 1000000ull
#define SECOND (1000 * MILLISECOND)
#define SESSION(number) (((uint32_t)(number) << 16) | 1u)

#define TRY(call)                                                              \
	do {                                                                   \
		int try_rc = (call);                                           \
		if (try_rc)                                                    \
			return try_rc;                                         \
	} while (0)

enum { ECHO, FAIL, SLOW, BACK, WHATS };

struct station {
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer; /* that it connected to */
	char address[256];
	uint64_t slow_ns;
	bool close_in_closed; /* give a lost peer up at once */
	void (*handled)(struct station *station, uint64_t number);
	void *context;
	uint32_t opened, closed, connected, lost, notes, back_failed;
	int reason;
	uint32_t running, running_most;
};

static inline int station_credential(void *context, const char *identity,
				     uint32_t session,
				     uint8_t key[REEF_KEY_SIZE])
{
	memset(key, 7, REEF_KEY_SIZE);
	return strcmp(identity, "test") ? -REEF_EAUTH : 0;
}

static inline int station_bind(struct station *station,
			       const struct reef_request *request,
			       struct reef_body *answer)
{
	const struct reef_body *body = &request->body;
	struct reef_body back = {.session = 1, .space = 2};
	int rc;

	if (station->handled)
		station->handled(station, body->value);
	answer->generation = body->value + 1;
	switch (body->space) {
	case FAIL:
		return -ENOENT;
	case SLOW:
		return reef_sleep(station->slow_ns);
	case BACK:
		rc = reef_rpc_call(request->peer, REEF_POOL_RECOVER, 0, &back,
				   NULL, 200 * MILLISECOND);
		if (rc)
			station->back_failed++;
		return rc == -REEF_EHOSTDEAD ? rc : 0;
	default:
		return 0;
	}
}

static inline int station_handle(void *context,
				 const struct reef_request *request,
				 struct reef_body *answer,
				 struct reef_cursor_out *room)
{
	struct station *station = context;
	struct reef_row row = {.row = REEF_ROW_NAME, .name = {"name", 4}};
	int rc = 0;

	station->running++;
	if (station->running > station->running_most)
		station->running_most = station->running;
	switch (request->header.kind) {
	case REEF_POOL_NAME_BIND:
		rc = station_bind(station, request, answer);
		break;
	case REEF_POOL_NAME_LIST:
		for (uint32_t i = 0; i < request->body.space; i++) {
			row.value = i;
			reef_row_encode(&row, room);
		}
		break;
	case REEF_POOL_RECOVER:
		break;
	default:
		rc = -EOPNOTSUPP;
	}
	station->running--;
	return rc;
}

static inline void station_note(void *context, const struct reef_request *note)
{
	((struct station *)context)->notes++;
}

static inline void station_opened(void *context, struct reef_peer *peer)
{
	((struct station *)context)->opened++;
	peer->user = context;
}

static inline void station_closed(void *context, struct reef_peer *peer,
				  int reason)
{
	struct station *station = context;

	station->reason = reason;
	if (peer->accepted) {
		station->closed++;
		return;
	}
	station->lost++;
	if (!station->close_in_closed)
		return;
	reef_peer_close(peer);
	station->peer = NULL;
}

static inline void station_close(struct station *station)
{
	reef_rpc_destroy(station->rpc);
	reef_port_close(station->port);
	reef_mesh_close(station->mesh);
	station->rpc = NULL;
	station->port = NULL;
	station->mesh = NULL;
}

/* In a fiber. limits: handlers_max, peer_max and epoch are taken from it. */
static inline int station_open(struct station *station,
			       const struct reef_mesh_options *mesh,
			       const struct reef_rpc_options *limits)
{
	struct reef_rpc_options options = {
		.handle = station_handle,
		.note = station_note,
		.opened = station_opened,
		.closed = station_closed,
		.credential = station_credential,
		.context = station,
	};
	int rc;

	if (limits) {
		options.handlers_max = limits->handlers_max;
		options.peer_max = limits->peer_max;
		options.epoch = limits->epoch;
	}
	rc = reef_mesh_open(mesh, &station->mesh);
	if (!rc)
		rc = reef_port_open(station->mesh, NULL, &station->port);
	if (!rc)
		rc = reef_rpc_create(station->port, &options, &station->rpc);
	if (rc)
		station_close(station);
	return rc;
}

static inline int station_listen(struct station *station, const char *addresses)
{
	return reef_rpc_listen(station->rpc, addresses, station->address,
			       sizeof(station->address));
}

static inline int station_connect(struct station *station, const char *address,
				  uint32_t session)
{
	struct reef_connect_options options = {
		.session = session,
		.identity = "test",
		.timeout_ns = SECOND,
	};

	memset(options.key, 7, REEF_KEY_SIZE);
	TRY(reef_rpc_connect(station->rpc, address, 0, &options, &station->peer,
			     NULL));
	station->connected++;
	return 0;
}

/* -EBADMSG: it is not the answer to that. */
static inline int station_ask(struct reef_peer *peer, uint32_t what,
			      uint64_t number, uint64_t timeout_ns)
{
	struct reef_body body = {
		.space = what, .name = {"a name", 6}, .value = number};
	struct reef_answer answer = {0};
	int rc;

	TRY(reef_rpc_call(peer, REEF_POOL_NAME_BIND, 1, &body, &answer,
			  timeout_ns));
	rc = answer.body.generation == number + 1 ? 0 : -EBADMSG;
	reef_answer_free(&answer);
	return rc;
}

static inline int station_ask_rows(struct reef_peer *peer, uint32_t count)
{
	struct reef_body body = {.space = count};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row;
	uint32_t i = 0;
	int rc;

	TRY(reef_rpc_call(peer, REEF_POOL_NAME_LIST, 0, &body, &answer,
			  SECOND));
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while ((rc = reef_row_decode(&in, &row)) > 0)
		if (row.value != i++)
			rc = -EBADMSG;
	if (!rc && i != count)
		rc = -EBADMSG;
	reef_answer_free(&answer);
	return rc;
}

#endif

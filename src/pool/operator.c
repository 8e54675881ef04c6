/* operator.c - see operator.h: each call runs the scheduler until its fiber has
 * ended. */
#include "pool/operator.h"

#include "base/random.h"
#include "pool/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define ADDRESSES_MAX 1024

struct reef_operator {
	struct reef_sched *sched;
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer;
	uint64_t timeout_ns;
	uint32_t user;
	bool has_session;
	uint32_t requests; /* numbered ones */
};

/* What a fiber is to do, and how it ended. */
struct errand {
	struct reef_operator *op;
	int (*run)(struct errand *errand);
	const struct reef_operator_options *options;
	uint16_t kind;
	const struct reef_body *body;
	struct reef_answer *answer;
	int result;
};

static int errand_main(void *arg)
{
	struct errand *errand = arg;

	errand->result = errand->run(errand);
	/* The rpc's receivers go on, so the run has to be ended here. */
	reef_sched_stop(errand->op->sched);
	return 0;
}

static int run_until_done(struct errand *errand)
{
	int rc;

	errand->result = -ECANCELED;
	rc = reef_fiber_spawn(errand->op->sched, errand_main, errand, NULL);
	if (rc)
		return rc;
	rc = reef_sched_run(errand->op->sched);
	return rc ? rc : errand->result;
}

/* --- connecting --- */

static int refuse_request(void *context, const struct reef_request *request,
			  struct reef_body *answer,
			  struct reef_cursor_out *room)
{
	return -EOPNOTSUPP; /* nobody asks an operator anything */
}

static int connect_to(struct reef_operator *op, const char *addresses,
		      const struct reef_credential *credential)
{
	struct reef_connect_options options = {.timeout_ns = op->timeout_ns};
	char identity[REEF_IDENTITY_MAX + 1];
	uint32_t session;
	int rc;

	rc = reef_random_secret(&session, sizeof(session));
	if (rc)
		return rc;
	/* A provisional id has a slot that no session has, and a generation
	 * that is not 0. */
	options.session = session | 0x80000001u;
	snprintf(identity, sizeof(identity), "user:%u:%u", credential->user,
		 credential->era);
	options.identity = identity;
	memcpy(options.key, credential->key.bytes, sizeof(options.key));
	rc = reef_rpc_connect(op->rpc, addresses, 0, &options, &op->peer, NULL);
	explicit_bzero(options.key, sizeof(options.key));
	return rc;
}

static int connect_errand(struct errand *errand)
{
	const struct reef_rpc_options options = {.handle = refuse_request};
	struct reef_operator *op = errand->op;
	const char *at = errand->options->broker;
	char addresses[ADDRESSES_MAX];
	size_t size;
	int rc;

	rc = reef_port_open(op->mesh, NULL, &op->port);
	if (!rc)
		rc = reef_rpc_create(op->port, &options, &op->rpc);
	if (rc)
		return rc;
	do {
		size = strcspn(at, ",");
		if (size >= sizeof(addresses))
			return -ENAMETOOLONG;
		memcpy(addresses, at, size);
		addresses[size] = '\0';
		rc = connect_to(op, addresses, errand->options->credential);
		at += size;
	} while (rc && *at++);
	return rc;
}

int reef_operator_open(const struct reef_operator_options *options,
		       struct reef_operator **out)
{
	struct reef_mesh_options mesh = {.kinds = options->kinds};
	struct errand errand = {.run = connect_errand, .options = options};
	struct reef_operator *op;
	int rc = reef_tls_use_parse(options->tls, &mesh.fabric.tls);

	if (rc)
		return rc;
	op = calloc(1, sizeof(*op));
	if (!op)
		return -ENOMEM;
	op->user = options->credential->user;
	op->timeout_ns = options->timeout_ns ? options->timeout_ns : 5 * SECOND;
	errand.op = op;
	rc = reef_mesh_open(&mesh, &op->mesh);
	if (!rc)
		rc = reef_sched_create(NULL, &op->sched);
	if (!rc)
		rc = run_until_done(&errand);
	if (rc) {
		reef_operator_close(op);
		return rc;
	}
	*out = op;
	return 0;
}

static int close_errand(struct errand *errand)
{
	if (errand->op->has_session)
		reef_rpc_call(errand->op->peer, REEF_POOL_SESSION_CLOSE, 0,
			      NULL, NULL, errand->op->timeout_ns);
	reef_peer_close(errand->op->peer);
	reef_rpc_destroy(errand->op->rpc);
	reef_port_close(errand->op->port);
	return 0;
}

void reef_operator_close(struct reef_operator *op)
{
	struct errand errand = {.op = op, .run = close_errand};

	if (!op)
		return;
	if (op->sched) {
		run_until_done(&errand);
		reef_sched_run(op->sched); /* other fibers come to an end */
		reef_sched_destroy(op->sched);
	}
	reef_mesh_close(op->mesh);
	free(op);
}

uint32_t reef_operator_user(const struct reef_operator *op)
{
	return op->user;
}

const char *reef_operator_fabric(const struct reef_operator *op)
{
	struct reef_queue *queue;

	if (!op->peer->link)
		return "gone";
	queue = reef_port_queue_of(op->port, op->peer->link);
	for (uint32_t i = 0; i < reef_mesh_count(op->mesh); i++)
		if (reef_port_queue(op->port, i) == queue)
			return reef_fabric_kind(reef_mesh_fabric(op->mesh, i));
	return "unknown";
}

/* --- calls --- */

/* True for mutating kinds, which are numbered (wire/pool.h, rule 2). */
static bool is_numbered(uint16_t kind)
{
	switch (kind) {
	case REEF_POOL_SPACE_OPEN:
	case REEF_POOL_SPACE_DROP:
	case REEF_POOL_SPACE_QUOTA:
	case REEF_POOL_SPACE_REVOKE:
	case REEF_POOL_SPACE_FORGET:
	case REEF_POOL_USER_ADD:
	case REEF_POOL_NODE_ADD:
	case REEF_POOL_USER_REMOVE:
	case REEF_POOL_USER_ROTATE:
	case REEF_POOL_USER_LIMIT:
	case REEF_POOL_NODE_DRAIN:
	case REEF_POOL_SETTING:
		return true;
	default:
		return false;
	}
}

/* Open a session, which numbered requests and those for tokens need. */
static int ensure_session(struct reef_operator *op)
{
	static const char name[] = "reef (operator)";
	const struct reef_body body = {
		.ask.session_open = {.program = {name, sizeof(name) - 1},
				     .pid = (uint32_t)getpid(),
				     .flags = REEF_POOL_SERVANT},
	};
	int rc = 0;

	if (!op->has_session)
		rc = reef_rpc_call(op->peer, REEF_POOL_SESSION_OPEN, 0, &body,
				   NULL, op->timeout_ns);
	op->has_session = !rc;
	return rc;
}

/* How long an answer may take. What changes the keys of memory waits for those
 * who hold it, each of whom has the fabric's silence to let go. */
static uint64_t patience_ns(const struct reef_operator *op, uint16_t kind)
{
	switch (kind) {
	case REEF_POOL_SPACE_REVOKE:
	case REEF_POOL_USER_REMOVE:
	case REEF_POOL_USER_ROTATE:
		return 6 * op->timeout_ns;
	default:
		return op->timeout_ns;
	}
}

static int call_errand(struct errand *errand)
{
	struct reef_operator *op = errand->op;
	uint32_t sequence = 0;
	int rc = 0;

	if (is_numbered(errand->kind) || errand->kind == REEF_POOL_SPACE_TOKEN)
		rc = ensure_session(op);
	if (rc)
		return rc;
	if (is_numbered(errand->kind))
		sequence = ++op->requests;
	return reef_rpc_call(op->peer, errand->kind, sequence, errand->body,
			     errand->answer, patience_ns(op, errand->kind));
}

int reef_operator_call(struct reef_operator *op, uint16_t kind,
		       const struct reef_body *body, struct reef_answer *answer)
{
	struct errand errand = {.op = op,
				.run = call_errand,
				.kind = kind,
				.body = body,
				.answer = answer};

	return run_until_done(&errand);
}

/* The number of a row, after which the next page begins. */
static uint32_t number_of_row(const struct reef_row *row)
{
	switch (row->row) {
	case REEF_ROW_EXTENT:
		return row->extent.number;
	case REEF_ROW_NODE:
		return row->node.number;
	case REEF_ROW_SESSION:
		return row->session.id;
	case REEF_ROW_SPACE:
		return row->space.number;
	case REEF_ROW_USER:
		return row->user.number;
	case REEF_ROW_EVENT:
		return (uint32_t)row->event.number;
	default: /* other kinds fit in one page */
		return UINT32_MAX;
	}
}

int reef_operator_list(struct reef_operator *op, enum reef_row_kind kind,
		       int (*each)(void *context, const struct reef_row *row),
		       void *context)
{
	struct reef_body body = {.ask.list.row = (uint8_t)kind};
	struct reef_answer answer;
	struct reef_cursor_in in;
	struct reef_row row;
	bool more, any;
	int rc;

	do {
		rc = reef_operator_call(op, REEF_POOL_LIST, &body, &answer);
		if (rc)
			return rc;
		in = (struct reef_cursor_in){.bytes = answer.body.rows,
					     .left = answer.body.rows_size};
		any = false;
		while (!rc && (rc = reef_row_decode(&in, &row)) > 0) {
			if (row.row != kind)
				continue;
			any = true;
			body.ask.list.after = number_of_row(&row);
			rc = each(context, &row);
		}
		/* A page that says "more" and has nothing would never end. */
		more = any && answer.body.reply.list.flags & REEF_POOL_MORE;
		reef_answer_free(&answer);
	} while (!rc && more);
	return rc;
}

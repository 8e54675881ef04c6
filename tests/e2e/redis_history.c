/* redis_history.c - several doors and native clients on the keys of one map at
 * once, and whether what they saw can have been.
 *
 * usage: redis_history history|count SPACE MAP OPS SEED CLIENT...
 *
 * Each CLIENT is a process: `native`, or the path of a door's unix socket.
 *
 * history: OPS operations of each client, by chance, on a few keys. Prints
 *   whether they are linearizable (tests/check/linear.h), and the keys where
 *   not. A door that goes away is waited for; what it was asked when it went
 *   happened or did not.
 * count: each client adds 1 to one key OPS times, by comparing and setting:
 *   WATCH, GET, MULTI, SET and EXEC, or a native replace by version. Prints the
 *   sum, which must be all of them.
 *
 * Ends with 0, or 1 after an error that was not expected, which it prints. */
#include "check/linear.h"

#include <errno.h>
#include <inttypes.h>
#include <reef/map.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX 16
#define KEYS 24
#define ANSWER_MAX 256
#define CONNECT_TRIES 3000
#define NONE INT64_MIN /* the value of a key that is not there */
#define COUNTER "counter"

enum kind { GET, PUT, DELETE, ADD, INSERT, UPDATE, SWAP, TAKE, CAS, KINDS };

/* An operation of a client, and what came of it. */
struct op {
	enum kind kind;
	int64_t value;	/* to put, or to add */
	int64_t before; /* CAS: what it must be */
	int64_t result; /* GET, SWAP, TAKE: the value; ADD: the sum; else: did
			 * it? */
};

struct client {
	uint32_t index;
	const char *path; /* of a door; NULL: native */
	uint64_t random;
	uint64_t serial;
	struct linear_op *ops;
	uint64_t *count; /* of them, shared */
	/* Of a client that goes through a door: */
	int fd;
	char answers[ANSWER_MAX * 8];
	size_t have;
	/* Of a native client: */
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	struct reef_map_value found;
};

static const char *space_name, *map_name;

static int failed(const struct client *client, const char *what, int rc)
{
	printf("error of client %u: %s: %s\n", client->index, what,
	       rc ? reef_error_name(rc) : "");
	fflush(stdout);
	return -EIO;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* --- by a door --- */

static int door_connect(struct client *client)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct timespec pause = {.tv_nsec = 10000000};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s",
		 client->path);
	client->have = 0;
	for (uint32_t i = 0; i < CONNECT_TRIES; i++) {
		client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!connect(client->fd, (struct sockaddr *)&address,
			     sizeof(address)))
			return 0;
		close(client->fd);
		nanosleep(&pause, NULL);
	}
	return failed(client, "no door", -errno);
}

/* Read one line, without its end. -EPIPE: the door has gone. */
static int door_line(struct client *client, char line[ANSWER_MAX])
{
	char *end;
	ssize_t n;

	while (!(end = memmem(client->answers, client->have, "\r\n", 2))) {
		n = recv(client->fd, client->answers + client->have,
			 sizeof(client->answers) - client->have, 0);
		if (n <= 0)
			return -EPIPE;
		client->have += (size_t)n;
	}
	*end = '\0';
	snprintf(line, ANSWER_MAX, "%.*s", ANSWER_MAX - 1, client->answers);
	end += 2;
	client->have -= (size_t)(end - client->answers);
	memmove(client->answers, end, client->have);
	return 0;
}

/* Send a request. -EPIPE: the door has gone. */
__attribute__((format(printf, 2, 3))) static int door_say(struct client *client,
							  const char *format,
							  ...)
{
	char text[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return send(client->fd, text, (size_t)n, MSG_NOSIGNAL) == n ? 0
								    : -EPIPE;
}

/* Read an answer that is a number, a bulk that is one, null, or OK (1).
 * -EAGAIN: nothing happened, try again later.  -EPIPE: the door has gone. */
static int door_number(struct client *client, int64_t *out)
{
	char line[ANSWER_MAX];
	int rc = door_line(client, line);

	if (rc)
		return rc;
	if (strncmp(line, "-LOADING", 8) == 0)
		return -EAGAIN;
	if (line[0] == '-')
		return failed(client, line, 0);
	*out = NONE;
	if (line[0] == '+')
		*out = 1;
	else if (line[0] == ':')
		*out = strtoll(line + 1, NULL, 10);
	else if (line[0] == '$' && line[1] != '-') {
		rc = door_line(client, line);
		*out = strtoll(line, NULL, 10);
	} else if (line[0] == '*' && line[1] != '-')
		rc = door_number(client, out);
	return rc;
}

static int door_ask(struct client *client, const char *key, struct op *op)
{
	static const char *const formats[KINDS] = {
		[GET] = "GET %s\r\n",
		[PUT] = "SET %s %" PRId64 "\r\n",
		[DELETE] = "DEL %s\r\n",
		[ADD] = "INCRBY %s %" PRId64 "\r\n",
		[INSERT] = "SETNX %s %" PRId64 "\r\n",
		[UPDATE] = "SET %s %" PRId64 " XX\r\n",
		[SWAP] = "GETSET %s %" PRId64 "\r\n",
		[TAKE] = "GETDEL %s\r\n",
	};
	char text[256];
	int rc;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), formats[op->kind], key, op->value);
#pragma GCC diagnostic pop
	rc = door_say(client, "%s", text);
	rc = rc ? rc : door_number(client, &op->result);
	if (!rc && op->kind == UPDATE)
		op->result = op->result == 1;
	return rc;
}

/* Read the answers to several requests, all of them whatever they are. Returns
 * the first error; *last: the value of the last. */
static int door_numbers(struct client *client, uint32_t count, int64_t *last)
{
	int rc = 0, one;

	for (uint32_t i = 0; i < count && (!rc || rc == -EAGAIN); i++) {
		one = door_number(client, last);
		rc = one && one != -EAGAIN ? one : rc ? rc : one;
	}
	return rc;
}

/* The first half of a compare and set: WATCH and GET; *before: the value. */
static int door_watch(struct client *client, const char *key, int64_t *before)
{
	int rc = door_say(client, "WATCH %s\r\nGET %s\r\n", key, key);

	return rc ? rc : door_numbers(client, 2, before);
}

/* The second half: MULTI, SET, EXEC; op->result: 1 if it happened. */
static int door_set(struct client *client, const char *key, struct op *op)
{
	int rc = door_say(client, "MULTI\r\nSET %s %" PRId64 "\r\nEXEC\r\n",
			  key, op->value);

	rc = rc ? rc : door_numbers(client, 3, &op->result);
	op->result = op->result == 1;
	return rc;
}

/* --- native --- */

static int native_open(struct client *client)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	int rc = reef_open(NULL, NULL, &client->reef);

	if (rc)
		return failed(client, "open", rc);
	rc = reef_space_open(client->reef, space_name, &options,
			     &client->space);
	if (rc)
		return failed(client, "space", rc);
	rc = reef_map_open(client->space, map_name, NULL, &client->map);
	return rc ? failed(client, "map", rc) : 0;
}

static int64_t number_of(const void *bytes, size_t size)
{
	char text[32];

	snprintf(text, sizeof(text), "%.*s", (int)size, (const char *)bytes);
	return strtoll(text, NULL, 10);
}

/* SWAP and TAKE, as one change. */
static int decide_swap(void *context, const struct reef_map_entry *now,
		       struct reef_map_entry *put)
{
	struct op *op = context;
	static char text[32];

	op->result = now ? number_of(now->value, now->value_size) : NONE;
	if (op->kind == TAKE)
		return now ? REEF_MAP_DELETE : REEF_MAP_LEAVE;
	put->value = text;
	put->value_size =
		(size_t)snprintf(text, sizeof(text), "%" PRId64, op->value);
	return REEF_MAP_PUT;
}

static int native_change(struct client *client, const char *key, size_t size,
			 struct op *op)
{
	struct reef_map_change change = {
		.key = key,
		.key_size = size,
		.decide = decide_swap,
		.context = op,
	};

	return reef_map_apply(client->map, &change);
}

static int native_get(struct client *client, const char *key, size_t size,
		      struct op *op)
{
	int rc = reef_map_get(client->map, key, size, &client->found);

	op->result =
		rc ? NONE : number_of(client->found.bytes, client->found.size);
	return rc;
}

static int native_ask(struct client *client, const char *key, struct op *op)
{
	size_t size = strlen(key), value_size;
	char value[32];
	int rc = -ENOSYS;

	value_size =
		(size_t)snprintf(value, sizeof(value), "%" PRId64, op->value);
	switch (op->kind) {
	case GET:
		rc = native_get(client, key, size, op);
		return rc == -ENOENT ? 0 : rc;
	case PUT:
		rc = reef_map_put(client->map, key, size, value, value_size, 0,
				  NULL);
		break;
	case DELETE:
		rc = reef_map_delete(client->map, key, size, 0);
		break;
	case ADD:
		return reef_map_add(client->map, key, size, op->value,
				    &op->result);
	case INSERT:
		rc = reef_map_insert(client->map, key, size, value, value_size,
				     0, NULL);
		break;
	case UPDATE:
		rc = reef_map_update(client->map, key, size, value, value_size,
				     0, NULL);
		break;
	default:
		return native_change(client, key, size, op);
	}
	op->result = rc == 0;
	return rc == -ENOENT || rc == -EEXIST ? 0 : rc;
}

static int native_watch(struct client *client, const char *key, int64_t *before)
{
	struct op op = {.kind = GET};
	int rc = native_ask(client, key, &op);

	*before = op.result;
	return rc;
}

static int native_set(struct client *client, const char *key, struct op *op)
{
	size_t size = strlen(key), value_size;
	char value[32];
	int rc;

	value_size =
		(size_t)snprintf(value, sizeof(value), "%" PRId64, op->value);
	if (op->before == NONE)
		rc = reef_map_insert(client->map, key, size, value, value_size,
				     0, NULL);
	else
		rc = reef_map_replace(client->map, key, size,
				      client->found.version, value, value_size,
				      0, NULL);
	op->result = rc == 0;
	return rc == -EEXIST || rc == -ENOENT || rc == -ESTALE ? 0 : rc;
}

/* --- either --- */

static int client_open(struct client *client)
{
	return client->path ? door_connect(client) : native_open(client);
}

static int ask(struct client *client, const char *key, struct op *op)
{
	return client->path ? door_ask(client, key, op)
			    : native_ask(client, key, op);
}

static int watch(struct client *client, const char *key, int64_t *before)
{
	return client->path ? door_watch(client, key, before)
			    : native_watch(client, key, before);
}

static int set(struct client *client, const char *key, struct op *op)
{
	return client->path ? door_set(client, key, op)
			    : native_set(client, key, op);
}

/* --- a history --- */

static struct linear_op *record(struct client *client, uint64_t key,
				const struct op *op, uint64_t called_at)
{
	struct linear_op *to = &client->ops[(*client->count)++];

	*to = (struct linear_op){
		.key = key,
		.client = client->index,
		.kind = op->kind,
		.arguments = {(uint64_t)op->value, (uint64_t)op->before},
		.called_at = called_at,
		.returned_at = LINEAR_NEVER,
	};
	return to;
}

static void returned(struct linear_op *to, const struct op *op)
{
	to->results[0] = (uint64_t)op->result;
	to->returned_at = now_ns();
}

/* Compare and set. What was read is noted as a GET of its own; the CAS is noted
 * only if it happened, or may have. */
static int compare_and_set(struct client *client, uint64_t number,
			   const char *key, struct op *op)
{
	struct op get = {.kind = GET};
	struct linear_op *to = record(client, number, &get, now_ns());
	int rc = watch(client, key, &op->before);

	if (rc)
		return rc;
	get.result = op->before;
	returned(to, &get);
	to = record(client, number, op, now_ns());
	rc = set(client, key, op);
	if (!rc && op->result)
		returned(to, op);
	else if (!rc)
		--*client->count;
	return rc;
}

static int one_op(struct client *client)
{
	uint64_t number = next(&client->random) % KEYS;
	struct op op = {.kind = next(&client->random) % KINDS};
	struct linear_op *to;
	char key[16];
	int rc;

	snprintf(key, sizeof(key), "key%u", (unsigned int)number);
	/* No two operations put the same value. */
	op.value = (int64_t)(++client->serial * CLIENTS_MAX + client->index) *
		   1000;
	if (op.kind == ADD)
		op.value = 1 + (int64_t)(next(&client->random) % 7);
	if (op.kind == CAS)
		return compare_and_set(client, number, key, &op);
	to = record(client, number, &op, now_ns());
	rc = ask(client, key, &op);
	if (!rc)
		returned(to, &op);
	else if (rc == -EAGAIN)
		to->kind = KINDS;
	return rc;
}

static int run_history(struct client *client, uint64_t count)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int rc;

	for (uint64_t i = 0; i < count; i++) {
		rc = one_op(client);
		if (rc == -EAGAIN) {
			nanosleep(&pause, NULL);
		} else if (rc == -EPIPE && client->path) {
			close(client->fd);
			rc = door_connect(client);
			if (rc)
				return rc;
		} else if (rc)
			return failed(client, "operation", rc);
	}
	return 0;
}

static bool step(const uint64_t state[LINEAR_STATE], const struct linear_op *op,
		 uint64_t after[LINEAR_STATE])
{
	int64_t value = (int64_t)state[0], to = (int64_t)op->arguments[0];
	int64_t result = (int64_t)op->results[0], expected = 1;
	bool never = op->returned_at == LINEAR_NEVER;

	memcpy(after, state, sizeof(*after) * LINEAR_STATE);
	switch (op->kind) {
	case GET:
		expected = value;
		break;
	case PUT:
		after[0] = (uint64_t)to;
		break;
	case DELETE:
		expected = value != NONE;
		after[0] = (uint64_t)NONE;
		break;
	case ADD:
		expected = (value == NONE ? 0 : value) + to;
		after[0] = (uint64_t)expected;
		break;
	case INSERT:
		expected = value == NONE;
		after[0] = expected ? (uint64_t)to : state[0];
		break;
	case UPDATE:
		expected = value != NONE;
		after[0] = expected ? (uint64_t)to : state[0];
		break;
	case SWAP:
		expected = value;
		after[0] = (uint64_t)to;
		break;
	case TAKE:
		expected = value;
		after[0] = (uint64_t)NONE;
		break;
	case CAS:
		expected = 1;
		if (value != (int64_t)op->arguments[1]) {
			expected = 0;
			break;
		}
		after[0] = (uint64_t)to;
		break;
	default: /* nothing happened */
		return true;
	}
	return never || result == expected;
}

static void print_key(const struct linear_op *ops, size_t count, uint64_t key)
{
	for (size_t i = 0; i < count; i++)
		if (ops[i].key == key)
			printf("  client %u kind %u (%" PRId64 ", %" PRId64
			       ") -> %" PRId64 " from %" PRIu64 " to %" PRIu64
			       "\n",
			       ops[i].client, ops[i].kind,
			       (int64_t)ops[i].arguments[0],
			       (int64_t)ops[i].arguments[1],
			       (int64_t)ops[i].results[0], ops[i].called_at,
			       ops[i].returned_at);
}

static int judge(const struct linear_op *ops, size_t count)
{
	const struct linear_model model = {.step = step,
					   .start = {(uint64_t)NONE}};
	struct linear_result result;
	size_t never = 0;
	int rc = linear_check(&model, ops, count, 0, &result);

	for (size_t i = 0; i < count; i++)
		never += ops[i].returned_at == LINEAR_NEVER;
	printf("operations %zu unanswered %zu steps %" PRIu64 " %s\n", count,
	       never, result.steps,
	       rc			      ? "no verdict"
	       : result.verdict == LINEAR_YES ? "linearizable"
	       : result.verdict == LINEAR_NO  ? "NOT linearizable"
					      : "undecided");
	if (!rc && result.verdict == LINEAR_NO) {
		printf("key%" PRIu64 ": operation of client %u from %" PRIu64
		       "\n",
		       result.key, ops[result.op].client,
		       ops[result.op].called_at);
		print_key(ops, count, result.key);
	}
	return rc || result.verdict != LINEAR_YES ? 1 : 0;
}

/* --- a count --- */

static int run_count(struct client *client, uint64_t count)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct op op = {.kind = CAS};
	int rc;

	for (uint64_t i = 0; i < count; i += (uint64_t)op.result) {
		op.result = 0;
		rc = watch(client, COUNTER, &op.before);
		op.value = op.before == NONE ? 1 : op.before + 1;
		rc = rc ? rc : set(client, COUNTER, &op);
		if (rc == -EAGAIN) {
			op.result = 0;
			nanosleep(&pause, NULL);
			continue;
		}
		if (rc)
			return failed(client, "count", rc);
		++*client->count;
	}
	return 0;
}

static int print_count(struct client *client, uint64_t tries)
{
	int64_t sum = 0;
	int rc = client_open(client);

	rc = rc ? rc : watch(client, COUNTER, &sum);
	if (rc)
		return failed(client, "sum", rc);
	printf("sum %" PRId64 " tries %" PRIu64 "\n", sum, tries);
	return 0;
}

/* --- processes --- */

static void *shared(size_t size)
{
	void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return base == MAP_FAILED ? NULL : base;
}

static pid_t start(struct client *client, bool history, uint64_t count)
{
	pid_t pid = fork();
	int rc;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rc = client_open(client);
	if (!rc)
		rc = history ? run_history(client, count)
			     : run_count(client, count);
	reef_map_value_free(&client->found);
	reef_map_close(client->map);
	reef_space_close(client->space);
	reef_close(client->reef);
	_exit(rc ? 1 : 0);
}

int main(int argc, char **argv)
{
	static struct client clients[CLIENTS_MAX];
	bool history;
	uint64_t count, seed, *counts, total = 0;
	uint32_t number = (uint32_t)argc - 6;
	struct linear_op *ops;
	int status, bad = 0;

	if (argc < 7 || number > CLIENTS_MAX)
		return 2;
	history = strcmp(argv[1], "history") == 0;
	space_name = argv[2];
	map_name = argv[3];
	count = strtoull(argv[4], NULL, 10);
	seed = strtoull(argv[5], NULL, 10);
	counts = shared(sizeof(*counts) * CLIENTS_MAX);
	/* A compare and set is noted as two operations. */
	ops = shared(sizeof(*ops) * 2 * count * number);
	if (!counts || !ops)
		return 1;
	for (uint32_t i = 0; i < number; i++) {
		clients[i] = (struct client){
			.index = i,
			.path = strcmp(argv[6 + i], "native") ? argv[6 + i]
							      : NULL,
			.random = (seed * CLIENTS_MAX + i + 1) *
				  UINT64_C(0x9e3779b97f4a7c15),
			.ops = ops + 2 * count * i,
			.count = &counts[i],
		};
		if (start(&clients[i], history, count) < 0)
			return 1;
	}
	for (uint32_t i = 0; i < number; i++)
		if (wait(&status) < 0 || status)
			bad = 1;
	if (bad)
		return 1;
	for (uint32_t i = 0; i < number; i++) {
		if (history)
			memmove(ops + total, clients[i].ops,
				sizeof(*ops) * counts[i]);
		total += counts[i];
	}
	return history ? judge(ops, total) : print_count(&clients[0], total);
}

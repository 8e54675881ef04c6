/* open.c - reef_open: from a target to a pool.
 *
 * A process has one client for each target, credential and choice of fabrics
 * and of TLS, which its handles share. The list of them is under a lock that is
 * held while a client (and an embedded pool) is started, not while it joins:
 * whoever opens a handle meanwhile waits for the same join. A failed one is
 * found by nobody any more, and goes with its last handle. In a forked child
 * the list is empty.
 */
#include "pool/client/open.h"

#include "base/system/paths.h"
#include "base/units.h"
#include "pool/client/client.h"
#include "pool/client/embedded.h"
#include "pool/client/handle/handle.h"
#include "pool/client/keeper/keeper.h"
#include "pool/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What reef_open was asked for. */
struct request {
	const char *target, *credential, *fabrics, *tls, *name;
	uint64_t timeout_ns, patience_ns;
};

struct open_pool {
	char *key; /* of the list; NULL: it is not found any more */
	uint32_t handles;
	struct reef_mesh *mesh;
	struct embedded *embedded;
	struct reef_client *client;
	struct open_pool *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_pool *pools; /* locked */
static bool is_servant;		/* locked */

void reef_client_set_servant(void)
{
	pthread_mutex_lock(&lock);
	is_servant = true;
	pthread_mutex_unlock(&lock);
}

/* --- fork --- */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
	pools = NULL; /* they are the parent's */
	pthread_mutex_unlock(&lock);
}

static void handle_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* --- the list --- */

static int load_credential(const struct request *request,
			   struct reef_credential *out)
{
	int rc = reef_target_credential(request->credential, NULL, out);

	return rc == -EPERM || (rc == -ENOENT && !request->credential) ? -EACCES
								       : rc;
}

static void pool_free(struct open_pool *pool)
{
	reef_client_unref(pool->client);
	reef_mesh_close(pool->mesh);
	embedded_stop(pool->embedded);
	free(pool->key);
	free(pool);
}

static const char *choose_setting(const char *given, const char *variable)
{
	const char *value;

	if (given)
		return given;
	value = reef_environment_get(NULL, variable);
	return value && *value ? value : NULL;
}

static int start_client(struct open_pool *pool, const struct request *request)
{
	struct reef_mesh_options mesh = {.kinds = request->fabrics};
	struct reef_credential credential;
	char broker[REEF_TARGET_MAX];
	struct reef_client_options options = {
		.broker = broker,
		.credential = &credential,
		.name = request->name,
		.timeout_ns = request->timeout_ns,
		.patience_ns = request->patience_ns,
		.inbox_host = choose_setting(NULL, "REEF_INBOX"),
		.servant = is_servant,
	};
	const char *target = request->target;
	uint64_t size;
	const char *spin = choose_setting(NULL, "REEF_SPIN");
	int rc = reef_tls_use_parse(request->tls, &mesh.fabric.tls);

	if (!rc && spin && reef_duration_parse(spin, &mesh.fabric.spin_ns))
		rc = -EINVAL;
	if (rc)
		return rc;
	if (!strncmp(target, "embedded:", 9)) {
		mesh.kinds = "shm";
		rc = reef_size_parse(target + 9, &size);
		if (!rc)
			rc = embedded_start(size, broker, sizeof(broker),
					    &credential, &pool->embedded);
	} else {
		rc = reef_target_broker(target, NULL, broker);
		if (!rc)
			rc = load_credential(request, &credential);
	}
	if (rc)
		return rc == -ERANGE ? -EINVAL : rc == -EPERM ? -EACCES : rc;
	rc = reef_mesh_open(&mesh, &pool->mesh);
	if (!rc) {
		options.mesh = pool->mesh;
		rc = reef_client_start(&options, &pool->client);
	}
	reef_key_wipe(&credential.key);
	return rc;
}

/* Start a client, and put it into the list. Locked. */
static int pool_create(const char *key, const struct request *request,
		       struct open_pool **out)
{
	struct open_pool *pool = calloc(1, sizeof(*pool));
	int rc;

	if (!pool)
		return -ENOMEM;
	pool->key = strdup(key);
	rc = pool->key ? start_client(pool, request) : -ENOMEM;
	if (rc) {
		pool_free(pool);
		return rc;
	}
	pool->next = pools;
	pools = pool;
	*out = pool;
	return 0;
}

/* Find a pool in the list, or start it; takes a handle's reference. */
static int find_or_start(const struct request *request, struct open_pool **out)
{
	struct open_pool *pool;
	char *key;
	int rc = 0;

	if (asprintf(&key, "%s\n%s\n%s\n%s", request->target,
		     request->credential ? request->credential : "",
		     request->fabrics ? request->fabrics : "",
		     request->tls ? request->tls : "") < 0)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	for (pool = pools; pool; pool = pool->next)
		if (pool->key && !strcmp(pool->key, key) &&
		    !client_over(pool->client))
			break;
	if (!pool)
		rc = pool_create(key, request, &pool);
	if (!rc)
		pool->handles++;
	pthread_mutex_unlock(&lock);
	free(key);
	*out = pool;
	return rc;
}

void client_pool_release(struct open_pool *pool)
{
	struct open_pool **at;
	bool last;

	pthread_mutex_lock(&lock);
	last = !--pool->handles;
	for (at = &pools; last && *at != pool; at = &(*at)->next)
		;
	if (last)
		*at = pool->next;
	pthread_mutex_unlock(&lock);
	if (last)
		pool_free(pool);
}

/* Joining failed: nobody else is to find this pool. */
static void pool_fail(struct open_pool *pool)
{
	pthread_mutex_lock(&lock);
	free(pool->key);
	pool->key = NULL;
	pthread_mutex_unlock(&lock);
	client_pool_release(pool);
}

int reef_open(const char *target, const struct reef_options *options,
	      struct reef **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const struct reef_options none;
	const struct reef_options *given = options ? options : &none;
	struct request request = {
		.target = choose_setting(target, "REEF_POOL"),
		.credential =
			choose_setting(given->credential, "REEF_CREDENTIAL"),
		.fabrics = choose_setting(given->fabrics, "REEF_FABRICS"),
		.tls = choose_setting(given->tls, "REEF_TLS"),
		.name = given->name ? given->name
				    : program_invocation_short_name,
		.timeout_ns = given->timeout_ns,
		.patience_ns = given->patience_ns,
	};
	const char *patience = choose_setting(NULL, "REEF_PATIENCE");
	struct open_pool *pool;
	struct reef *reef;
	int rc;

	pthread_once(&once, handle_forks);
	if (!request.target)
		request.target = "local";
	if (!request.patience_ns && patience &&
	    reef_duration_parse(patience, &request.patience_ns))
		return -EINVAL;
	rc = find_or_start(&request, &pool);
	if (rc)
		return rc;
	rc = reef_client_handle(pool->client, &reef);
	if (rc) {
		pool_fail(pool);
		return rc;
	}
	reef->pool = pool;
	*out = reef;
	return 0;
}

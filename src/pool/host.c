/* host.c - see host.h. What was opened first is closed last. */
#include "pool/host.h"

#include "base/log.h"
#include "base/random.h"
#include "base/store/store.h"
#include "base/system/private.h"
#include "base/system/secret.h"
#include "pool/node/holder.h"
#include "pool/node/keep_both.h"
#include "pool/target.h"

#include <errno.h>
#include <limits.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What keeps the node's memory: `both`, made of the other two. Each is NULL if
 * it is not wanted. */
struct host_keep {
	struct reef_keep *both, *holder, *image;
	struct reef_store *store; /* of the image */
	char *path;		  /* of the holder's socket */
	char *folder;		  /* of the image; NULL: none is wanted */
	int (*start_holder)(void *context, int listen_fd, const char *path,
			    const char *folder);
	void *holder_context;
	struct reef_host_saved *saved;
};

/* A secret as a whole, for its keys. */
struct reef_host {
	struct reef_mesh *mesh;
	/* The node's own beside a broker, else NULL: what a fabric exposes can
	 * be reached through all its links, and those of clients to the broker
	 * are not their sessions', so no fence would end them. */
	struct reef_mesh *node_mesh;
	struct reef_store *store;
	struct reef_broker *broker;
	struct reef_node *node;
	struct host_keep *keep; /* the node's */
	struct reef_key key;	/* the pool's, with a broker */
	struct reef_node_key node_key;
	struct reef_credential owner;
	char *run;	   /* NULL: none */
	char nameless[40]; /* what sockets without a file are called */
};
_Static_assert(sizeof(struct reef_host) <= REEF_SECRET_MAX,
	       "a host is too large for a secret");

static int join_path(const char *directory, const char *name, char **out)
{
	return asprintf(out, "%s/%s", directory, name) < 0 ? -ENOMEM : 0;
}

/* --- keys --- */

/* Load the pool's key, or make one if there is none. */
static int load_key(struct reef_host *host, const char *path)
{
	char text[REEF_KEY_TEXT_SIZE];
	int rc = reef_key_load(path, &host->key);

	if (rc != -ENOENT)
		return rc;
	rc = reef_key_create(&host->key);
	if (rc)
		return rc;
	reef_key_format(&host->key, text);
	return reef_key_text_save(path, text);
}

/* Find the pool's key for a broker, or a node's own. */
static int find_key(struct reef_host *host,
		    const struct reef_host_options *options)
{
	char *path = NULL;
	int rc;

	if (!options->with_broker)
		return options->node_key_file
			       ? reef_node_key_load(options->node_key_file,
						    &host->node_key)
			       : -ENOENT;
	if (options->key_file)
		return load_key(host, options->key_file);
	if (!options->data)
		return reef_key_create(&host->key);
	rc = join_path(options->data, "pool.key", &path);
	if (!rc)
		rc = load_key(host, path);
	free(path);
	return rc;
}

static int open_store(struct reef_host *host,
		      const struct reef_host_options *options)
{
	struct reef_random random;
	uint64_t seed;
	char *path;
	int rc;

	if (!options->data) {
		rc = reef_random_secret(&seed, sizeof(seed));
		if (rc)
			return rc;
		reef_random_init(&random, seed);
		return reef_store_open_memory(&random, &host->store);
	}
	rc = join_path(options->data, "journal", &path);
	if (rc)
		return rc;
	rc = reef_store_open_directory(path, &host->store);
	free(path);
	return rc;
}

/* --- the runtime directory --- */

static void remove_file(const struct reef_host *host, const char *name)
{
	char *path;

	if (!host->run || join_path(host->run, name, &path))
		return;
	unlink(path);
	free(path);
}

static int write_file(const struct reef_host *host, const char *name,
		      const char *text)
{
	char *path;
	int rc = join_path(host->run, name, &path);

	if (rc)
		return rc;
	unlink(path);
	rc = reef_private_create(path, text, strlen(text));
	free(path);
	return rc;
}

static int write_owner_file(const struct reef_host *host)
{
	char text[REEF_KEY_TEXT_SIZE + 1];
	int rc;

	reef_credential_format(&host->owner, text);
	memcpy(text + strlen(text), "\n", 2);
	rc = write_file(host, REEF_TARGET_OWNER, text);
	explicit_bzero(text, sizeof(text));
	return rc;
}

static int write_target_files(const struct reef_host *host)
{
	char line[REEF_TARGET_MAX];
	int rc;

	if (!host->run || !host->broker)
		return 0;
	/* The credential is written first, so that whoever finds an address
	 * finds a key. */
	rc = write_owner_file(host);
	if (rc)
		return rc;
	snprintf(line, sizeof(line), "%s\n",
		 reef_broker_addresses(host->broker));
	return write_file(host, REEF_TARGET_BROKER, line);
}

static void remove_target_files(const struct reef_host *host)
{
	if (!host->broker)
		return;
	remove_file(host, REEF_TARGET_BROKER);
	remove_file(host, REEF_TARGET_OWNER);
}

static int make_owner(struct reef_host *host, uint32_t era)
{
	struct reef_credential owner = {.era = era};
	int rc = reef_key_derive_user(&host->key, 0, era, &owner.key);

	if (rc == 0)
		host->owner = owner;
	reef_key_wipe(&owner.key);
	return rc;
}

/* The owner's credential was rotated: whoever finds its file goes on. */
static void renew_owner(void *context, uint32_t era)
{
	struct reef_host *host = context;
	int rc = make_owner(host, era);

	if (rc == 0 && host->run)
		rc = write_owner_file(host);
	if (rc)
		reef_log(REEF_LOG_ERROR, "host",
			 "the owner's new credential cannot be written: %s",
			 reef_error_text(rc));
}

/* --- the node's holder --- */

static int start_holder(void *context, int listen_fd)
{
	struct reef_host *host = context;

	return host->keep->start_holder(host->keep->holder_context, listen_fd,
					host->keep->path, host->keep->folder);
}

static int open_holder(struct reef_host *host,
		       const struct reef_host_options *options)
{
	struct reef_holder_options holder = {
		.start = start_holder,
		.context = host,
		.only_found = !options->keep_holder,
	};
	int rc;

	if (!options->start_holder || !options->with_node || !host->run)
		return 0;
	host->keep->start_holder = options->start_holder;
	host->keep->holder_context = options->holder_context;
	/* Several nodes may have one runtime directory; beside a broker there
	 * is one. */
	if (asprintf(&host->keep->path,
		     options->with_broker ? "%s/hold.sock" : "%s/hold-%u.sock",
		     host->run, host->node_key.node) < 0) {
		host->keep->path = NULL;
		return -ENOMEM;
	}
	holder.path = host->keep->path;
	rc = reef_holder_open(&holder, &host->keep->holder);
	return rc == -ENOENT && holder.only_found ? 0 : rc;
}

/* Open the fabrics that the node lends through: its holder is told whom they
 * let in. */
static int open_node_mesh(const struct reef_host *host,
			  const struct reef_mesh_options *options,
			  struct reef_mesh **out)
{
	struct reef_mesh_options mesh = *options;

	if (host->keep->holder) {
		mesh.fabric.let_in = reef_holder_let_in;
		mesh.fabric.let_go = reef_holder_let_go;
		mesh.fabric.watcher = host->keep->holder;
	}
	return reef_mesh_open(&mesh, out);
}

/* --- start and stop --- */

/* True if the addresses are of fabrics whose domain is the CPUs', as that of a
 * socket is (F6). */
static bool is_of_cpu(const struct reef_host *host, const char *addresses)
{
	const struct reef_fabric *fabric;

	for (uint32_t i = 0; i < reef_mesh_count(host->mesh); i++) {
		fabric = reef_mesh_fabric(host->mesh, i);
		if (reef_fabric_domain(fabric) != reef_domain_cpu() &&
		    reef_mesh_names(host->mesh, addresses, i))
			return false;
	}
	return true;
}

/* Append those addresses for which there is a fabric. */
static int append_addresses(const struct reef_host *host, const char *more,
			    char *text, size_t size)
{
	size_t used = strlen(text), length;

	while (*(more += strspn(more, " "))) {
		length = strcspn(more, " ");
		if (used + length + 2 > size)
			return -ENAMETOOLONG;
		if (reef_mesh_find(host->mesh, more) >= 0)
			used += (size_t)snprintf(text + used, size - used,
						 "%.*s ", (int)length, more);
		else
			reef_log(REEF_LOG_WARNING, "host",
				 "nobody listens at %.*s: its fabric is not "
				 "in use here",
				 (int)length, more);
		more += length;
	}
	return 0;
}

/* Compose where to listen: a socket, if there is to be one, then the addresses
 * of the options. */
static int compose_listen(const struct reef_host *host, const char *name,
			  bool with_socket, const char *more, char *text,
			  size_t size)
{
	int length = 0;

	text[0] = '\0';
	if (with_socket && reef_mesh_find(host->mesh, "shm:") >= 0)
		length = host->run ? snprintf(text, size, "shm:%s/%s.sock ",
					      host->run, name)
				   : snprintf(text, size, "shm:@%s-%s ",
					      host->nameless, name);
	if (length < 0 || (size_t)length >= size)
		return -ENAMETOOLONG;
	return append_addresses(host, more ? more : "", text, size);
}

static int start_broker(struct reef_host *host,
			const struct reef_host_options *options,
			enum reef_host_step *step)
{
	struct reef_broker_options broker = options->broker;
	char listen[REEF_TARGET_MAX];
	int rc;

	*step = REEF_HOST_STORE;
	rc = open_store(host, options);
	if (rc)
		return rc;
	*step = REEF_HOST_BROKER;
	rc = compose_listen(host, "broker", true, broker.listen, listen,
			    sizeof(listen));
	if (rc)
		return rc;
	broker.mesh = host->mesh;
	broker.store = host->store;
	broker.key = &host->key;
	broker.listen = listen;
	broker.sync_inline |= !options->data;
	broker.scatter = true;
	broker.owner_changed = renew_owner;
	broker.context = host;
	rc = reef_broker_start(&broker, &host->broker);
	if (rc == 0)
		rc = make_owner(host, reef_broker_owner_era(host->broker));
	if (rc)
		return rc;
	*step = REEF_HOST_ANNOUNCE;
	return write_target_files(host);
}

/* Open the folder in which the image of the node's memory is. */
static int open_image(struct reef_host *host,
		      const struct reef_host_options *options)
{
	char path[PATH_MAX];
	int rc;

	if ((size_t)snprintf(path, sizeof(path), "%s/node-%u", options->data,
			     host->node_key.node) >= sizeof(path))
		return -ENAMETOOLONG;
	rc = reef_private_directory(path);
	if (!rc)
		rc = reef_store_open_directory(path, &host->keep->store);
	if (!rc)
		rc = reef_keep_image_create(host->keep->store, &options->image,
					    &host->keep->image);
	host->keep->saved = options->saved;
	/* The whole path, for the holder: it outlives us. */
	if (!rc && options->keep_image &&
	    !(host->keep->folder = realpath(path, NULL)))
		rc = -errno;
	return rc;
}

/* True if an earlier process of the node left an image. */
static bool has_image(const struct reef_host *host,
		      const struct reef_host_options *options)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/node-%u/%s",
				options->data, host->node_key.node,
				REEF_KEEP_IMAGE_MARK) < sizeof(path) &&
	       !access(path, F_OK);
}

/* Make one keep of the holder and the image. */
static int open_keep(struct reef_host *host,
		     const struct reef_host_options *options)
{
	int rc = 0;

	if (options->data && (options->keep_image || host->keep->holder ||
			      has_image(host, options)))
		rc = open_image(host, options);
	if (rc || (!host->keep->holder && !host->keep->image))
		return rc;
	return reef_keep_both_create(
		&(struct reef_keep_both_options){
			.holder = host->keep->holder,
			.image = host->keep->image,
			.saves = options->keep_image,
			.holds = options->keep_holder,
		},
		&host->keep->both);
}

static int start_node(struct reef_host *host,
		      const struct reef_host_options *options)
{
	struct reef_node_options node = options->node;
	char listen[REEF_TARGET_MAX];
	int rc;

	rc = compose_listen(host, "node",
			    !node.listen || is_of_cpu(host, node.listen),
			    node.listen, listen, sizeof(listen));
	if (rc)
		return rc;
	if (host->broker) {
		rc = reef_broker_node_key(host->broker, options->node_name,
					  &host->node_key);
		if (!rc)
			rc = open_node_mesh(host, &options->mesh,
					    &host->node_mesh);
		if (rc)
			return rc;
	}
	node.mesh = host->node_mesh ? host->node_mesh : host->mesh;
	node.key = &host->node_key;
	node.listen = listen;
	rc = open_keep(host, options);
	if (rc)
		return rc;
	node.keep = host->keep->both;
	if (host->broker) {
		node.broker = reef_broker_addresses(host->broker);
		node.broker_domain = reef_domain_cpu();
	}
	return reef_node_start(&node, &host->node);
}

static int open_basics(struct reef_host *host,
		       const struct reef_host_options *options,
		       enum reef_host_step *step)
{
	uint64_t random;
	int rc = 0;

	*step = REEF_HOST_DATA;
	if (options->data && options->with_broker)
		rc = reef_private_directory(options->data);
	if (rc)
		return rc;
	*step = REEF_HOST_KEY;
	rc = find_key(host, options);
	if (rc)
		return rc;
	*step = REEF_HOST_RUN;
	if (options->run) {
		rc = reef_private_directory(options->run);
		if (!rc && !(host->run = strdup(options->run)))
			rc = -ENOMEM;
	} else {
		rc = reef_random_secret(&random, sizeof(random));
		snprintf(host->nameless, sizeof(host->nameless),
			 "reef-%d-%016llx", (int)getpid(),
			 (unsigned long long)random);
	}
	if (rc)
		return rc;
	rc = open_holder(host, options);
	if (rc)
		return rc;
	*step = REEF_HOST_FABRICS;
	return options->with_broker
		       ? reef_mesh_open(&options->mesh, &host->mesh)
		       : open_node_mesh(host, &options->mesh, &host->mesh);
}

int reef_host_start(const struct reef_host_options *options,
		    struct reef_host **out, enum reef_host_step *step)
{
	enum reef_host_step ignored = REEF_HOST_MEMORY;
	struct reef_host *host;
	int rc;

	step = step ? step : &ignored;
	*step = REEF_HOST_MEMORY;
	host = reef_secret_create(sizeof(*host));
	if (!host)
		return -ENOMEM;
	host->keep = calloc(1, sizeof(*host->keep));
	if (!host->keep) {
		reef_secret_destroy(host);
		return -ENOMEM;
	}
	rc = open_basics(host, options, step);
	if (!rc && options->with_broker)
		rc = start_broker(host, options, step);
	if (!rc && options->with_node) {
		*step = REEF_HOST_NODE;
		rc = start_node(host, options);
	}
	if (rc) {
		reef_host_stop(host);
		return rc;
	}
	*out = host;
	return 0;
}

void reef_host_stop(struct reef_host *host)
{
	if (!host)
		return;
	remove_target_files(host);
	reef_node_stop(host->node);
	if (host->node && host->keep->image && host->keep->saved)
		*host->keep->saved = (struct reef_host_saved){
			.image = *reef_keep_image_report(host->keep->image),
			.has_holder = host->keep->holder != NULL,
		};
	reef_keep_both_destroy(host->keep->both);
	reef_keep_image_destroy(host->keep->image);
	reef_store_destroy(host->keep->store);
	reef_broker_stop(host->broker);
	reef_store_destroy(host->store);
	reef_mesh_close(host->node_mesh);
	reef_mesh_close(host->mesh);
	/* After the last that could be let go of. */
	reef_holder_close(host->keep->holder);
	free(host->keep->path);
	free(host->keep->folder);
	free(host->keep);
	free(host->run);
	reef_secret_destroy(host);
}

const struct reef_keep_both_report *reef_host_kept(const struct reef_host *host)
{
	return host->keep->both ? reef_keep_both_report(host->keep->both)
				: NULL;
}

struct reef_broker *reef_host_broker(const struct reef_host *host)
{
	return host->broker;
}

struct reef_node *reef_host_node(const struct reef_host *host)
{
	return host->node;
}

const struct reef_credential *reef_host_owner(const struct reef_host *host)
{
	return &host->owner;
}

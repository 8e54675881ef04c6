/* mesh.c - all fabrics of a process, and for one thread a queue of each. */
#include "pool/mesh.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KINDS_DEFAULT "shm tcp"

struct reef_mesh {
	uint32_t count;
	struct reef_fabric *fabrics[REEF_MESH_MAX];
};

struct reef_port {
	struct reef_mesh *mesh;
	struct reef_sched *sched;
	struct reef_queue *queues[REEF_MESH_MAX];
	struct reef_listener *listeners[REEF_MESH_MAX];
};

/* --- texts --- */

/* Copy the next word of a blank-separated text into `word`, which has room for
 * `size` bytes. 1: there was one.  0: no more.  -EINVAL: too long. */
static int next_word(const char **text, char *word, size_t size)
{
	size_t length;

	*text += strspn(*text, " ");
	length = strcspn(*text, " ");
	if (!length)
		return 0;
	if (length >= size)
		return -EINVAL;
	memcpy(word, *text, length);
	word[length] = '\0';
	*text += length;
	return 1;
}

int reef_mesh_find(const struct reef_mesh *mesh, const char *address)
{
	const char *kind;
	size_t length;

	for (uint32_t i = 0; i < mesh->count; i++) {
		kind = reef_fabric_kind(mesh->fabrics[i]);
		length = strlen(kind);
		if (!strncmp(address, kind, length) && address[length] == ':')
			return (int)i;
	}
	return -1;
}

bool reef_mesh_names(const struct reef_mesh *mesh, const char *addresses,
		     uint32_t index)
{
	while (*(addresses += strspn(addresses, " "))) {
		if (reef_mesh_find(mesh, addresses) == (int)index)
			return true;
		addresses += strcspn(addresses, " ");
	}
	return false;
}

struct addresses {
	uint32_t count;
	struct address {
		char text[REEF_MESH_ADDRESS_MAX];
		int fabric; /* -1: none that we have */
	} of[REEF_MESH_MAX];
};

static int parse_addresses(const struct reef_mesh *mesh, const char *text,
			   struct addresses *out)
{
	char word[REEF_MESH_ADDRESS_MAX];
	int rc;

	out->count = 0;
	while ((rc = next_word(&text, word, sizeof(word))) > 0) {
		if (out->count == REEF_MESH_MAX)
			return -EINVAL;
		memcpy(out->of[out->count].text, word, sizeof(word));
		out->of[out->count].fabric = reef_mesh_find(mesh, word);
		out->count++;
	}
	return rc ? rc : out->count ? 0 : -EINVAL;
}

/* --- meshes --- */

static int open_fabric(struct reef_mesh *mesh, const char *kind,
		       const struct reef_mesh_options *options)
{
	struct reef_fabric *fabric;
	int rc;

	for (uint32_t i = 0; i < mesh->count; i++)
		if (!strcmp(reef_fabric_kind(mesh->fabrics[i]), kind))
			return -EINVAL;
	if (mesh->count == REEF_MESH_MAX)
		return -EINVAL;
	rc = reef_fabric_open(kind, &options->fabric, &fabric);
	if (rc)
		return rc;
	mesh->fabrics[mesh->count++] = fabric;
	return options->opened ? options->opened(options->context, fabric) : 0;
}

int reef_mesh_open(const struct reef_mesh_options *options,
		   struct reef_mesh **out)
{
	const char *kinds = options->kinds ? options->kinds : KINDS_DEFAULT;
	struct reef_mesh *mesh = calloc(1, sizeof(*mesh));
	char kind[16];
	int rc;

	if (!mesh)
		return -ENOMEM;
	while ((rc = next_word(&kinds, kind, sizeof(kind))) > 0) {
		rc = open_fabric(mesh, kind, options);
		if (rc)
			goto err;
	}
	if (!rc && !options->kinds) {
		rc = open_fabric(mesh, "verbs", options);
		if (rc == -ENOSYS || rc == -ENODEV)
			rc = 0;
	}
	if (!rc && !mesh->count)
		rc = -EINVAL;
	if (rc)
		goto err;
	*out = mesh;
	return 0;
err:
	reef_mesh_close(mesh);
	return rc;
}

void reef_mesh_close(struct reef_mesh *mesh)
{
	if (!mesh)
		return;
	while (mesh->count > 0)
		reef_fabric_close(mesh->fabrics[--mesh->count]);
	free(mesh);
}

uint32_t reef_mesh_count(const struct reef_mesh *mesh)
{
	return mesh->count;
}

struct reef_fabric *reef_mesh_fabric(const struct reef_mesh *mesh,
				     uint32_t index)
{
	reef_assert(index < mesh->count);
	return mesh->fabrics[index];
}

/* --- ports --- */

int reef_port_open(struct reef_mesh *mesh, struct reef_sched *sched,
		   struct reef_port **out)
{
	struct reef_port *port = calloc(1, sizeof(*port));
	int rc;

	if (!port)
		return -ENOMEM;
	port->mesh = mesh;
	port->sched = sched ? sched : reef_fiber_sched();
	for (uint32_t i = 0; i < mesh->count; i++) {
		rc = reef_queue_open(mesh->fabrics[i], port->sched,
				     &port->queues[i]);
		if (rc) {
			reef_port_close(port);
			return rc;
		}
	}
	*out = port;
	return 0;
}

void reef_port_close(struct reef_port *port)
{
	if (!port)
		return;
	reef_port_unlisten(port);
	for (uint32_t i = 0; i < port->mesh->count; i++)
		reef_queue_close(port->queues[i]);
	free(port);
}

struct reef_sched *reef_port_sched(const struct reef_port *port)
{
	return port->sched;
}

struct reef_mesh *reef_port_mesh(const struct reef_port *port)
{
	return port->mesh;
}

struct reef_queue *reef_port_queue(const struct reef_port *port, uint32_t index)
{
	reef_assert(index < port->mesh->count);
	return port->queues[index];
}

struct reef_queue *reef_port_queue_of(const struct reef_port *port,
				      const struct reef_link *link)
{
	uint32_t i = 0;

	while (i < port->mesh->count &&
	       port->mesh->fabrics[i] != reef_link_fabric(link))
		i++;
	return reef_port_queue(port, i);
}

int reef_port_poll(struct reef_port *port)
{
	int count = 0, rc, failed = 0;

	for (uint32_t i = 0; i < port->mesh->count; i++) {
		rc = reef_poll(port->queues[i]);
		if (rc < 0)
			failed = rc;
		else
			count += rc;
	}
	return failed ? failed : count;
}

int reef_port_wait_until(struct reef_port *port,
			 bool (*ready)(const void *what), const void *what,
			 uint64_t timeout_ns)
{
	return reef_queues_wait_until(port->queues, port->mesh->count, ready,
				      what, timeout_ns);
}

/* --- listening --- */

/* Append the listener's real address to the text in `real`. */
static int append_real_address(const struct reef_listener *listener, char *real,
			       size_t real_max)
{
	const char *address = reef_listener_address(listener);
	size_t used = strlen(real), length = strlen(address);

	if (used + (used > 0) + length >= real_max)
		return -ENOSPC;
	if (used)
		real[used++] = ' ';
	memcpy(real + used, address, length + 1);
	return 0;
}

static int listen_all(struct reef_port *port, const struct addresses *addresses,
		      const struct reef_listen_options *options, char *real,
		      size_t real_max)
{
	const struct address *address = addresses->of;
	int rc;

	for (uint32_t i = 0; i < addresses->count; i++, address++) {
		rc = reef_listen(port->queues[address->fabric], address->text,
				 options, &port->listeners[i]);
		if (rc)
			return rc;
		rc = real ? append_real_address(port->listeners[i], real,
						real_max)
			  : 0;
		if (rc)
			return rc;
	}
	return 0;
}

int reef_port_listen(struct reef_port *port, const char *addresses,
		     const struct reef_listen_options *options, char *real,
		     size_t real_max)
{
	char told[REEF_MESH_MAX * (REEF_MESH_ADDRESS_MAX + 1)] = "";
	struct addresses parsed;
	int rc;

	if (port->listeners[0])
		return -EBUSY;
	rc = parse_addresses(port->mesh, addresses, &parsed);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < parsed.count; i++)
		if (parsed.of[i].fabric < 0)
			return -EINVAL;
	rc = listen_all(port, &parsed, options, told, sizeof(told));
	if (!rc && real && strlen(told) >= real_max)
		rc = -ENOSPC;
	if (rc) {
		reef_port_unlisten(port);
		return rc;
	}
	if (real)
		memcpy(real, told, strlen(told) + 1);
	return 0;
}

void reef_port_unlisten(struct reef_port *port)
{
	for (uint32_t i = 0; i < REEF_MESH_MAX; i++) {
		reef_listener_close(port->listeners[i]);
		port->listeners[i] = NULL;
	}
}

/* --- connecting --- */

/* Kinds in the order of rule 1. */
static const char *const preference[] = {"shm", "verbs", "tcp", "sim"};

/* True for a result that another address would only repeat, or that would make
 * a second link beside the first. */
static bool is_final(int rc)
{
	return !rc || rc == -REEF_EFENCED || rc == -EBUSY || rc == -EDQUOT ||
	       rc == -ECANCELED || rc == -REEF_EFORKED || rc == -REEF_EHOSTDEAD;
}

/* True if the address is of that kind, and may lead to the peer. */
static bool is_candidate(const struct reef_port *port, const char *kind,
			 const struct address *address, uint64_t domain)
{
	const struct reef_fabric *fabric;

	if (address->fabric < 0)
		return false;
	fabric = port->mesh->fabrics[address->fabric];
	if (strcmp(reef_fabric_kind(fabric), kind) != 0)
		return false;
	return !domain || strcmp(kind, "shm") != 0 ||
	       domain == reef_fabric_domain(fabric);
}

int reef_port_choose(const struct reef_port *port, const char *addresses,
		     uint64_t domain, uint32_t rank, uint32_t *index,
		     struct reef_queue **queue,
		     char address[REEF_MESH_ADDRESS_MAX])
{
	struct addresses parsed;
	uint32_t i;
	int rc;

	rc = parse_addresses(port->mesh, addresses, &parsed);
	if (rc)
		return rc;
	for (size_t k = 0; k < sizeof(preference) / sizeof(preference[0]); k++)
		for (i = 0; i < parsed.count; i++) {
			if (!is_candidate(port, preference[k], &parsed.of[i],
					  domain) ||
			    rank-- > 0)
				continue;
			*index = i;
			*queue = port->queues[parsed.of[i].fabric];
			memcpy(address, parsed.of[i].text,
			       REEF_MESH_ADDRESS_MAX);
			return 0;
		}
	return -ENOENT;
}

int reef_port_connect(struct reef_port *port, const char *addresses,
		      uint64_t domain,
		      const struct reef_connect_options *options,
		      struct reef_link **out, uint32_t *door)
{
	char address[REEF_MESH_ADDRESS_MAX];
	struct reef_queue *queue;
	uint32_t index, rank = 0;
	int rc = -EINVAL, chosen;

	do {
		chosen = reef_port_choose(port, addresses, domain, rank, &index,
					  &queue, address);
		if (chosen)
			return chosen == -ENOENT ? rc : chosen;
		rc = reef_connect(queue, address, options, out);
		rank++;
	} while (!is_final(rc));
	if (!rc && door)
		*door = index;
	return rc;
}

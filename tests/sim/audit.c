/* audit.c - is all memory back, after everybody has ended? */
#include "cluster.h"
#include "pool/client/heap/heap.h"

#include <string.h>

int audit_settle(struct client *client, int rc)
{
	struct cluster *cluster = client->cluster;

	if (rc != -REEF_EINDOUBT || !(cluster->options.chaos & CHAOS_LINKS))
		return rc;
	cluster->leaks++;
	return 0;
}

/* What has its own space is not there for the blocks. */
static int add_home(void *context, const struct reef_space_info *info)
{
	uint64_t *pinned = context;

	/* One of each extent is its header's; second copies count in both. */
	if (!strcmp(info->name, "home"))
		*pinned += (info->used / REEF_UNIT_SIZE - info->extents) /
			   info->copies;
	return 0;
}

/* How many units there are for blocks. With copies one extent may find no other
 * node for its second. */
static uint64_t count_units(const struct cluster *cluster)
{
	const struct cluster_options *options = &cluster->options;
	uint64_t extents =
		options->nodes * (options->capacity / options->extent_size);

	if (options->copies > 1)
		extents = extents / options->copies - 1;
	return extents * (options->extent_size / REEF_UNIT_SIZE - 1);
}

/* Take all there is, a unit each time. */
int audit_memory(struct client *client, uint64_t pinned)
{
	struct cluster *cluster = client->cluster;
	uint64_t units = count_units(cluster);
	uint64_t taken = 0, address, doubts = reef_heap_doubts();
	uint32_t tries = 0;
	int rc;

	rc = client->space == client->home
		     ? 0
		     : reef_space_list(client->reef, add_home, &pinned);
	if (rc)
		return rc;
	/* Limbo and recovery need a few periods. */
	do {
		while (!(rc = reef_alloc(client->space, REEF_UNIT_SIZE - 8,
					 &address)))
			taken++;
		if (audit_settle(client, rc) && rc != -ENOSPC)
			return rc;
		/* A claim in doubt is nobody's chunk. */
		pinned += 16 * (reef_heap_doubts() - doubts);
		doubts = reef_heap_doubts();
		rc = reef_sleep(cluster->options.ttl_ns);
		if (rc)
			return rc;
	} while (++tries < 30 && taken + pinned < units);
	if (taken + pinned < units)
		cluster_fail(cluster,
			     "only %llu units of %llu came back (%llu deaths, "
			     "%llu blocks perhaps kept)",
			     (unsigned long long)taken,
			     (unsigned long long)units,
			     (unsigned long long)cluster->deaths,
			     (unsigned long long)cluster->leaks);
	return 0;
}

/* device.c - which device, port and GID to use.
 *
 * Left to itself it takes the fastest active port of a device that has atomics.
 * On Ethernet a port has several GIDs; what both ends can route is most often
 * RoCE v2 over IPv4, then over IPv6, then with link-local addresses, then
 * RoCE v1. */
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIDS_MAX 1024u
#define NAME_MAX_SIZE 64

struct wanted {
	char name[NAME_MAX_SIZE]; /* "": any */
	uint32_t port;		  /* 0: any */
	int64_t gid;		  /* -1: any */
};

/* Parse "name[:port[:gid]]". */
static int parse_wanted(const char *text, struct wanted *out)
{
	const char *colon;
	size_t length;
	char *end;

	*out = (struct wanted){.gid = -1};
	if (!text || !*text)
		return 0;
	colon = strchr(text, ':');
	length = colon ? (size_t)(colon - text) : strlen(text);
	if (!length || length >= sizeof(out->name))
		return -EINVAL;
	memcpy(out->name, text, length);
	if (!colon)
		return 0;
	if (colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	out->port = (uint32_t)strtoul(colon + 1, &end, 10);
	if (!out->port || out->port > UINT8_MAX)
		return -EINVAL;
	if (!*end)
		return 0;
	if (*end != ':' || end[1] < '0' || end[1] > '9')
		return -EINVAL;
	out->gid = (int64_t)strtoul(end + 1, &end, 10);
	return *end || out->gid > UINT8_MAX ? -EINVAL : 0;
}

static bool is_ipv4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

static int gid_rank(const struct ibv_gid_entry *entry)
{
	bool is_v2 = entry->gid_type == IBV_GID_TYPE_ROCE_V2;

	if (is_v2 && is_ipv4(&entry->gid))
		return 4;
	if (is_v2 &&
	    !IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)entry->gid.raw))
		return 3;
	return is_v2 ? 2 : 1;
}

/* Call visit(entry) for every GID of a port until it returns true. */
static bool each_gid(struct ibv_context *context, uint8_t port,
		     bool (*visit)(void *what,
				   const struct ibv_gid_entry *entry),
		     void *what)
{
	struct ibv_gid_entry *entries;
	ssize_t count, i;
	bool found = false;

	entries = calloc(GIDS_MAX, sizeof(*entries));
	if (!entries)
		return false;
	count = ibv_query_gid_table(context, entries, GIDS_MAX, 0);
	for (i = 0; i < count && !found; i++)
		if (entries[i].port_num == port &&
		    entries[i].gid_index <= UINT8_MAX) /* all an AH can say */
			found = visit(what, &entries[i]);
	free(entries);
	return found;
}

struct choice {
	int64_t wanted;
	struct ibv_gid_entry best;
	int rank;
};

static bool choose_gid(void *what, const struct ibv_gid_entry *entry)
{
	struct choice *choice = what;
	int rank = gid_rank(entry);

	if (choice->wanted >= 0 && entry->gid_index != choice->wanted)
		return false;
	if (rank > choice->rank) {
		choice->rank = rank;
		choice->best = *entry;
	}
	return false;
}

/* How fast a port is, in units of 2.5 Gbit/s; only for comparing. */
static uint32_t port_rate(const struct ibv_port_attr *port)
{
	static const struct {
		uint8_t speed;
		uint32_t rate;
	} speeds[] = {{1, 1},  {2, 2},	 {4, 4},   {8, 4},
		      {16, 6}, {32, 10}, {64, 20}, {128, 40}};
	static const struct {
		uint8_t width;
		uint32_t lanes;
	} widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
	uint32_t rate = 1, lanes = 1;
	size_t i;

	for (i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (speeds[i].speed == port->active_speed)
			rate = speeds[i].rate;
	for (i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		if (widths[i].width == port->active_width)
			lanes = widths[i].lanes;
	return rate * lanes;
}

/* Fill *out if this port can be used. Returns how good it is; 0: not at all. */
static uint32_t rate_port(struct ibv_context *context, uint32_t number,
			  const struct wanted *wanted, struct verbs_device *out)
{
	struct choice choice = {.wanted = wanted->gid};
	struct ibv_port_attr port;

	if (ibv_query_port(context, (uint8_t)number, &port) ||
	    port.state != IBV_PORT_ACTIVE)
		return 0;
	out->port = (uint8_t)number;
	out->mtu = (uint8_t)port.active_mtu;
	out->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	out->lid = port.lid;
	out->message_max = port.max_msg_sz;
	out->gid_given = wanted->gid >= 0;
	each_gid(context, out->port, choose_gid, &choice);
	if (!choice.rank && (out->ethernet || out->gid_given))
		return 0;
	out->gid_index = choice.best.gid_index;
	out->gid = choice.best.gid;
	return port_rate(&port) * 8 + (uint32_t)choice.rank;
}

/* Open a device and fill *out for its best port. Returns how good that is; 0:
 * no port can be used, and the device is closed. */
static uint32_t rate_device(struct ibv_device *device,
			    const struct wanted *wanted,
			    struct verbs_device *out)
{
	struct verbs_device port = {0};
	uint32_t best = 0, rank, number;

	*out = (struct verbs_device){.context = ibv_open_device(device)};
	if (!out->context)
		return 0;
	port.context = out->context;
	if (ibv_query_device(out->context, &port.limits) ||
	    port.limits.atomic_cap == IBV_ATOMIC_NONE)
		goto none;
	for (number = 1; number <= port.limits.phys_port_cnt; number++) {
		if (wanted->port && number != wanted->port)
			continue;
		rank = rate_port(out->context, number, wanted, &port);
		if (rank > best) {
			best = rank;
			*out = port;
		}
	}
	if (best)
		return best;
none:
	ibv_close_device(out->context);
	return 0;
}

static void describe_device(const struct verbs_device *device, char *text,
			    size_t size)
{
	char address[INET6_ADDRSTRLEN];

	if (!device->ethernet) {
		snprintf(text, size, "verbs %s port %u lid %u",
			 ibv_get_device_name(device->context->device),
			 device->port, device->lid);
		return;
	}
	if (is_ipv4(&device->gid))
		inet_ntop(AF_INET, device->gid.raw + 12, address,
			  sizeof(address));
	else
		inet_ntop(AF_INET6, device->gid.raw, address, sizeof(address));
	snprintf(text, size, "verbs %s port %u gid %u (%s)",
		 ibv_get_device_name(device->context->device), device->port,
		 device->gid_index, address);
}

int verbs_device_open(const char *wanted_text, struct verbs_device *device,
		      char *description, size_t description_size)
{
	struct verbs_device best = {0}, candidate;
	struct ibv_device **list;
	struct wanted wanted;
	uint32_t best_rank = 0, rank;
	int count, i, rc;

	rc = parse_wanted(wanted_text, &wanted);
	if (rc)
		return rc;
	list = ibv_get_device_list(&count);
	if (!list)
		return -ENODEV;
	for (i = 0; i < count; i++) {
		if (wanted.name[0] &&
		    strcmp(ibv_get_device_name(list[i]), wanted.name) != 0)
			continue;
		rank = rate_device(list[i], &wanted, &candidate);
		if (rank > best_rank) {
			if (best.context)
				ibv_close_device(best.context);
			best = candidate;
			best_rank = rank;
		} else if (rank) {
			ibv_close_device(candidate.context);
		}
	}
	ibv_free_device_list(list);
	if (!best_rank)
		return -ENODEV;
	best.domain = ibv_alloc_pd(best.context);
	if (!best.domain) {
		rc = -errno;
		ibv_close_device(best.context);
		return rc;
	}
	describe_device(&best, description, description_size);
	*device = best;
	return 0;
}

void verbs_device_close(struct verbs_device *device)
{
	ibv_dealloc_pd(device->domain);
	ibv_close_device(device->context);
}

struct match {
	union ibv_gid address;
	struct ibv_gid_entry found;
};

static bool match_gid(void *what, const struct ibv_gid_entry *entry)
{
	struct match *match = what;

	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2 ||
	    memcmp(&entry->gid, &match->address, sizeof(entry->gid)) != 0)
		return false;
	match->found = *entry;
	return true;
}

void verbs_device_gid(const struct verbs_device *device,
		      const struct reef_address *local, uint32_t *index,
		      union ibv_gid *gid)
{
	const struct sockaddr_in *in = (const void *)&local->storage;
	const struct sockaddr_in6 *in6 = (const void *)&local->storage;
	struct match match = {0};

	*index = device->gid_index;
	*gid = device->gid;
	if (!device->ethernet || device->gid_given)
		return;
	if (local->storage.ss_family == AF_INET6) {
		memcpy(match.address.raw, &in6->sin6_addr, 16);
	} else if (local->storage.ss_family == AF_INET) {
		match.address.raw[10] = match.address.raw[11] = 0xff;
		memcpy(match.address.raw + 12, &in->sin_addr, 4);
	}
	if (!memcmp(&match.address, gid, sizeof(*gid)))
		return;
	if (each_gid(device->context, device->port, match_gid, &match)) {
		*index = match.found.gid_index;
		*gid = match.found.gid;
	}
}

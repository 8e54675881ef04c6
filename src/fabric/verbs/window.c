/* window.c - through what a peer reaches a region that it attached.
 *
 * Where the device has windows (type 2B) each holding has one of its own, bound
 * to its link's queue pair and to what its key allows: the device's key, which
 * has 32 bits and can be guessed, is of no use on another queue pair. The
 * registration behind it lets nobody in by itself.
 *
 *   (none) --open: allocated, waits for its turn--> BINDING
 *   BINDING --bound--> usable: whoever attached is answered
 *   BINDING --bound, but withdrawn meanwhile--> closed, and they are told so
 *
 * Without windows, or if there is none left, a device's key is that of a
 * registration, for reading or for everything, which all queue pairs of this
 * fabric can name. A device that says it has windows and cannot bind one is
 * treated so from then on; the link on which that was found out is lost. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

#define ALL_ACCESS                                                             \
	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_ATOMIC)

int verbs_registration_find(struct verbs_fabric *fabric,
			    struct verbs_region *region, enum verbs_use use,
			    struct ibv_mr **out)
{
	static const int access[VERBS_USES] = {
		[VERBS_FOR_WINDOWS] =
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
		[VERBS_FOR_WRITING] = IBV_ACCESS_LOCAL_WRITE | ALL_ACCESS,
		[VERBS_FOR_READING] = IBV_ACCESS_REMOTE_READ,
	};
	const struct reef_memory *memory = region->region.memory;
	struct ibv_mr **made = &region->registrations[use];

	/* Addresses begin at 0: peers need not know where the memory lies. */
	if (!*made)
		*made = ibv_reg_mr_iova(fabric->device.domain, memory->base,
					memory->size, 0, access[use]);
	if (!*made)
		return errno ? -errno : -ENOMEM;
	*out = *made;
	return 0;
}

void verbs_registrations_free(struct verbs_region *region)
{
	for (int i = 0; i < VERBS_USES; i++)
		if (region->registrations[i])
			ibv_dereg_mr(region->registrations[i]);
}

void verbs_windows_missing(struct verbs_fabric *fabric, const char *why)
{
	if (!atomic_exchange(&fabric->was_told, true))
		reef_log(REEF_LOG_WARNING, "verbs",
			 "no memory windows (%s): who guesses a device's key "
			 "reaches what is lent to others",
			 why);
}

static struct verbs_bind *find_free_bind(struct verbs_link *link)
{
	for (int i = 0; i < VERBS_BINDS; i++)
		if (!link->binds[i].is_busy)
			return &link->binds[i];
	return NULL;
}

static int post_bind(struct verbs_link *link, struct verbs_bind *bind,
		     struct verbs_holding *holding)
{
	const struct reef_region *region = &holding->region->region;
	bool only_reads = reef_region_only_reads(region, holding->key);
	struct ibv_send_wr *bad, request = {
					 .wr_id = (uintptr_t)&bind->work,
					 .opcode = IBV_WR_BIND_MW,
					 .send_flags = IBV_SEND_SIGNALED,
				 };

	bind->work = (struct verbs_work){.link = link, .kind = VERBS_WORK_BIND};
	holding->rkey = ibv_inc_rkey(holding->window->rkey);
	request.bind_mw.mw = holding->window;
	request.bind_mw.rkey = holding->rkey;
	request.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = holding->region->registrations[VERBS_FOR_WINDOWS],
		.addr = 0,
		.length = region->memory->size,
		.mw_access_flags =
			only_reads ? IBV_ACCESS_REMOTE_READ : ALL_ACCESS,
	};
	return -ibv_post_send(link->pair, &request, &bad);
}

void verbs_window_start(struct verbs_link *link)
{
	struct verbs_holding *holding = link->holdings;
	struct verbs_bind *bind;

	for (; holding && !link->broken; holding = holding->next) {
		if (!holding->binding || holding->bind)
			continue;
		bind = find_free_bind(link);
		if (!bind)
			return;
		if (post_bind(link, bind, holding)) {
			verbs_link_break(link, -REEF_ENOLINK);
			return;
		}
		bind->is_busy = true;
		bind->holding = holding;
		holding->bind = bind;
	}
}

int verbs_window_open(struct verbs_link *link, struct verbs_holding *holding)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	struct ibv_mr *registration;
	int rc;

	if (!atomic_load(&fabric->has_windows))
		return -REEF_ENOCAP;
	pthread_mutex_lock(&fabric->regions_lock);
	rc = verbs_registration_find(fabric, holding->region, VERBS_FOR_WINDOWS,
				     &registration);
	pthread_mutex_unlock(&fabric->regions_lock);
	if (rc)
		return rc;
	holding->window = ibv_alloc_mw(fabric->device.domain, IBV_MW_TYPE_2);
	if (!holding->window) {
		verbs_windows_missing(fabric, "none is left");
		return -ENOMEM;
	}
	holding->binding = true;
	return 0;
}

void verbs_window_close(struct verbs_holding *holding)
{
	if (holding->bind)
		holding->bind->holding = NULL;
	holding->bind = NULL;
	if (holding->window)
		ibv_dealloc_mw(holding->window);
	holding->window = NULL;
}

void verbs_windows_close(struct verbs_link *link)
{
	struct verbs_holding *holding;

	for (holding = link->holdings; holding; holding = holding->next)
		verbs_window_close(holding);
}

void verbs_window_completed(struct verbs_bind *bind, enum ibv_wc_status status)
{
	struct verbs_link *link = bind->work.link;
	struct verbs_fabric *fabric = verbs_link_fabric(link);
	struct verbs_holding *holding = bind->holding;

	bind->is_busy = false;
	bind->holding = NULL;
	if (holding)
		holding->bind = NULL;
	if (status != IBV_WC_SUCCESS) {
		if (link->broken)
			return;
		if (status != IBV_WC_WR_FLUSH_ERR) {
			verbs_windows_missing(fabric,
					      ibv_wc_status_str(status));
			atomic_store(&fabric->has_windows, false);
		}
		verbs_link_break(link, -REEF_ENOLINK);
		return;
	}
	if (holding) {
		holding->binding = false;
		verbs_target_bound(link, holding);
	}
	verbs_window_start(link);
}

/* device_shim.c - see device_shim.h. Destroying a queue pair polls its
 * completion queue empty; what is of others is kept, and is what polls get
 * first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "device_shim.h"

#include "check.h"
#include "fabric/verbs/verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define QUEUES_MAX 32
#define KEPT_MAX 8192

struct kept {
	const struct ibv_cq *queue;
	struct ibv_wc all[KEPT_MAX];
	int first, end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept kept[QUEUES_MAX]; /* locked */
static int (*poll_device)(struct ibv_cq *queue, int max, struct ibv_wc *out);

/* Locked. */
static struct kept *find_kept(const struct ibv_cq *queue)
{
	int i = 0;

	while (i < QUEUES_MAX && kept[i].queue && kept[i].queue != queue)
		i++;
	CHECK(i < QUEUES_MAX);
	kept[i].queue = queue;
	return &kept[i];
}

static int poll_shim(struct ibv_cq *queue, int max, struct ibv_wc *out)
{
	struct kept *own;
	int count = 0;

	pthread_mutex_lock(&lock);
	own = find_kept(queue);
	while (count < max && own->first < own->end)
		out[count++] = own->all[own->first++];
	if (!count)
		count = poll_device(queue, max, out);
	pthread_mutex_unlock(&lock);
	return count;
}

/* Locked. */
static void drop_completions(struct ibv_cq *queue, uint32_t number)
{
	struct kept *own = find_kept(queue);
	struct ibv_wc one;
	int i, end = 0;

	while (poll_device(queue, 1, &one) == 1) {
		CHECK(own->end < KEPT_MAX);
		own->all[own->end++] = one;
	}
	for (i = own->first; i < own->end; i++)
		if (own->all[i].qp_num != number)
			own->all[end++] = own->all[i];
	own->first = 0;
	own->end = end;
}

/* In place of the library's. */
int ibv_destroy_qp(struct ibv_qp *pair)
{
	struct ibv_cq *queue = pair->recv_cq;
	uint32_t number = pair->qp_num;
	int (*destroy)(struct ibv_qp * pair);
	void *symbol = dlvsym(RTLD_NEXT, "ibv_destroy_qp", "IBVERBS_1.1");
	int rc;

	CHECK(symbol);
	memcpy(&destroy, &symbol, sizeof(symbol));
	rc = destroy(pair);
	if (rc || !poll_device)
		return rc;
	pthread_mutex_lock(&lock);
	drop_completions(queue, number);
	pthread_mutex_unlock(&lock);
	return 0;
}

void device_shim_open(struct reef_fabric *fabric)
{
	struct verbs_fabric *verbs =
		reef_container(fabric, struct verbs_fabric, fabric);

	poll_device = verbs->device.context->ops.poll_cq;
	verbs->device.context->ops.poll_cq = poll_shim;
}

/* tcp.c - the fabric: what is exposed, and the table of operations. */
#include "fabric/tcp/tcp.h"

#include "wire/control.h"

#include <stdio.h>

/* --- memory --- */

static int tcp_expose(struct reef_layer *layer, struct reef_memory *memory,
		      struct reef_region **out)
{
	struct tcp_fabric *fabric = tcp_fabric_of(layer);
	struct tcp_region *region;
	int rc;

	if (memory->domain != fabric->base.domain)
		return -REEF_EDOMAIN;
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	region->base.fabric = layer->fabric;
	region->base.memory = memory;
	rc = tcp_regions_add(&fabric->regions, region);
	if (rc < 0) {
		free(region);
		return rc;
	}
	*out = &region->base;
	return 0;
}

/* Tell the peers that hold a key that it is withdrawn. The target refuses the
 * key whether they hear it or not, so nobody waits for their answer. */
static void notify_holders(struct tcp_fabric *fabric, uint64_t key)
{
	uint8_t payload[REEF_WIRE_KEY_SIZE];
	bool holds;

	reef_wire_key_encode(key, payload);
	pthread_mutex_lock(&fabric->lock);
	for (struct tcp_link *link = fabric->links; link; link = link->next) {
		if (!link->base.listener || atomic_load(&link->broken))
			continue;
		pthread_mutex_lock(&link->lock);
		holds = false;
		for (uint32_t i = 0; i < link->holding_count && !holds; i++)
			holds = link->holdings[i].key == key;
		pthread_mutex_unlock(&link->lock);
		if (holds)
			tcp_control(link, REEF_FRAME_WITHDRAW, 0, payload,
				    sizeof(payload));
	}
	pthread_mutex_unlock(&fabric->lock);
}

/* Have those let go whose batches have come halfway, or whose answers do not go
 * out (tcp.h, 9). A link that another thread reads now is asked again with the
 * next call. */
static void loosen_holders(struct tcp_fabric *fabric, struct reef_queue *queue,
			   const struct tcp_region *region)
{
	uint64_t passed_ns = reef_now_ns() - region->withdrawn_ns;
	bool too_late = passed_ns >= tcp_silence_ns(fabric) / 4;

	pthread_mutex_lock(&fabric->lock);
	for (struct tcp_link *link = fabric->links; link; link = link->next) {
		if (!link->base.listener || atomic_load(&link->broken) ||
		    pthread_mutex_trylock(&link->rx_lock))
			continue;
		if (!tcp_target_let_go(&link->target, region) && too_late) {
			pthread_mutex_lock(&link->tx_lock);
			tcp_link_break_locked(link, queue, -ETIMEDOUT, false);
			pthread_mutex_unlock(&link->tx_lock);
		}
		pthread_mutex_unlock(&link->rx_lock);
	}
	pthread_mutex_unlock(&fabric->lock);
}

static int tcp_withdraw(struct reef_layer *layer, struct reef_queue *queue,
			struct reef_region *base)
{
	struct tcp_fabric *fabric = tcp_fabric_of(layer);
	struct tcp_region *region = (struct tcp_region *)base;
	bool again = atomic_load(&region->withdrawn);
	uint64_t key = base->key, read_key = base->read_key;
	int rc = tcp_regions_withdraw(&fabric->regions, region);

	if (!again) {
		notify_holders(fabric, key);
		notify_holders(fabric, read_key);
	}
	if (rc == -EAGAIN) {
		loosen_holders(fabric, queue, region);
		rc = tcp_regions_withdraw(&fabric->regions, region);
	}
	return rc;
}

/* --- the fabric --- */

static void tcp_close(struct reef_layer *layer)
{
	struct tcp_fabric *fabric = tcp_fabric_of(layer);

	while (fabric->listeners)
		tcp_unlisten(layer, &fabric->listeners->base);
	while (fabric->links)
		tcp_disconnect(layer, &fabric->links->base);
	tcp_regions_fini(&fabric->regions);
	pthread_mutex_destroy(&fabric->lock);
	reef_fences_fini(&fabric->fences);
	reef_numbers_fini(&fabric->numbers);
	free(fabric);
}

static const struct reef_fabric_ops tcp_ops;

int reef_tcp_open(const struct reef_fabric_options *options,
		  struct reef_fabric **out)
{
	static const char *const encryption[] = {
		[REEF_TLS_AUTO] = "encrypted but on loopback",
		[REEF_TLS_YES] = "encrypted",
		[REEF_TLS_NO] = "not encrypted",
	};
	struct tcp_fabric *fabric;

	if (options->tls > REEF_TLS_NO)
		return -EINVAL;
	if (options->ops_max > REEF_WIRE_BATCH_MAX / 2 / REEF_WIRE_OP_SIZE ||
	    options->length_max > REEF_WIRE_BATCH_MAX / 2 ||
	    options->message_max > REEF_WIRE_BATCH_MAX / 2 ||
	    options->depth_max > 1u << 20)
		return -EINVAL;
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -ENOMEM;
	if (reef_fences_init(&fabric->fences)) {
		free(fabric);
		return -ENOMEM;
	}
	tcp_regions_init(&fabric->regions);
	pthread_mutex_init(&fabric->lock, NULL);
	fabric->base.provider.ops = tcp_ops;
	fabric->base.options = *options;
	fabric->base.domain = reef_domain_cpu();
	fabric->base.capabilities = REEF_CAP_FLUSH;
	snprintf(fabric->base.description, sizeof(fabric->base.description),
		 "tcp (authenticated, %s; a peer is lost after %llu ms)",
		 encryption[options->tls],
		 (unsigned long long)(options->silence_ns / 1000000));
	*out = &fabric->base;
	return 0;
}

static const struct reef_fabric_ops tcp_ops = {
	.name = "tcp",
	.close = tcp_close,
	.queue_open = tcp_queue_open,
	.queue_close = tcp_queue_close,
	.post = tcp_post,
	.poll = tcp_poll,
	.arm = tcp_arm,
	.listen = tcp_listen,
	.unlisten = tcp_unlisten,
	.connect = tcp_connect,
	.disconnect = tcp_disconnect,
	.sever = tcp_sever,
	.expose = tcp_expose,
	.withdraw = tcp_withdraw,
	.attach = tcp_attach,
	.detach = tcp_detach,
	.fence = tcp_fence,
	.end_links = tcp_end_links,
};

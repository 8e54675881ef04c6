/* verbs.c - opening and closing the fabric; its table of operations. */
#include "fabric/verbs/verbs.h"

#include "base/checksum.h"

#include <stdlib.h>
#include <string.h>

#define SEND_LEAST 64u
#define ACK_UNIT_NS 4096u
#define ACK_TRIES 7

/* The longest wait for an answer so that all tries fit in half of silence_ns:
 * devices may wait longer than they were told. */
static uint8_t ack_timeout_of(uint64_t silence_ns)
{
	uint8_t code = 1;

	while (code < 30 && ((uint64_t)ACK_UNIT_NS << (code + 1)) * ACK_TRIES <
				    silence_ns / 2)
		code++;
	return code;
}

static uint32_t send_max_of(const struct verbs_device *device,
			    const struct reef_fabric_options *options)
{
	/* There is room for a whole batch behind the one under way. */
	uint64_t wanted = 2 * (uint64_t)options->ops_max;

	if (wanted < SEND_LEAST)
		wanted = SEND_LEAST;
	if (wanted > (uint64_t)device->limits.max_qp_wr)
		wanted = (uint64_t)device->limits.max_qp_wr;
	if (wanted > (uint64_t)device->limits.max_cqe / 2)
		wanted = (uint64_t)device->limits.max_cqe / 2;
	return (uint32_t)wanted;
}

/* One domain per device, the same for every process that uses it. */
static uint64_t domain_of(const struct verbs_device *device)
{
	uint64_t guid = ibv_get_device_guid(device->context->device);
	uint64_t domain = reef_hash(&guid, sizeof(guid), 0x7665726273);

	while (!domain || domain == reef_domain_cpu())
		domain++;
	return domain;
}

static void verbs_close(struct reef_layer *layer)
{
	struct verbs_fabric *fabric = verbs_fabric(layer);

	while (fabric->orphans)
		verbs_link_drop(fabric->orphans);
	verbs_regions_close(fabric);
	verbs_device_close(&fabric->device);
	pthread_mutex_destroy(&fabric->regions_lock);
	pthread_mutex_destroy(&fabric->lock);
	reef_fences_fini(&fabric->fences);
	reef_numbers_fini(&fabric->numbers);
	free(fabric);
}

static int verbs_buffer_register(struct reef_layer *layer, void *base,
				 size_t size, struct reef_buffer **out)
{
	struct ibv_pd *domain = verbs_fabric(layer)->device.domain;
	struct verbs_buffer *buffer;

	buffer = malloc(sizeof(*buffer));
	if (!buffer)
		return -ENOMEM;
	*buffer = (struct verbs_buffer){
		.buffer = {.fabric = layer->fabric, .base = base, .size = size},
		.registration =
			ibv_reg_mr(domain, base, size, IBV_ACCESS_LOCAL_WRITE),
	};
	/* Memory that may only be read will do for WRITE and SEND. */
	if (!buffer->registration)
		buffer->registration = ibv_reg_mr(domain, base, size, 0);
	if (!buffer->registration) {
		free(buffer);
		return errno ? -errno : -ENOMEM;
	}
	*out = &buffer->buffer;
	return 0;
}

static void verbs_buffer_unregister(struct reef_layer *layer,
				    struct reef_buffer *base)
{
	struct verbs_buffer *buffer =
		reef_container(base, struct verbs_buffer, buffer);

	ibv_dereg_mr(buffer->registration);
	free(buffer);
}

static const struct reef_fabric_ops verbs_ops = {
	.name = "verbs",
	.close = verbs_close,
	.queue_open = verbs_queue_open,
	.queue_close = verbs_queue_close,
	.post = verbs_post,
	.poll = verbs_poll,
	.arm = verbs_arm,
	.listen = verbs_listen,
	.unlisten = verbs_unlisten,
	.connect = verbs_connect,
	.disconnect = verbs_disconnect,
	.expose = verbs_expose,
	.withdraw = verbs_withdraw,
	.attach = verbs_attach,
	.detach = verbs_detach,
	.buffer_register = verbs_buffer_register,
	.buffer_unregister = verbs_buffer_unregister,
	.fence = verbs_fence,
	.end_links = verbs_end_links,
};

int reef_verbs_open(const struct reef_fabric_options *options,
		    struct reef_fabric **out)
{
	struct verbs_fabric *fabric;
	int rc;

	/* Pages that a device writes must not be copied away from under it when
	 * the process forks. Kernels that see to it make this a no-op; on older
	 * ones registered pages do not follow the fork. Too late if somebody
	 * else has registered memory already: then it is their choice. */
	ibv_fork_init();
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -ENOMEM;
	rc = reef_fences_init(&fabric->fences);
	if (!rc)
		rc = verbs_device_open(options->device, &fabric->device,
				       fabric->fabric.description,
				       sizeof(fabric->fabric.description));
	if (rc) {
		reef_fences_fini(&fabric->fences);
		free(fabric);
		return rc;
	}
	fabric->fabric.options = *options;
	fabric->fabric.provider.ops = verbs_ops;
	fabric->fabric.domain = domain_of(&fabric->device);
	fabric->send_max = send_max_of(&fabric->device, options);
	if (fabric->device.limits.device_cap_flags &
	    IBV_DEVICE_MEM_WINDOW_TYPE_2B)
		fabric->fabric.capabilities |= REEF_CAP_WINDOWS;
	atomic_init(&fabric->has_windows,
		    fabric->fabric.capabilities & REEF_CAP_WINDOWS);
	fabric->ack_timeout = ack_timeout_of(options->silence_ns);
	pthread_mutex_init(&fabric->lock, NULL);
	pthread_mutex_init(&fabric->regions_lock, NULL);
	reef_log(REEF_LOG_INFO, "verbs", "using %s",
		 fabric->fabric.description);
	*out = &fabric->fabric;
	return 0;
}

/* peer_ucx.c - the cases over UCX, as a user of its ucp interface writes them.
 *
 * shm: the target allocates through UCX, because without xpmem its shared-
 * memory transports reach only memory they allocated themselves; the client
 * then maps it, and get, put and atomics are copies and instructions in the
 * client, like Reef's, and the target may rest. tcp: get is a request that the
 * target's progress answers, so the target polls.
 *
 * A get or a fetching atomic is complete when its request is. A put is complete
 * for others only after a flush, so a write is a put and a flush.
 *
 * Thread: owner. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

struct ucx {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucp_rkey_h rkey;
	ucp_mem_h memory;
	uint64_t base; /* where the memory is in the target */
	struct workload_state state;
};

/* What the target tells the client; then the worker address and the key. */
struct invitation {
	uint64_t base, address_size, key_size;
};

static int fail(struct driver_pair *pair, const char *what, ucs_status_t status)
{
	return driver_fail(pair, -EIO, "%s: %s", what,
			   ucs_status_string(status));
}

/* --- operations --- */

workload_inline int ucx_await(struct ucx *ucx, ucs_status_ptr_t request)
{
	ucs_status_t status;

	if (__builtin_expect(request == NULL, 1))
		return 0;
	if (UCS_PTR_IS_ERR(request))
		return -EIO;
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		ucp_worker_progress(ucx->worker);
	ucp_request_free(request);
	return status == UCS_OK ? 0 : -EIO;
}

workload_inline int ucx_read(void *context, uint64_t offset, void *to,
			     uint32_t length)
{
	struct ucx *ucx = context;
	ucp_request_param_t param = {.op_attr_mask = 0};

	return ucx_await(ucx,
			 ucp_get_nbx(ucx->ep, to, length, ucx->base + offset,
				     ucx->rkey, &param));
}

workload_inline int ucx_read_batch(void *context, const uint64_t *offsets,
				   void *to)
{
	struct ucx *ucx = context;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_OP_ATTR_FLAG_MULTI_SEND,
	};
	ucs_status_ptr_t requests[WORKLOAD_BATCH_MAX];
	int rc = 0;

	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++)
		requests[i] = ucp_get_nbx(
			ucx->ep, (char *)to + i * WORKLOAD_LINE, WORKLOAD_LINE,
			ucx->base + offsets[i], ucx->rkey, &param);
	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++)
		rc |= ucx_await(ucx, requests[i]);
	return rc ? -EIO : 0;
}

workload_inline int ucx_write(void *context, uint64_t offset, const void *from,
			      uint32_t length)
{
	struct ucx *ucx = context;
	ucp_request_param_t param = {.op_attr_mask = 0};
	int rc;

	rc = ucx_await(ucx, ucp_put_nbx(ucx->ep, from, length,
					ucx->base + offset, ucx->rkey, &param));
	return rc ? rc : ucx_await(ucx, ucp_ep_flush_nbx(ucx->ep, &param));
}

workload_inline int ucx_cas(void *context, uint64_t offset, uint64_t compare,
			    uint64_t swap, uint64_t *before)
{
	struct ucx *ucx = context;
	uint64_t reply = swap;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_REPLY_BUFFER |
				UCP_OP_ATTR_FIELD_DATATYPE,
		.datatype = ucp_dt_make_contig(8),
		.reply_buffer = &reply,
	};
	int rc;

	rc = ucx_await(ucx, ucp_atomic_op_nbx(ucx->ep, UCP_ATOMIC_OP_CSWAP,
					      &compare, 1, ucx->base + offset,
					      ucx->rkey, &param));
	*before = reply;
	return rc;
}

workload_inline int ucx_faa(void *context, uint64_t offset, uint64_t add,
			    uint64_t *before)
{
	struct ucx *ucx = context;
	uint64_t reply = 0;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_REPLY_BUFFER |
				UCP_OP_ATTR_FIELD_DATATYPE,
		.datatype = ucp_dt_make_contig(8),
		.reply_buffer = &reply,
	};
	int rc;

	rc = ucx_await(ucx, ucp_atomic_op_nbx(ucx->ep, UCP_ATOMIC_OP_ADD, &add,
					      1, ucx->base + offset, ucx->rkey,
					      &param));
	*before = reply;
	return rc;
}

static const struct workload_ops ucx_ops = {
	.read = ucx_read,
	.read_batch = ucx_read_batch,
	.write = ucx_write,
	.cas = ucx_cas,
	.faa = ucx_faa,
};

/* --- setting up --- */

/* Make a setting, unless the environment does. */
static void set_default(ucp_config_t *config, const char *name,
			const char *value)
{
	char variable[64];

	snprintf(variable, sizeof(variable), "UCX_%s", name);
	if (!getenv(variable))
		ucp_config_modify(config, name, value);
}

static int worker_open(struct driver_pair *pair, struct ucx *ucx)
{
	bool tcp = strcmp(pair->options.fabric, "tcp") == 0;
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES |
			      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64,
		.estimated_num_eps = 1,
	};
	ucp_worker_params_t worker_params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_config_t *config;
	ucs_status_t status;

	status = ucp_config_read(NULL, NULL, &config);
	if (status != UCS_OK)
		return fail(pair, "ucp_config_read", status);
	set_default(config, "TLS", tcp ? "tcp" : "shm,self");
	if (tcp)
		set_default(config, "NET_DEVICES", "lo");
	status = ucp_init(&params, config, &ucx->context);
	ucp_config_release(config);
	if (status != UCS_OK)
		return fail(pair, "ucp_init", status);
	status = ucp_worker_create(ucx->context, &worker_params, &ucx->worker);
	if (status != UCS_OK)
		return fail(pair, "ucp_worker_create", status);
	return 0;
}

/* Only what UCX allocated can be mapped by the client (shm); for tcp any memory
 * will do, so it is the same as everybody's. */
static int target_memory(struct driver_pair *pair, struct ucx *ucx)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
			      UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = pair->options.size,
		.flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
	ucs_status_t status;

	if (strcmp(pair->options.fabric, "tcp") == 0) {
		params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
				    UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
		params.address = driver_memory(pair);
		if (!params.address)
			return -ENOMEM;
	}
	status = ucp_mem_map(ucx->context, &params, &ucx->memory);
	if (status != UCS_OK)
		return fail(pair, "ucp_mem_map", status);
	status = ucp_mem_query(ucx->memory, &attr);
	if (status != UCS_OK)
		return fail(pair, "ucp_mem_query", status);
	ucx->base = (uint64_t)(uintptr_t)attr.address;
	if (params.flags & UCP_MEM_MAP_ALLOCATE)
		driver_fill(attr.address, pair->options.size);
	return 0;
}

static void ucx_progress(struct driver_pair *pair, enum workload_mode mode)
{
	struct ucx *ucx = pair->context;

	ucp_worker_progress(ucx->worker);
}

static int ucx_target(struct driver_pair *pair)
{
	struct ucx ucx = {0};
	struct invitation invitation;
	ucp_address_t *address;
	size_t address_size, key_size;
	ucs_status_t status;
	void *key;
	int rc;

	pair->context = &ucx;
	rc = worker_open(pair, &ucx);
	rc = rc ? rc : target_memory(pair, &ucx);
	if (rc)
		return rc;
	status = ucp_worker_get_address(ucx.worker, &address, &address_size);
	if (status != UCS_OK)
		return fail(pair, "ucp_worker_get_address", status);
	status = ucp_rkey_pack(ucx.context, ucx.memory, &key, &key_size);
	if (status != UCS_OK)
		return fail(pair, "ucp_rkey_pack", status);
	invitation = (struct invitation){ucx.base, address_size, key_size};
	rc = driver_send(pair, &invitation, sizeof(invitation));
	rc = rc ? rc : driver_send(pair, address, address_size);
	rc = rc ? rc : driver_send(pair, key, key_size);
	ucp_worker_release_address(ucx.worker, address);
	ucp_rkey_buffer_release(key);
	if (!rc)
		driver_target_loop(pair, ucx_progress);
	ucp_mem_unmap(ucx.context, ucx.memory);
	ucp_worker_destroy(ucx.worker);
	ucp_cleanup(ucx.context);
	return rc;
}

/* Describe the transports that the endpoint's lanes are on. UCX tells only in
 * prose,
 * "#  lane[0]:  0:posix/memory.0 md[0] -> ... am rma amo". */
static void describe_transports(struct driver_pair *pair, struct ucx *ucx)
{
	char *text = NULL, *line, *rest, lane[48];
	size_t size, used;
	FILE *stream = open_memstream(&text, &size);

	if (!stream)
		return;
	ucp_ep_print_info(ucx->ep, stream);
	fclose(stream);
	used = (size_t)snprintf(pair->description, sizeof(pair->description),
				"UCX %s:", ucp_get_version_string());
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		line = strstr(line, "lane[");
		if (!line || sscanf(line, "%*[^:]: %*d:%47[^ ]", lane) != 1)
			continue;
		if (used + strlen(lane) + 2 < sizeof(pair->description))
			used += (size_t)sprintf(pair->description + used, " %s",
						lane);
	}
	free(text);
}

static int client_connect(struct driver_pair *pair, struct ucx *ucx)
{
	struct invitation invitation;
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
	};
	ucs_status_t status;
	char *bytes;
	int rc;

	rc = driver_receive(pair, &invitation, sizeof(invitation));
	if (rc)
		return rc;
	bytes = malloc(invitation.address_size + invitation.key_size);
	if (!bytes)
		return -ENOMEM;
	rc = driver_receive(pair, bytes,
			    invitation.address_size + invitation.key_size);
	if (rc)
		goto out;
	ucx->base = invitation.base;
	params.address = (ucp_address_t *)bytes;
	status = ucp_ep_create(ucx->worker, &params, &ucx->ep);
	if (status != UCS_OK) {
		rc = fail(pair, "ucp_ep_create", status);
		goto out;
	}
	status = ucp_ep_rkey_unpack(ucx->ep, bytes + invitation.address_size,
				    &ucx->rkey);
	if (status != UCS_OK)
		rc = fail(pair, "ucp_ep_rkey_unpack", status);
out:
	free(bytes);
	return rc;
}

static int ucx_open(struct driver_pair *pair)
{
	struct ucx *ucx = calloc(1, sizeof(*ucx));
	int rc;

	if (!ucx)
		return -ENOMEM;
	pair->context = ucx;
	if (strcmp(pair->options.fabric, "shm") == 0) {
		/* Pages of the same size as everybody's. */
		const char *mode = pair->options.huge ? "try" : "no";

		setenv("UCX_POSIX_HUGETLB_MODE", mode, 0);
		setenv("UCX_SYSV_HUGETLB_MODE", mode, 0);
	}
	rc = driver_fork(pair, ucx_target);
	rc = rc ? rc : driver_state(&ucx->state, pair->options.size);
	rc = rc ? rc : worker_open(pair, ucx);
	rc = rc ? rc : client_connect(pair, ucx);
	if (rc)
		return rc;
	/* The first operation also finishes the connection. */
	rc = driver_target_go(pair, WORKLOAD_SPIN);
	rc = rc ? rc : ucx_read(ucx, 0, ucx->state.local, WORKLOAD_LINE);
	rc = rc ? rc : driver_target_rest(pair);
	if (!rc && strcmp(pair->options.fabric, "shm") == 0) {
		pair->target_rests = true;
		rc = workload_sweep(&ucx_ops, ucx, &ucx->state);
	}
	if (rc)
		return driver_fail(pair, rc, "the first get failed");
	describe_transports(pair, ucx);
	return 0;
}

static int ucx_run(struct driver_pair *pair, const char *name, double seconds,
		   double *rate)
{
	const struct workload *workload = workload_find(name);
	struct ucx *ucx = pair->context;

	if (!workload || workload->mode != WORKLOAD_SPIN)
		return -ENOSYS;
	return workload_run(workload, &ucx_ops, ucx, &ucx->state, seconds,
			    rate);
}

static void ucx_close(struct driver_pair *pair)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	struct ucx *ucx = pair->context;

	ucp_rkey_destroy(ucx->rkey);
	ucx_await(ucx, ucp_ep_close_nbx(ucx->ep, &param));
	ucp_worker_destroy(ucx->worker);
	ucp_cleanup(ucx->context);
	free(ucx);
}

static const struct driver ucx_driver = {
	.name = "ucx",
	.open = ucx_open,
	.run = ucx_run,
	.close = ucx_close,
};

int main(int argc, char **argv)
{
	return driver_main(&ucx_driver, argc, argv);
}

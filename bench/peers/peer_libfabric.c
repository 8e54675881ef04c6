/* peer_libfabric.c - the cases over libfabric, as a user of its reliable
 * datagram endpoints (FI_EP_RDM) with FI_RMA and FI_ATOMIC writes them.
 *
 * Providers: shm for shm, net or tcp for tcp. Both work on the target's
 * progress where they cannot reach its memory themselves, so the target polls.
 *
 * A read or a fetching atomic is complete when the completion queue says so. A
 * write asks for FI_DELIVERY_COMPLETE, the completion that others can see it.
 *
 * Thread: owner. */
#include "driver.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY 0x7265656600 /* asked for; providers may give another */
#define ADDRESS_MAX 256

struct libfabric {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_mr *mr;	 /* target: the memory */
	struct fid_mr *local_mr; /* client: where providers ask for it */
	void *local_descriptor;
	fi_addr_t target;
	uint64_t base, key;
	struct workload_state state;
};

/* What the target tells the client. */
struct invitation {
	uint64_t base, key, address_size;
	uint8_t address[ADDRESS_MAX];
};

static int fail(struct driver_pair *pair, const char *what, ssize_t rc)
{
	return driver_fail(pair, -EIO, "%s: %s", what, fi_strerror((int)-rc));
}

/* --- operations --- */

/* Wait until `count` operations have completed. */
workload_inline int libfabric_await(struct libfabric *lf, uint32_t count)
{
	struct fi_cq_entry entries[WORKLOAD_BATCH_MAX];
	ssize_t n;

	while (count > 0) {
		n = fi_cq_read(lf->cq, entries, count);
		if (n > 0)
			count -= (uint32_t)n;
		else if (n != -FI_EAGAIN)
			return -EIO;
	}
	return 0;
}

/* Post again while the provider has no room, making progress. */
#define POST(lf, call)                                                         \
	({                                                                     \
		ssize_t posted;                                                \
		while ((posted = (call)) == -FI_EAGAIN)                        \
			fi_cq_read((lf)->cq, NULL, 0);                         \
		posted;                                                        \
	})

workload_inline int libfabric_read(void *context, uint64_t offset, void *to,
				   uint32_t length)
{
	struct libfabric *lf = context;

	if (POST(lf, fi_read(lf->ep, to, length, lf->local_descriptor,
			     lf->target, lf->base + offset, lf->key, NULL)))
		return -EIO;
	return libfabric_await(lf, 1);
}

workload_inline int libfabric_read_batch(void *context, const uint64_t *offsets,
					 void *to)
{
	struct libfabric *lf = context;
	struct fi_cq_entry entries[WORKLOAD_BATCH_MAX];
	uint32_t completed = 0;
	ssize_t rc, n;

	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++) {
		char *line = (char *)to + i * WORKLOAD_LINE;

		while ((rc = fi_read(lf->ep, line, WORKLOAD_LINE,
				     lf->local_descriptor, lf->target,
				     lf->base + offsets[i], lf->key, NULL)) ==
		       -FI_EAGAIN) {
			n = fi_cq_read(lf->cq, entries, WORKLOAD_BATCH_MAX);
			if (n > 0)
				completed += (uint32_t)n;
		}
		if (rc)
			return -EIO;
	}
	return libfabric_await(lf, WORKLOAD_BATCH_MAX - completed);
}

workload_inline int libfabric_write(void *context, uint64_t offset,
				    const void *from, uint32_t length)
{
	struct libfabric *lf = context;
	struct iovec iov = {(void *)from, length};
	struct fi_rma_iov remote = {lf->base + offset, length, lf->key};
	struct fi_msg_rma message = {
		.msg_iov = &iov,
		.desc = &lf->local_descriptor,
		.iov_count = 1,
		.addr = lf->target,
		.rma_iov = &remote,
		.rma_iov_count = 1,
	};

	if (POST(lf, fi_writemsg(lf->ep, &message,
				 FI_DELIVERY_COMPLETE | FI_COMPLETION)))
		return -EIO;
	return libfabric_await(lf, 1);
}

/* The operands live in the registered buffer, for providers that ask. */
workload_inline int libfabric_cas(void *context, uint64_t offset,
				  uint64_t compare, uint64_t swap,
				  uint64_t *before)
{
	struct libfabric *lf = context;
	uint64_t *words = (uint64_t *)lf->state.local;
	int rc;

	words[0] = swap;
	words[1] = compare;
	if (POST(lf,
		 fi_compare_atomic(lf->ep, &words[0], 1, lf->local_descriptor,
				   &words[1], lf->local_descriptor, &words[2],
				   lf->local_descriptor, lf->target,
				   lf->base + offset, lf->key, FI_UINT64,
				   FI_CSWAP, NULL)))
		return -EIO;
	rc = libfabric_await(lf, 1);
	*before = *(volatile uint64_t *)&words[2];
	return rc;
}

workload_inline int libfabric_faa(void *context, uint64_t offset, uint64_t add,
				  uint64_t *before)
{
	struct libfabric *lf = context;
	uint64_t *words = (uint64_t *)lf->state.local;
	int rc;

	words[0] = add;
	if (POST(lf, fi_fetch_atomic(lf->ep, &words[0], 1, lf->local_descriptor,
				     &words[2], lf->local_descriptor,
				     lf->target, lf->base + offset, lf->key,
				     FI_UINT64, FI_SUM, NULL)))
		return -EIO;
	rc = libfabric_await(lf, 1);
	*before = *(volatile uint64_t *)&words[2];
	return rc;
}

static const struct workload_ops libfabric_ops = {
	.read = libfabric_read,
	.read_batch = libfabric_read_batch,
	.write = libfabric_write,
	.cas = libfabric_cas,
	.faa = libfabric_faa,
};

/* --- setting up --- */

static struct fi_info *hints_make(const char *provider)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		return NULL;
	hints->caps = FI_RMA | FI_ATOMIC;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}

/* The first of the providers that has what the cases need. Of those that speak
 * TCP, `net` and `tcp` under ofi_rxm were within 3 % of each other in libfabric
 * 1.17, `net` ahead; `sockets` at half of that. */
static int info_find(struct driver_pair *pair, struct libfabric *lf)
{
	static const char *const shm[] = {"shm", NULL};
	static const char *const tcp[] = {"net", "tcp", "sockets", NULL};
	bool is_tcp = strcmp(pair->options.fabric, "tcp") == 0;
	const char *const *provider = is_tcp ? tcp : shm;
	int rc = -FI_ENODATA;

	for (; *provider; provider++) {
		struct fi_info *hints = hints_make(*provider);

		if (!hints)
			return -ENOMEM;
		/* A loopback source, so that tcp does not pick a real one. */
		rc = fi_getinfo(FI_VERSION(1, 17), is_tcp ? "127.0.0.1" : NULL,
				NULL, is_tcp ? FI_SOURCE : 0, hints, &lf->info);
		if (rc == -FI_ENODATA && is_tcp) {
			/* Not every tcp has atomics; no tcp case uses them. */
			hints->caps = FI_RMA;
			rc = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL,
					FI_SOURCE, hints, &lf->info);
		}
		fi_freeinfo(hints);
		if (rc == 0)
			return 0;
	}
	return fail(pair, "no provider", rc);
}

static int endpoint_open(struct driver_pair *pair, struct libfabric *lf)
{
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_CONTEXT,
		.size = 256,
		.wait_obj = FI_WAIT_NONE,
	};
	struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC, .count = 1};
	int rc;

	rc = info_find(pair, lf);
	if (rc)
		return rc;
	rc = fi_fabric(lf->info->fabric_attr, &lf->fabric, NULL);
	if (rc)
		return fail(pair, "fi_fabric", rc);
	rc = fi_domain(lf->fabric, lf->info, &lf->domain, NULL);
	if (rc)
		return fail(pair, "fi_domain", rc);
	rc = fi_cq_open(lf->domain, &cq_attr, &lf->cq, NULL);
	if (rc)
		return fail(pair, "fi_cq_open", rc);
	rc = fi_av_open(lf->domain, &av_attr, &lf->av, NULL);
	if (rc)
		return fail(pair, "fi_av_open", rc);
	rc = fi_endpoint(lf->domain, lf->info, &lf->ep, NULL);
	if (rc)
		return fail(pair, "fi_endpoint", rc);
	rc = fi_ep_bind(lf->ep, &lf->av->fid, 0);
	rc = rc ? rc : fi_ep_bind(lf->ep, &lf->cq->fid, FI_TRANSMIT | FI_RECV);
	rc = rc ? rc : fi_enable(lf->ep);
	return rc ? fail(pair, "enabling the endpoint", rc) : 0;
}

static void endpoint_close(struct libfabric *lf)
{
	fi_close(&lf->ep->fid);
	if (lf->mr)
		fi_close(&lf->mr->fid);
	if (lf->local_mr)
		fi_close(&lf->local_mr->fid);
	fi_close(&lf->av->fid);
	fi_close(&lf->cq->fid);
	fi_close(&lf->domain->fid);
	fi_close(&lf->fabric->fid);
	fi_freeinfo(lf->info);
}

static void libfabric_progress(struct driver_pair *pair,
			       enum workload_mode mode)
{
	struct libfabric *lf = pair->context;

	fi_cq_read(lf->cq, NULL, 0);
}

static int libfabric_target(struct driver_pair *pair)
{
	struct libfabric lf = {0};
	struct invitation invitation = {0};
	size_t address_size = ADDRESS_MAX;
	void *base;
	int rc;

	pair->context = &lf;
	rc = endpoint_open(pair, &lf);
	if (rc)
		return rc;
	base = driver_memory(pair);
	if (!base)
		return -ENOMEM;
	rc = fi_mr_reg(lf.domain, base, pair->options.size,
		       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &lf.mr,
		       NULL);
	if (rc)
		return fail(pair, "fi_mr_reg", rc);
	rc = fi_getname(&lf.ep->fid, invitation.address, &address_size);
	if (rc)
		return fail(pair, "fi_getname", rc);
	invitation.address_size = address_size;
	invitation.key = fi_mr_key(lf.mr);
	if (lf.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		invitation.base = (uint64_t)(uintptr_t)base;
	rc = driver_send(pair, &invitation, sizeof(invitation));
	if (!rc)
		driver_target_loop(pair, libfabric_progress);
	endpoint_close(&lf);
	return rc;
}

static int client_connect(struct driver_pair *pair, struct libfabric *lf)
{
	struct invitation invitation;
	int rc;

	rc = driver_receive(pair, &invitation, sizeof(invitation));
	if (rc)
		return rc;
	lf->base = invitation.base;
	lf->key = invitation.key;
	rc = fi_av_insert(lf->av, invitation.address, 1, &lf->target, 0, NULL);
	if (rc != 1)
		return fail(pair, "fi_av_insert", rc);
	if (!(lf->info->domain_attr->mr_mode & FI_MR_LOCAL))
		return 0;
	rc = fi_mr_reg(lf->domain, lf->state.local, WORKLOAD_LENGTH_MAX,
		       FI_READ | FI_WRITE, 0, KEY + 1, 0, &lf->local_mr, NULL);
	if (rc)
		return fail(pair, "fi_mr_reg", rc);
	lf->local_descriptor = fi_mr_desc(lf->local_mr);
	return 0;
}

static int libfabric_open(struct driver_pair *pair)
{
	struct libfabric *lf = calloc(1, sizeof(*lf));
	uint32_t version = fi_version();
	int rc;

	if (!lf)
		return -ENOMEM;
	pair->context = lf;
	rc = driver_fork(pair, libfabric_target);
	rc = rc ? rc : driver_state(&lf->state, pair->options.size);
	rc = rc ? rc : endpoint_open(pair, lf);
	rc = rc ? rc : client_connect(pair, lf);
	rc = rc ? rc : driver_target_go(pair, WORKLOAD_SPIN);
	if (rc)
		return rc;
	/* No sweep: only the target maps the memory, and has touched it. */
	rc = libfabric_read(lf, 0, lf->state.local, WORKLOAD_LINE);
	if (rc)
		return driver_fail(pair, rc, "the first read failed");
	snprintf(pair->description, sizeof(pair->description),
		 "libfabric %u.%u: provider %s, %s", FI_MAJOR(version),
		 FI_MINOR(version), lf->info->fabric_attr->prov_name,
		 lf->info->domain_attr->name);
	return driver_target_rest(pair);
}

static int libfabric_run(struct driver_pair *pair, const char *name,
			 double seconds, double *rate)
{
	const struct workload *workload = workload_find(name);
	struct libfabric *lf = pair->context;

	if (!workload || workload->mode != WORKLOAD_SPIN)
		return -ENOSYS;
	return workload_run(workload, &libfabric_ops, lf, &lf->state, seconds,
			    rate);
}

static void libfabric_close(struct driver_pair *pair)
{
	struct libfabric *lf = pair->context;

	endpoint_close(lf);
	free(lf);
}

static const struct driver libfabric_driver = {
	.name = "libfabric",
	.open = libfabric_open,
	.run = libfabric_run,
	.close = libfabric_close,
};

int main(int argc, char **argv)
{
	return driver_main(&libfabric_driver, argc, argv);
}

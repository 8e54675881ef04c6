/* probes.c - the kernel's answers, on this machine. */
#include "pool/doctor/doctor.h"

#include "config.h"
#include "fabric/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#if REEF_HAVE_VERBS
#include <infiniband/verbs.h>
#include <string.h>
#endif

static int probe_limit(int resource, uint64_t *soft, uint64_t *hard)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit))
		return -errno;
	*soft = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
	*hard = limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
	return 0;
}

static int probe_pidfd(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int probe_process_vm(void)
{
	char from = 1, to = 0;
	struct iovec remote = {&from, 1}, local = {&to, 1};

	if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
		return -errno;
	return 0;
}

static int probe_memfd(void)
{
	int fd = memfd_create("reef-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	if (fd < 0)
		return -errno;
	rc = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) ? -errno : 0;
	close(fd);
	return rc;
}

/* Bound, but never listening: nobody can be let in by mistake. With REUSEADDR a
 * port counts as free unless somebody listens on it. */
static int probe_bind(const char *text)
{
	struct reef_address address;
	int rc = reef_address_parse_inet(text, &address), fd, on = 1;

	if (rc)
		return rc;
	fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)&address.storage, address.size))
		rc = -errno;
	close(fd);
	return rc;
}

#if REEF_HAVE_VERBS
static int query_mtu(struct ibv_device *device, uint32_t port, uint32_t *active,
		     uint32_t *most)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_port_attr attributes;
	int rc;

	if (!context)
		return errno ? -errno : -EIO;
	rc = -ibv_query_port(context, (uint8_t)port, &attributes);
	if (rc == 0) {
		*active = 128u << attributes.active_mtu;
		*most = 128u << attributes.max_mtu;
	}
	ibv_close_device(context);
	return rc;
}

static int probe_mtu(const char *name, uint32_t port, uint32_t *active,
		     uint32_t *most)
{
	int count = 0, rc = -ENODEV;
	struct ibv_device **list = ibv_get_device_list(&count);

	for (int i = 0; list && i < count; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			rc = query_mtu(list[i], port, active, most);
	if (list)
		ibv_free_device_list(list);
	return rc;
}
#else
static int probe_mtu(const char *name, uint32_t port, uint32_t *active,
		     uint32_t *most)
{
	return -ENOSYS;
}
#endif

const struct reef_doctor_probes reef_doctor_probes_real = {
	.limit = probe_limit,
	.pidfd = probe_pidfd,
	.process_vm = probe_process_vm,
	.memfd = probe_memfd,
	.bind = probe_bind,
	.mtu = probe_mtu,
};

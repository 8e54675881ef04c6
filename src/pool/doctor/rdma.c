/* rdma.c - RDMA devices: their ports, states, GIDs and MTUs.
 *
 * What sysfs tells, with the MTU from verbs. Which GID a port would use is
 * judged as fabric/verbs/device.c does. */
#include "pool/doctor/internal.h"

#include "wire/bytes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"
#define GIDS_MAX 256
#define MTU_GOOD 4096
#define PATH_SIZE 1024

struct gid {
	int rank; /* 0: none */
	uint32_t index;
	char type[32];
	char text[INET6_ADDRSTRLEN];
};

struct port {
	const char *device;
	uint32_t number;
	uint64_t state; /* 4: active */
	bool is_ethernet;
	char state_name[32], layer[32], rate[64], interface[32];
	struct gid gid;
	uint32_t mtu, mtu_most; /* 0: unknown */
};

bool doctor_has_rdma(const struct doctor *doctor)
{
	char *names[DOCTOR_NAMES_MAX];
	uint32_t count = doctor_list(doctor, CLASS, names);

	for (uint32_t i = 0; i < count; i++)
		free(names[i]);
	return count > 0;
}

/* True if the settings name verbs, which otherwise is used where it is there.
 */
static bool wants_verbs(const struct doctor *doctor)
{
	const struct reef_settings *settings = doctor->settings;

	return (settings->listen && strstr(settings->listen, "verbs:")) ||
	       (settings->fabrics && strstr(settings->fabrics, "verbs"));
}

/* --- what a port is --- */

static int gid_rank(const struct in6_addr *gid, const char *type)
{
	bool is_v2 = strstr(type, "v2") != NULL;

	if (is_v2 && IN6_IS_ADDR_V4MAPPED(gid))
		return 4;
	if (is_v2 && !IN6_IS_ADDR_LINKLOCAL(gid))
		return 3;
	return is_v2 ? 2 : 1;
}

static void format_gid(const struct in6_addr *gid, struct gid *out)
{
	if (IN6_IS_ADDR_V4MAPPED(gid))
		inet_ntop(AF_INET, &gid->s6_addr[12], out->text,
			  sizeof(out->text));
	else
		inet_ntop(AF_INET6, gid, out->text, sizeof(out->text));
}

static void read_gid(const struct doctor *doctor, struct port *port,
		     uint32_t index)
{
	struct gid one = {.index = index};
	struct in6_addr address;
	char text[64];

	if (doctor_read(doctor, text, sizeof(text),
			CLASS "/%s/ports/%u/gids/%u", port->device,
			port->number, index) ||
	    inet_pton(AF_INET6, text, &address) != 1 ||
	    IN6_IS_ADDR_UNSPECIFIED(&address))
		return;
	/* A subnet prefix without an interface's part is no GID yet. */
	if (reef_all_zero(&address.s6_addr[8], 8))
		return;
	if (doctor_read(doctor, one.type, sizeof(one.type),
			CLASS "/%s/ports/%u/gid_attrs/types/%u", port->device,
			port->number, index))
		snprintf(one.type, sizeof(one.type), "unknown type");
	one.rank = gid_rank(&address, one.type);
	if (one.rank <= port->gid.rank)
		return;
	format_gid(&address, &one);
	port->gid = one;
	doctor_read(doctor, port->interface, sizeof(port->interface),
		    CLASS "/%s/ports/%u/gid_attrs/ndevs/%u", port->device,
		    port->number, index);
}

/* Find the network interface under a device, if its GIDs have not told it. */
static void find_interface(const struct doctor *doctor, struct port *port)
{
	char *names[DOCTOR_NAMES_MAX], path[PATH_SIZE];
	uint32_t count;

	if (*port->interface)
		return;
	/* A Soft-RoCE device names its interface itself. */
	if (doctor_read(doctor, port->interface, sizeof(port->interface),
			CLASS "/%s/parent", port->device) == 0 &&
	    *port->interface)
		return;
	snprintf(path, sizeof(path), CLASS "/%s/device/net", port->device);
	count = doctor_list(doctor, path, names);
	for (uint32_t i = 0; i < count; i++) {
		if (i == 0)
			snprintf(port->interface, sizeof(port->interface), "%s",
				 names[i]);
		free(names[i]);
	}
}

static void read_port(const struct doctor *doctor, struct port *port)
{
	char text[64];
	const char *colon;

	if (doctor_read(doctor, text, sizeof(text), CLASS "/%s/ports/%u/state",
			port->device, port->number) == 0) {
		port->state = strtoull(text, NULL, 10);
		colon = strstr(text, ": ");
		snprintf(port->state_name, sizeof(port->state_name), "%.31s",
			 colon ? colon + 2 : text);
	}
	doctor_read(doctor, port->layer, sizeof(port->layer),
		    CLASS "/%s/ports/%u/link_layer", port->device,
		    port->number);
	port->is_ethernet = strcmp(port->layer, "Ethernet") == 0;
	doctor_read(doctor, port->rate, sizeof(port->rate),
		    CLASS "/%s/ports/%u/rate", port->device, port->number);
	for (uint32_t i = 0; i < GIDS_MAX; i++)
		read_gid(doctor, port, i);
	find_interface(doctor, port);
	if (doctor->probes->mtu(port->device, port->number, &port->mtu,
				&port->mtu_most))
		port->mtu = port->mtu_most = 0;
}

/* --- what to report of a port --- */

static void describe_port(const struct port *port, struct reef_finding *finding)
{
	char mtu[48] = "", gid[128];

	if (port->mtu)
		snprintf(mtu, sizeof(mtu), ", MTU %u of %u", port->mtu,
			 port->mtu_most);
	if (port->gid.rank)
		snprintf(gid, sizeof(gid), "GID %u (%s, %s)", port->gid.index,
			 port->gid.type, port->gid.text);
	else
		snprintf(gid, sizeof(gid), "no GID");
	doctor_found(finding, "%s, %s, %s%s, %s",
		     *port->state_name ? port->state_name : "unknown state",
		     *port->layer ? port->layer : "unknown layer",
		     *port->rate ? port->rate : "unknown rate", mtu, gid);
}

static void judge_state(const struct port *port, struct reef_finding *finding,
			enum reef_verdict bad)
{
	if (port->is_ethernet) {
		doctor_judge(finding, bad,
			     "the port is down: its network interface is, or "
			     "the cable is out");
		if (*port->interface)
			doctor_command(finding, "sudo ip link set dev %s up",
				       port->interface);
		return;
	}
	if (port->state != 2) {
		doctor_judge(finding, bad,
			     "the port is down: look at cable and switch");
		return;
	}
	doctor_judge(finding, bad,
		     "the port waits for a subnet manager, which one machine "
		     "or switch of the network must run");
	doctor_command(finding, "sudo systemctl start opensm");
}

static void judge_port(const struct port *port, struct reef_finding *finding,
		       enum reef_verdict bad)
{
	if (port->state != 4) {
		judge_state(port, finding, bad);
	} else if (!port->gid.rank) {
		doctor_judge(finding, bad,
			     "the port has no GID: its network interface has "
			     "no address");
		if (*port->interface)
			doctor_command(finding,
				       "sudo ip addr add ADDRESS/24 dev %s",
				       port->interface);
	} else if (port->is_ethernet && port->gid.rank <= 2) {
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "the best GID is not routed: only peers in the "
			     "same network segment can be reached");
		if (*port->interface)
			doctor_command(finding,
				       "sudo ip addr add ADDRESS/24 dev %s",
				       port->interface);
	} else if (port->is_ethernet && port->mtu && port->mtu < MTU_GOOD &&
		   port->mtu < port->mtu_most) {
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "large operations are cut into more packets than "
			     "need be; every machine and switch on the way "
			     "must allow the larger ones");
		if (*port->interface)
			doctor_command(finding,
				       "sudo ip link set dev %s mtu 4200",
				       port->interface);
	}
}

static void examine_ports(struct doctor *doctor, const char *device)
{
	enum reef_verdict bad =
		wants_verbs(doctor) ? REEF_VERDICT_PROBLEM : REEF_VERDICT_WARN;
	char *names[DOCTOR_NAMES_MAX], path[PATH_SIZE];
	struct reef_finding *finding;
	struct port port;
	uint32_t count;

	snprintf(path, sizeof(path), CLASS "/%s/ports", device);
	count = doctor_list(doctor, path, names);
	for (uint32_t i = 0; i < count; i++) {
		port = (struct port){
			.device = device,
			.number = (uint32_t)strtoul(names[i], NULL, 10),
		};
		read_port(doctor, &port);
		finding =
			doctor_find(doctor, "rdma %s:%u", device, port.number);
		describe_port(&port, finding);
		judge_port(&port, finding, bad);
		free(names[i]);
	}
}

/* --- may we use it? --- */

/* The name of the device file of a device; false: it has none. */
static bool find_file(const struct doctor *doctor, const char *device,
		      char *out, size_t size)
{
	char *names[DOCTOR_NAMES_MAX], text[64];
	uint32_t count =
		doctor_list(doctor, "/sys/class/infiniband_verbs", names);
	bool found = false;

	for (uint32_t i = 0; i < count; i++) {
		if (!found &&
		    doctor_read(doctor, text, sizeof(text),
				"/sys/class/infiniband_verbs/%s/ibdev",
				names[i]) == 0 &&
		    strcmp(text, device) == 0) {
			snprintf(out, size, "/dev/infiniband/%s", names[i]);
			found = true;
		}
		free(names[i]);
	}
	return found;
}

static void examine_access(struct doctor *doctor, const char *device)
{
	struct reef_finding *finding =
		doctor_find(doctor, "rdma %s access", device);
	char file[PATH_SIZE / 2], full[PATH_SIZE];

	if (!find_file(doctor, device, file, sizeof(file))) {
		doctor_found(finding, "no device file");
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "programs reach it through the module ib_uverbs, "
			     "which is not there");
		doctor_command(finding, "sudo modprobe ib_uverbs");
		return;
	}
	snprintf(full, sizeof(full), "%s%s", doctor->root, file);
	if (access(full, R_OK | W_OK) == 0) {
		doctor_found(finding, "%s, readable and writable", file);
		return;
	}
	doctor_found(finding, "%s: %s", file, strerrordesc_np(errno));
	if (errno == ENOENT) {
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "the kernel has the device, and /dev does not");
		doctor_command(finding, "sudo udevadm trigger");
		return;
	}
	doctor_judge(finding, REEF_VERDICT_PROBLEM,
		     "this user may not use the device");
	doctor_command(finding, "sudo chmod 666 %s", file);
}

static void examine_build(struct doctor *doctor, const char *device)
{
	struct reef_finding *finding;
	uint32_t active, most;

	/* Any port will do to ask whether the build has verbs. */
	if (doctor->probes->mtu(device, 1, &active, &most) != -ENOSYS)
		return;
	finding = doctor_find(doctor, "rdma in this build");
	doctor_found(finding, "no");
	doctor_judge(finding,
		     wants_verbs(doctor) ? REEF_VERDICT_PROBLEM
					 : REEF_VERDICT_WARN,
		     "there are devices that this program cannot use; build it "
		     "again afterwards");
	doctor_command(finding, "sudo apt install libibverbs-dev");
}

void doctor_rdma(struct doctor *doctor)
{
	char *names[DOCTOR_NAMES_MAX];
	uint32_t count = doctor_list(doctor, CLASS, names);
	struct reef_finding *finding;

	if (count > 0)
		examine_build(doctor, names[0]);
	for (uint32_t i = 0; i < count; i++) {
		examine_ports(doctor, names[i]);
		examine_access(doctor, names[i]);
		free(names[i]);
	}
	if (count > 0)
		return;
	finding = doctor_find(doctor, "rdma");
	doctor_found(finding, "no device");
	if (!wants_verbs(doctor))
		return;
	doctor_judge(finding, REEF_VERDICT_PROBLEM,
		     "the settings ask for verbs; without a NIC that has it, "
		     "the kernel can do it in software over any network "
		     "interface");
	doctor_command(finding, "sudo modprobe rdma_rxe && sudo rdma link add "
				"rxe0 type rxe netdev INTERFACE");
}

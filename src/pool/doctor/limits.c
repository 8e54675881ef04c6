/* limits.c - what one process may have: locked memory, files, mappings. */
#include "pool/doctor/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define STATUS_SIZE 8192
#define CAP_IPC_LOCK_BIT 14
/* A link takes a socket, and on shm a pidfd; fabrics accept 4,096 by default.
 */
#define FILES_PER_LINK 2
#define LINKS_USUAL 4096
#define FILES_OWN 64
/* Mappings for stacks of fibers, libraries and the heap. */
#define MAPS_OWN 4096
#define MAPS_PER_EXTENT 2
#define MAPS_USUAL 65530

static uint64_t count_extents(const struct doctor *doctor)
{
	return doctor->settings->lend / doctor->settings->extent_size + 1;
}

/* With this capability the limit on locked memory does not hold. */
static bool may_lock_all(const struct doctor *doctor)
{
	char text[STATUS_SIZE];
	const char *found;

	if (doctor_read(doctor, text, sizeof(text), "/proc/self/status"))
		return false;
	found = strstr(text, "\nCapEff:");
	return found && strtoull(found + 8, NULL, 16) >> CAP_IPC_LOCK_BIT & 1;
}

static void examine_memlock(struct doctor *doctor)
{
	struct reef_finding *finding = doctor_find(doctor, "locked memory");
	uint64_t soft, hard;
	char text[DOCTOR_SIZE_TEXT];

	if (doctor->probes->limit(RLIMIT_MEMLOCK, &soft, &hard)) {
		doctor_found(finding, "unknown");
		return;
	}
	if (may_lock_all(doctor)) {
		doctor_found(finding, "unlimited, by CAP_IPC_LOCK");
		return;
	}
	doctor_found(finding, "%s", doctor_size(soft, text));
	/* Only NICs need locked memory. */
	if (!doctor_has_rdma(doctor) || soft >= doctor->settings->lend)
		return;
	doctor_judge(finding, REEF_VERDICT_PROBLEM,
		     "RDMA locks what is lent; afterwards log in anew (for a "
		     "service of systemd: LimitMEMLOCK=infinity)");
	if (hard >= doctor->settings->lend)
		doctor_command(finding, "ulimit -l %s",
			       hard == UINT64_MAX ? "unlimited" : "hard");
	else
		doctor_command(finding,
			       "echo '* - memlock unlimited' | sudo tee "
			       "/etc/security/limits.d/reef.conf");
}

static void examine_files(struct doctor *doctor)
{
	struct reef_finding *finding = doctor_find(doctor, "open files");
	uint64_t least = FILES_OWN + count_extents(doctor);
	uint64_t need = least + (uint64_t)FILES_PER_LINK * LINKS_USUAL;
	uint64_t soft, hard;

	if (doctor->probes->limit(RLIMIT_NOFILE, &soft, &hard)) {
		doctor_found(finding, "unknown");
		return;
	}
	if (soft == UINT64_MAX)
		doctor_found(finding, "unlimited");
	else
		doctor_found(finding, "%" PRIu64 " at a time", soft);
	if (soft < least)
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "each extent is a file to the kernel: there are "
			     "not enough for what is to be lent");
	else if (soft < need)
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "each session takes one or two: there are not "
			     "enough for 4,096 of them");
	else
		return;
	if (hard >= need)
		doctor_command(finding, "ulimit -n %" PRIu64, need);
	else
		doctor_command(finding,
			       "echo '* - nofile %" PRIu64 "' | sudo tee "
			       "/etc/security/limits.d/reef-files.conf",
			       need);
}

static void examine_maps(struct doctor *doctor)
{
	struct reef_finding *finding = doctor_find(doctor, "mappings");
	uint64_t need = MAPS_OWN + MAPS_PER_EXTENT * count_extents(doctor),
		 most;

	if (doctor_read_number(doctor, &most, "/proc/sys/vm/max_map_count")) {
		doctor_found(finding, "unknown");
		return;
	}
	doctor_found(finding, "%" PRIu64 " in a process", most);
	if (most < need)
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "each extent is mapped: there are not enough for "
			     "what is to be lent");
	else if (most < MAPS_USUAL)
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "less than usual: many fibers, or many extents of "
			     "others, may not fit");
	else
		return;
	need = need < MAPS_USUAL ? MAPS_USUAL : need * 2;
	doctor_command(finding, "sudo sysctl -w vm.max_map_count=%" PRIu64,
		       need);
}

void doctor_limits(struct doctor *doctor)
{
	examine_memlock(doctor);
	examine_files(doctor);
	examine_maps(doctor);
}

/* memory.c - is there the memory that is to be lent, and in what pages? */
#include "pool/doctor/internal.h"

#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_TEXT_SIZE 4096
/* What version 1 says for "no limit" is just below 2^63. */
#define CGROUP_UNLIMITED (UINT64_C(1) << 62)
#define GIB (UINT64_C(1) << 30)

static void advise_lend(struct reef_finding *finding, uint64_t most)
{
	char text[REEF_UNITS_TEXT_SIZE];

	/* Half of it, in whole GiB if there is one, else in MiB. */
	most /= 2;
	most = most >= GIB ? most / GIB * GIB : most >> 20 << 20;
	if (most > 0)
		doctor_command(finding, "reef up --lend %s",
			       reef_size_format(most, text));
}

static void examine_available(struct doctor *doctor)
{
	uint64_t total = doctor_meminfo(doctor, "MemTotal");
	uint64_t available = doctor_meminfo(doctor, "MemAvailable");
	uint64_t lend = doctor->settings->lend;
	struct reef_finding *finding = doctor_find(doctor, "memory");
	char have[DOCTOR_SIZE_TEXT], all[DOCTOR_SIZE_TEXT],
		asked[DOCTOR_SIZE_TEXT];

	if (total == DOCTOR_UNKNOWN || available == DOCTOR_UNKNOWN) {
		doctor_found(finding, "unknown");
		return;
	}
	doctor_found(finding, "%s available of %s, %s to be lent",
		     doctor_size(available, have), doctor_size(total, all),
		     doctor_size(lend, asked));
	if (lend > total)
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "the machine does not have what it is to lend");
	else if (lend > available)
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "memory is taken when it is lent: until others "
			     "give theirs back, less can be");
	else
		return;
	advise_lend(finding, available);
}

/* --- the limit of the control group --- */

struct cgroup {
	const char *folder, *limit, *used; /* of the files */
	char path[CGROUP_TEXT_SIZE];
};

/* Find the group that limits this process: of version 2, or the memory part of
 * version 1. */
static bool find_cgroup(const struct doctor *doctor, struct cgroup *out)
{
	char text[CGROUP_TEXT_SIZE], *line, *rest = text, *parts, *path;
	bool found = false;

	if (doctor_read(doctor, text, sizeof(text), "/proc/self/cgroup"))
		return false;
	while ((line = strsep(&rest, "\n"))) {
		parts = strchr(line, ':');
		path = parts ? strchr(parts + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (strcmp(parts + 1, "memory") == 0) {
			out->folder = "/sys/fs/cgroup/memory";
			out->limit = "memory.limit_in_bytes";
			out->used = "memory.usage_in_bytes";
		} else if (parts[1] == '\0' && !found) {
			out->folder = "/sys/fs/cgroup";
			out->limit = "memory.max";
			out->used = "memory.current";
		} else {
			continue;
		}
		snprintf(out->path, sizeof(out->path), "%s", path);
		found = true;
	}
	return found;
}

/* The lowest limit from the group up to the root; its path is what is left of
 * cgroup->path in `holder`. "max" is no number, and so no limit. */
static uint64_t lowest_limit(const struct doctor *doctor,
			     const struct cgroup *cgroup, uint64_t *used,
			     char holder[CGROUP_TEXT_SIZE])
{
	char path[CGROUP_TEXT_SIZE], *slash;
	uint64_t lowest = UINT64_MAX, limit;

	snprintf(path, sizeof(path), "%s", cgroup->path);
	for (;;) {
		if (doctor_read_number(doctor, &limit, "%s%s/%s",
				       cgroup->folder, path,
				       cgroup->limit) == 0 &&
		    limit < lowest && limit < CGROUP_UNLIMITED) {
			lowest = limit;
			snprintf(holder, CGROUP_TEXT_SIZE, "%s", path);
			*used = 0;
			doctor_read_number(doctor, used, "%s%s/%s",
					   cgroup->folder, path, cgroup->used);
		}
		slash = strrchr(path, '/');
		if (!slash)
			return lowest;
		*slash = '\0';
	}
}

static bool ends_with(const char *text, const char *end)
{
	size_t size = strlen(text), end_size = strlen(end);

	return size > end_size && strcmp(text + size - end_size, end) == 0;
}

static void advise_cgroup(const struct doctor *doctor,
			  struct reef_finding *finding, const char *holder)
{
	const char *unit = strrchr(holder, '/');
	char text[REEF_UNITS_TEXT_SIZE];

	/* What systemd made, systemd can change; a container's limit is given
	 * to whoever starts it. */
	if (!unit || !(ends_with(unit, ".service") ||
		       ends_with(unit, ".scope") || ends_with(unit, ".slice")))
		return;
	doctor_command(
		finding, "sudo systemctl set-property %s MemoryMax=%s",
		unit + 1,
		reef_size_format((doctor->settings->lend + GIB) / GIB * GIB * 2,
				 text));
}

static void examine_cgroup(struct doctor *doctor)
{
	struct reef_finding *finding = doctor_find(doctor, "memory limit");
	uint64_t limit = UINT64_MAX, used = 0, lend = doctor->settings->lend;
	char most[DOCTOR_SIZE_TEXT], now[DOCTOR_SIZE_TEXT];
	char holder[CGROUP_TEXT_SIZE] = "";
	struct cgroup cgroup;

	if (find_cgroup(doctor, &cgroup))
		limit = lowest_limit(doctor, &cgroup, &used, holder);
	if (limit == UINT64_MAX) {
		doctor_found(finding, "none");
		return;
	}
	doctor_found(finding, "%s, %s of it used (control group %s)",
		     doctor_size(limit, most), doctor_size(used, now),
		     *holder ? holder : "/");
	if (lend > limit)
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "more is to be lent than the control group (the "
			     "container's or the service's) allows: the kernel "
			     "would kill the node");
	else if (used < limit && lend > limit - used)
		doctor_judge(
			finding, REEF_VERDICT_WARN,
			"less is left under the limit of the control group "
			"than is to be lent");
	else
		return;
	advise_cgroup(doctor, finding, holder);
}

static void examine_overcommit(struct doctor *doctor)
{
	struct reef_finding *finding = doctor_find(doctor, "overcommit");
	uint64_t mode, limit = doctor_meminfo(doctor, "CommitLimit"),
		       used = doctor_meminfo(doctor, "Committed_AS");
	char left[DOCTOR_SIZE_TEXT];

	if (doctor_read_number(doctor, &mode,
			       "/proc/sys/vm/overcommit_memory")) {
		doctor_found(finding, "unknown");
		return;
	}
	if (mode != 2 || limit == DOCTOR_UNKNOWN || used == DOCTOR_UNKNOWN) {
		doctor_found(finding, "mode %" PRIu64, mode);
		return;
	}
	limit = limit > used ? limit - used : 0;
	doctor_found(finding, "mode 2 (strict), %s left",
		     doctor_size(limit, left));
	if (limit >= doctor->settings->lend)
		return;
	doctor_judge(finding, REEF_VERDICT_PROBLEM,
		     "the kernel promises less memory than is to be lent");
	doctor_command(finding, "sudo sysctl -w vm.overcommit_memory=0");
}

/* --- pages --- */

/* Add a finding on huge pages. True: they hold all that is to be lent. */
static bool examine_huge_pages(struct doctor *doctor)
{
	struct reef_finding *finding = doctor_find(doctor, "huge pages");
	enum reef_huge_pages wish = doctor->settings->huge_pages;
	uint64_t total = doctor_meminfo(doctor, "HugePages_Total");
	uint64_t free_count = doctor_meminfo(doctor, "HugePages_Free");
	uint64_t size = doctor_meminfo(doctor, "Hugepagesize"), need;
	char text[DOCTOR_SIZE_TEXT];

	if (total == DOCTOR_UNKNOWN || free_count == DOCTOR_UNKNOWN ||
	    size == DOCTOR_UNKNOWN || size == 0) {
		doctor_found(finding, "not in this kernel");
		if (wish == REEF_HUGE_ON)
			doctor_judge(finding, REEF_VERDICT_PROBLEM,
				     "huge-pages = on asks for them");
		return false;
	}
	need = (doctor->settings->lend + size - 1) / size;
	doctor_found(finding,
		     "%" PRIu64 " of %s, %" PRIu64 " free; %" PRIu64
		     " hold what is to be lent",
		     total, doctor_size(size, text), free_count, need);
	if (wish == REEF_HUGE_OFF || free_count >= need)
		return free_count >= need;
	if (wish == REEF_HUGE_ON)
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "huge-pages = on asks for more than are free");
	else
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "small pages are lent instead, which cost "
			     "processors and NICs more translations");
	doctor_command(finding, "sudo sysctl -w vm.nr_hugepages=%" PRIu64,
		       total - free_count + need);
	return false;
}

static void examine_transparent(struct doctor *doctor, bool have_huge)
{
	static const char path[] =
		"/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	struct reef_finding *finding =
		doctor_find(doctor, "transparent huge pages");
	char text[128], *word, *end;

	if (doctor_read(doctor, text, sizeof(text), "%s", path)) {
		doctor_found(finding, "none for shared memory in this kernel");
		return;
	}
	word = strchr(text, '[');
	end = word ? strchr(word, ']') : NULL;
	if (!end) {
		doctor_found(finding, "unknown");
		return;
	}
	*end = '\0';
	word++;
	doctor_found(finding, "%s, for shared memory", word);
	if (have_huge || doctor->settings->huge_pages == REEF_HUGE_OFF ||
	    (strcmp(word, "never") != 0 && strcmp(word, "deny") != 0))
		return;
	doctor_judge(finding, REEF_VERDICT_WARN,
		     "memory that is lent in small pages cannot be joined to "
		     "huge ones");
	doctor_command(finding, "echo advise | sudo tee %s", path);
}

void doctor_memory(struct doctor *doctor)
{
	examine_available(doctor);
	examine_cgroup(doctor);
	examine_overcommit(doctor);
	examine_transparent(doctor, examine_huge_pages(doctor));
}

/* internal.h - what the doctor's examinations share.
 *
 * Thread: owner. */
#ifndef REEF_POOL_DOCTOR_INTERNAL_H
#define REEF_POOL_DOCTOR_INTERNAL_H

#include "pool/doctor/doctor.h"
#include "pool/settings.h"

#include <stddef.h>
#include <sys/types.h>

struct doctor {
	const struct reef_settings *settings;
	const char *root;
	const struct reef_doctor_probes *probes;
	struct reef_diagnosis *diagnosis;
	uint32_t room; /* for findings */
	int error;     /* the first -ENOMEM; then nothing is added any more */
};

#define DOCTOR_UNKNOWN UINT64_MAX /* and no limit */

/* Begin a finding, OK so far. It is good until the next one. Never NULL. */
__attribute__((format(printf, 2, 3))) struct reef_finding *
doctor_find(struct doctor *doctor, const char *name, ...);

/* What was found; and a verdict with a reason and a command. */
__attribute__((format(printf, 2, 3))) void
doctor_found(struct reef_finding *finding, const char *format, ...);
void doctor_judge(struct reef_finding *finding, enum reef_verdict verdict,
		  const char *advice);
__attribute__((format(printf, 2, 3))) void
doctor_command(struct reef_finding *finding, const char *format, ...);

/* Read a small file below the root, without the end of its last line. `size`
 * has room for the end of the text. -ENOENT and such; -EFBIG is cut. */
__attribute__((format(printf, 4, 5))) int
doctor_read(const struct doctor *doctor, char *text, size_t size,
	    const char *path, ...);
/* A number at the start of such a file; -EINVAL: none is there. */
__attribute__((format(printf, 3, 4))) int doctor_read_number(
	const struct doctor *doctor, uint64_t *out, const char *path, ...);
/* A line of /proc/meminfo in bytes ("HugePages_" ones: as they are).
 * DOCTOR_UNKNOWN: not there. */
uint64_t doctor_meminfo(const struct doctor *doctor, const char *name);

/* Names in a folder below the root, in order, at most `most` of them; returns
 * how many. The caller frees each. */
#define DOCTOR_NAMES_MAX 64
uint32_t doctor_list(const struct doctor *doctor, const char *path,
		     char *names[DOCTOR_NAMES_MAX]);

/* A size for people: "1.5 GiB", "unlimited" for UINT64_MAX. Returns text. */
#define DOCTOR_SIZE_TEXT 32
char *doctor_size(uint64_t size, char text[DOCTOR_SIZE_TEXT]);

/* True if the machine has an RDMA device. */
bool doctor_has_rdma(const struct doctor *doctor);

/* The examinations, in the order of the report. */
void doctor_memory(struct doctor *doctor);
void doctor_limits(struct doctor *doctor);
void doctor_kernel(struct doctor *doctor);
void doctor_rdma(struct doctor *doctor);
void doctor_places(struct doctor *doctor);
void doctor_holders(struct doctor *doctor);
void doctor_kept(struct doctor *doctor);
void doctor_tables(struct doctor *doctor);

#endif

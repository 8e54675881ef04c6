/* doctor.h - is this machine fit for Reef, and what would make it so?
 *
 * (1) It only looks: nothing is changed, made or kept open.
 * (2) A *problem* keeps something that the settings ask for from working; a
 *     *warning* costs speed, or will be a problem at the limit. Each comes with
 *     what to do about it.
 * (3) What cannot be found out is said to be unknown, and is no problem.
 *
 * What it looks at can be replaced, so that every finding can be tested: files
 * under another root, and the kernel's answers.
 *
 * Thread: owner. */
#ifndef REEF_POOL_DOCTOR_DOCTOR_H
#define REEF_POOL_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

struct reef_settings;

enum reef_verdict { REEF_VERDICT_OK, REEF_VERDICT_WARN, REEF_VERDICT_PROBLEM };

#define REEF_FINDING_NAME_SIZE 96
#define REEF_FINDING_TEXT_SIZE 512

struct reef_finding {
	char name[REEF_FINDING_NAME_SIZE]; /* "memlock", "rdma mlx5_0:1" */
	enum reef_verdict verdict;
	char found[REEF_FINDING_TEXT_SIZE];
	char advice[REEF_FINDING_TEXT_SIZE];  /* why it matters; "": nothing */
	char command[REEF_FINDING_TEXT_SIZE]; /* that would help; "": none */
};

/* Questions to the kernel; each answers 0 or -errno. */
struct reef_doctor_probes {
	/* RLIMIT_...; UINT64_MAX: no limit. */
	int (*limit)(int resource, uint64_t *soft, uint64_t *hard);
	int (*pidfd)(void);	 /* 0: pidfd_open works */
	int (*process_vm)(void); /* 0: process_vm_readv works */
	int (*memfd)(void);	 /* 0: memfd_create works, with seals */
	/* 0: "HOST:PORT" can be bound. */
	int (*bind)(const char *address);
	/* The MTU that a port uses and the most it could. -ENOSYS: no verbs in
	 * this build. */
	int (*mtu)(const char *device, uint32_t port, uint32_t *active,
		   uint32_t *most);
};

extern const struct reef_doctor_probes reef_doctor_probes_real;

struct reef_doctor_options {
	const struct reef_settings *settings; /* not NULL */
	const char *root; /* before /proc, /sys and /dev; NULL: "" */
	const struct reef_doctor_probes *probes; /* NULL: the real ones */
};

struct reef_diagnosis {
	struct reef_finding *findings;
	uint32_t count, warnings, problems;
};

/* Look at everything, which takes well under a second. Caller owns *out.
 * -ENOMEM. */
int reef_diagnosis_create(const struct reef_doctor_options *options,
			  struct reef_diagnosis **out);
void reef_diagnosis_destroy(struct reef_diagnosis *diagnosis); /* NULL is fine
								*/

const char *reef_verdict_name(enum reef_verdict verdict);

#endif

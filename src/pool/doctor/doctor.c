/* doctor.c - the findings, and how things are looked up. */
#include "pool/doctor/doctor.h"

#include "pool/doctor/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 1024
#define MEMINFO_SIZE 8192

/* --- findings --- */

struct reef_finding *doctor_find(struct doctor *doctor, const char *name, ...)
{
	/* Findings for which there is no memory are written here. */
	static _Thread_local struct reef_finding nowhere;
	struct reef_diagnosis *diagnosis = doctor->diagnosis;
	struct reef_finding *findings = diagnosis->findings, *finding;
	uint32_t room = doctor->room ? doctor->room * 2 : 32;
	va_list arguments;

	if (diagnosis->count == doctor->room) {
		findings = realloc(findings, room * sizeof(*findings));
		if (!findings) {
			doctor->error = -ENOMEM;
			return &nowhere;
		}
		diagnosis->findings = findings;
		doctor->room = room;
	}
	finding = &findings[diagnosis->count++];
	*finding = (struct reef_finding){0};
	va_start(arguments, name);
	vsnprintf(finding->name, sizeof(finding->name), name, arguments);
	va_end(arguments);
	return finding;
}

void doctor_found(struct reef_finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(finding->found, sizeof(finding->found), format, arguments);
	va_end(arguments);
}

void doctor_judge(struct reef_finding *finding, enum reef_verdict verdict,
		  const char *advice)
{
	finding->verdict = verdict;
	snprintf(finding->advice, sizeof(finding->advice), "%s", advice);
}

void doctor_command(struct reef_finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(finding->command, sizeof(finding->command), format,
		  arguments);
	va_end(arguments);
}

const char *reef_verdict_name(enum reef_verdict verdict)
{
	static const char *const names[] = {
		[REEF_VERDICT_OK] = "ok",
		[REEF_VERDICT_WARN] = "warn",
		[REEF_VERDICT_PROBLEM] = "problem",
	};

	return names[verdict];
}

/* --- files --- */

static int read_below_root(const struct doctor *doctor, char *text, size_t size,
			   const char *path, va_list arguments)
{
	char full[PATH_SIZE];
	size_t used;
	ssize_t n;
	int fd;

	used = (size_t)snprintf(full, sizeof(full), "%s", doctor->root);
	if (used >= sizeof(full) ||
	    (size_t)vsnprintf(full + used, sizeof(full) - used, path,
			      arguments) >= sizeof(full) - used)
		return -ENAMETOOLONG;
	fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	/* One read returns the whole of a kernel's file. */
	n = read(fd, text, size - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	return 0;
}

int doctor_read(const struct doctor *doctor, char *text, size_t size,
		const char *path, ...)
{
	va_list arguments;
	int rc;

	va_start(arguments, path);
	rc = read_below_root(doctor, text, size, path, arguments);
	va_end(arguments);
	return rc;
}

int doctor_read_number(const struct doctor *doctor, uint64_t *out,
		       const char *path, ...)
{
	va_list arguments;
	char text[64] = "";
	int rc;

	va_start(arguments, path);
	rc = read_below_root(doctor, text, sizeof(text), path, arguments);
	va_end(arguments);
	if (rc)
		return rc;
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	*out = strtoull(text, NULL, 10);
	return 0;
}

uint64_t doctor_meminfo(const struct doctor *doctor, const char *name)
{
	char text[MEMINFO_SIZE], *line, *rest = text, *end;
	size_t size = strlen(name);
	uint64_t value;

	if (doctor_read(doctor, text, sizeof(text), "/proc/meminfo"))
		return DOCTOR_UNKNOWN;
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, name, size) != 0 || line[size] != ':')
			continue;
		value = strtoull(line + size + 1, &end, 10);
		return strcmp(end, " kB") == 0 ? value << 10 : value;
	}
	return DOCTOR_UNKNOWN;
}

static int compare_names(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

uint32_t doctor_list(const struct doctor *doctor, const char *path,
		     char *names[DOCTOR_NAMES_MAX])
{
	char full[PATH_SIZE];
	struct dirent *entry;
	uint32_t count = 0;
	DIR *folder;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", doctor->root, path) >=
	    sizeof(full))
		return 0;
	folder = opendir(full);
	if (!folder)
		return 0;
	while (count < DOCTOR_NAMES_MAX && (entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		names[count] = strdup(entry->d_name);
		if (names[count])
			count++;
	}
	closedir(folder);
	qsort(names, count, sizeof(names[0]), compare_names);
	return count;
}

char *doctor_size(uint64_t size, char text[DOCTOR_SIZE_TEXT])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB",
					    "TiB",   "PiB", "EiB"};
	double value = (double)size;
	int unit = 0;

	if (size == UINT64_MAX) {
		snprintf(text, DOCTOR_SIZE_TEXT, "unlimited");
		return text;
	}
	for (; value >= 1024 && unit < 6; unit++)
		value /= 1024;
	snprintf(text, DOCTOR_SIZE_TEXT, "%.*f %s",
		 value < 10 && value != (double)(int)value ? 1 : 0, value,
		 units[unit]);
	return text;
}

/* --- together --- */

int reef_diagnosis_create(const struct reef_doctor_options *options,
			  struct reef_diagnosis **out)
{
	struct reef_diagnosis *diagnosis = calloc(1, sizeof(*diagnosis));
	struct doctor doctor = {
		.settings = options->settings,
		.root = options->root ? options->root : "",
		.probes = options->probes ? options->probes
					  : &reef_doctor_probes_real,
		.diagnosis = diagnosis,
	};

	if (!diagnosis)
		return -ENOMEM;
	doctor_memory(&doctor);
	doctor_limits(&doctor);
	doctor_kernel(&doctor);
	doctor_rdma(&doctor);
	doctor_places(&doctor);
	doctor_holders(&doctor);
	doctor_kept(&doctor);
	doctor_tables(&doctor);
	if (doctor.error) {
		reef_diagnosis_destroy(diagnosis);
		return doctor.error;
	}
	for (uint32_t i = 0; i < diagnosis->count; i++) {
		enum reef_verdict verdict = diagnosis->findings[i].verdict;

		diagnosis->warnings += verdict == REEF_VERDICT_WARN;
		diagnosis->problems += verdict == REEF_VERDICT_PROBLEM;
	}
	*out = diagnosis;
	return 0;
}

void reef_diagnosis_destroy(struct reef_diagnosis *diagnosis)
{
	if (!diagnosis)
		return;
	free(diagnosis->findings);
	free(diagnosis);
}

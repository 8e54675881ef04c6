/* kernel.c - what the kernel can do, or lets us do. */
#include "pool/doctor/internal.h"

#include <errno.h>
#include <reef/error.h>
#include <string.h>

/* Add a finding on a call that either works or does not. */
static struct reef_finding *examine_call(struct doctor *doctor,
					 const char *name, int rc)
{
	struct reef_finding *finding = doctor_find(doctor, "%s", name);

	if (rc)
		doctor_found(finding, "does not work: %s", reef_error_text(rc));
	else
		doctor_found(finding, "works");
	return finding;
}

static void examine_calls(struct doctor *doctor)
{
	const struct reef_doctor_probes *probes = doctor->probes;
	struct reef_finding *finding;
	int rc;

	rc = probes->memfd();
	finding = examine_call(doctor, "memfd", rc);
	if (rc)
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "memory is lent as sealed memfds: Linux 4.14 or "
			     "newer, and no filter of system calls against "
			     "them");
	rc = probes->pidfd();
	finding = examine_call(doctor, "pidfd", rc);
	if (rc) {
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "shm ends sessions by it: Linux 5.3 or newer, and "
			     "no filter of system calls against it; tcp does "
			     "without");
		doctor_command(finding, "export REEF_FABRICS=tcp");
	}
	rc = probes->process_vm();
	finding = examine_call(doctor, "process_vm", rc);
	if (rc)
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "Reef does without, but peers in `reef bench` are "
			     "slower than they could be");
}

static void examine_clock(struct doctor *doctor)
{
	/* Clocks that take a system call, or an access to a slow device. */
	static const char *const slow[] = {"hpet", "acpi_pm", "jiffies",
					   "refined-jiffies", "xen"};
	static const char folder[] =
		"/sys/devices/system/clocksource/clocksource0";
	struct reef_finding *finding = doctor_find(doctor, "clock");
	char name[64], others[256] = "";

	if (doctor_read(doctor, name, sizeof(name), "%s/current_clocksource",
			folder)) {
		doctor_found(finding, "unknown");
		return;
	}
	doctor_found(finding, "%s", name);
	for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
		if (strcmp(name, slow[i]) != 0)
			continue;
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "each look at the time takes about a microsecond, "
			     "which is as much as an operation");
		doctor_read(doctor, others, sizeof(others),
			    "%s/available_clocksource", folder);
		if (strncmp(others, "tsc", 3) == 0 || strstr(others, " tsc"))
			doctor_command(finding,
				       "echo tsc | sudo tee "
				       "%s/current_clocksource",
				       folder);
	}
}

static void examine_encryption(struct doctor *doctor)
{
	struct reef_finding *finding = doctor_find(doctor, "encryption of tcp");
	const char *tls = doctor->settings->tls;
	char text[256] = " ";
	bool in_kernel;

	if (strcmp(tls, "no") == 0) {
		doctor_found(finding, "off");
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "whoever is on the way can read all of it: right "
			     "only where the network is closed, or encrypts; "
			     "else set tls = auto");
		return;
	}
	in_kernel = !doctor_read(doctor, text + 1, sizeof(text) - 1,
				 "/proc/sys/net/ipv4/tcp_available_ulp") &&
		    strstr(text, " tls");
	doctor_found(finding, "%s, by %s",
		     strcmp(tls, "yes") == 0 ? "on" : "on, but on loopback",
		     in_kernel ? "the kernel" : "OpenSSL");
}

void doctor_kernel(struct doctor *doctor)
{
	examine_calls(doctor);
	examine_clock(doctor);
	examine_encryption(doctor);
}

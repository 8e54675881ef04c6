/* doctor.c - `reef doctor`: is this machine fit, and what would make it so? */
#include "pool/doctor/doctor.h"
#include "cmd/cmd.h"
#include "cmd/json.h"

#include <reef/error.h>
#include <stdio.h>

static const char usage[] =
	"usage: reef doctor [OPTIONS]\n\n"
	"Looks at what Reef needs of this machine, and says what is missing "
	"and which\ncommand would help. It changes nothing. Status 1: there is "
	"a problem.\n";

static void print_finding(const struct reef_finding *finding)
{
	printf("%-8s %s: %s\n", reef_verdict_name(finding->verdict),
	       finding->name, finding->found);
	if (*finding->advice)
		printf("%-8s   %s\n", "", finding->advice);
	if (*finding->command)
		printf("%-8s   $ %s\n", "", finding->command);
}

static void print_people(const struct reef_diagnosis *diagnosis)
{
	for (uint32_t i = 0; i < diagnosis->count; i++)
		print_finding(&diagnosis->findings[i]);
	printf("\n%u things examined, %u warnings, %u problems\n",
	       diagnosis->count, diagnosis->warnings, diagnosis->problems);
}

static void print_json(const struct reef_diagnosis *diagnosis)
{
	const struct reef_finding *finding = diagnosis->findings;
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_number(&json, "warnings", diagnosis->warnings);
	reef_json_number(&json, "problems", diagnosis->problems);
	reef_json_begin(&json, "findings", REEF_JSON_ARRAY);
	for (uint32_t i = 0; i < diagnosis->count; i++, finding++) {
		reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
		reef_json_string(&json, "name", finding->name);
		reef_json_string(&json, "verdict",
				 reef_verdict_name(finding->verdict));
		reef_json_string(&json, "found", finding->found);
		reef_json_string(&json, "advice", finding->advice);
		reef_json_string(&json, "command", finding->command);
		reef_json_end(&json);
	}
	reef_json_end(&json);
	reef_json_end(&json);
}

int cmd_doctor(int argc, char **argv)
{
	bool json = false;
	const struct reef_config_flag flags[] = {
		{.name = "json",
		 .help = "print JSON, for programs",
		 .given = &json},
		{0},
	};
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = REEF_USE_BROKER | REEF_USE_NODE | REEF_USE_CLIENT |
			REEF_USE_REDIS,
		.flags = flags,
	};
	struct reef_settings settings;
	struct reef_diagnosis *diagnosis;
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config) > 0) {
		rc = cmd_usage_error("doctor", "unexpected argument \"%s\"",
				     reef_config_rest(settings.config, 0));
		goto out;
	}
	rc = reef_diagnosis_create(
		&(struct reef_doctor_options){.settings = &settings},
		&diagnosis);
	if (rc) {
		fprintf(stderr, "reef doctor: %s\n", reef_error_text(rc));
		rc = 1;
		goto out;
	}
	(json ? print_json : print_people)(diagnosis);
	rc = diagnosis->problems > 0;
	reef_diagnosis_destroy(diagnosis);
out:
	reef_settings_fini(&settings);
	return rc;
}

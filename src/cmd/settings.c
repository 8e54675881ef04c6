/* settings.c - what commands with settings do alike. */
#include "cmd/cmd.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>

int cmd_settings(const struct reef_config_input *input, const char *usage,
		 struct reef_settings *out)
{
	const char *name = input->argv[0], *error;
	int rc = reef_settings_load(input, out);
	int status = 0;

	if (rc) {
		error = out->config ? reef_config_error(out->config) : "";
		status = cmd_usage_error(name, "%s",
					 *error ? error : reef_error_text(rc));
	} else if (reef_config_wants_help(out->config)) {
		cmd_help_settings(out->config, input, usage);
	} else if (reef_config_wants_check(out->config)) {
		reef_config_print(out->config, stdout);
	} else {
		reef_log_set(reef_log_to_stream, stderr, out->log);
		return -1;
	}
	reef_settings_fini(out);
	return status;
}

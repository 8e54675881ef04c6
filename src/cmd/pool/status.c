/* status.c - `reef status`: nodes, spaces, sessions, events. */
#include "cmd/operate.h"
#include "cmd/print/json.h"
#include "cmd/view.h"

#include <errno.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000ull

static const char usage[] =
	"usage: reef status [--json] [--watch] [OPTIONS]\n\n"
	"Shows what the pool consists of, and on which fabric each peer really "
	"is.\n";

/* Events shown to people; programs get all there are. */
#define EVENTS_SHOWN 12

static int show_section(struct reef_operator *op, enum view_section section)
{
	struct view view;
	int rc = view_fill(op, section, &view);

	if (rc)
		return rc;
	if (reef_table_rows(view.table)) {
		printf("\n");
		rc = reef_table_print(view.table, stdout);
		view_say_holder(&view, stdout);
	} else {
		printf("\nno %s\n", view_title(section));
	}
	view_fini(&view);
	return rc;
}

static int show_all(struct reef_operator *op, bool as_json)
{
	struct reef_json json = {.stream = stdout};
	struct reef_answer answer = {0};
	int rc;

	if (as_json)
		return view_write_pool(op, &json);
	rc = reef_operator_call(op, REEF_POOL_STATUS, NULL, &answer);
	if (rc)
		return rc;
	view_print_pool(op, &answer.body.reply.status, stdout);
	for (uint32_t i = 0; !rc && i < VIEW_SECTIONS; i++)
		rc = show_section(op, (enum view_section)i);
	if (!rc) {
		printf("\nevents\n");
		rc = view_print_events(&answer, EVENTS_SHOWN, stdout);
	}
	reef_answer_free(&answer);
	return rc;
}

int cmd_status(int argc, char **argv)
{
	bool json = false, watch = false;
	const struct reef_config_flag flags[] = {
		{"json", NULL, "one line of JSON", &json, NULL},
		{"watch", NULL, "again every second, until interrupted", &watch,
		 NULL},
		{0},
	};
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	struct reef_operator *op;
	int rc;

	rc = cmd_settings(&input, usage, &settings);
	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config)) {
		rc = cmd_usage_error(argv[0], "unexpected argument \"%s\"",
				     reef_config_rest(settings.config, 0));
		reef_settings_fini(&settings);
		return rc;
	}
	rc = operate_connect(argv[0], &settings, &op);
	reef_settings_fini(&settings);
	if (rc >= 0)
		return rc;
	do {
		if (watch && !json && isatty(STDOUT_FILENO))
			printf("\033[H\033[2J");
		rc = show_all(op, json);
		if (!rc && cmd_flush())
			break;
	} while (!rc && watch && !reef_sleep(SECOND));
	reef_operator_close(op);
	return rc ? operate_failed(argv[0], "", rc) : 0;
}

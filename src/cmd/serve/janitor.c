/* janitor.c - `reef janitor`, which `reef up` and `reef broker` start beside
 * themselves: it puts in order what dead sessions left.
 *
 * It is a process of its own because on shm a fence is the end of a process,
 * and must not take the broker along. */
#include "cmd/operate.h"
#include "cmd/serve/child.h"
#include "pool/client/client.h"

#include <reef/reef.h>
#include <signal.h>

#define PAUSE_NS 200000000

static const char usage[] =
	"usage: reef janitor [OPTIONS]\n\n"
	"Put in order what dead sessions left in any space of a pool, as its "
	"owner.\n`reef up` and `reef broker` start one by themselves.\n";

static int wait_for_signal(void *context)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	return sigtimedwait(context, NULL, &pause) > 0;
}

int cmd_janitor(int argc, char **argv)
{
	const char *ready_fd = NULL;
	const struct reef_config_flag flags[] = {
		{"ready-fd", "N", "write a line there once it is open", NULL,
		 &ready_fd},
		{0},
	};
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = REEF_USE_CLIENT,
		.flags = flags,
	};
	struct reef_settings settings;
	struct reef *reef;
	sigset_t set;
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config))
		return cmd_usage_error(argv[0], "unexpected argument \"%s\"",
				       reef_config_rest(settings.config, 0));
	child_block_signals(&set);
	reef_client_set_servant();
	rc = operate_open(argv[0], &settings, "reef janitor", &reef);
	if (rc < 0) {
		/* Whoever started us may be gone: then we end soon. */
		if (ready_fd)
			child_tell_ready(ready_fd, "ready");
		rc = reef_janitor_run(reef, wait_for_signal, &set);
		if (rc)
			rc = operate_failed(argv[0], "the pool", rc);
		reef_close(reef);
	}
	reef_settings_fini(&settings);
	return rc;
}

/* serve.h - running servers in the foreground.
 *
 * Thread: main. */
#ifndef REEF_CMD_SERVE_SERVE_H
#define REEF_CMD_SERVE_SERVE_H

#include <stdbool.h>

/* Read the settings, run until SIGINT or SIGTERM; the exit status. */
int serve(int argc, char **argv, bool with_broker, bool with_node,
	  const char *usage);

#endif

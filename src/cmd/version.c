/* version.c - `reef version`. */
#include "cmd/cmd.h"
#include "config.h"
#include "wire/frame.h"

#include <stdio.h>

int cmd_version(int argc, char **argv)
{
	if (cmd_wants_help(argc, argv)) {
		cmd_help_text("usage: reef version\n\n"
			      "Print the version, the fabrics in this build, "
			      "and the versions of the\nwire protocol it "
			      "speaks.\n\n");
		cmd_help_flags(NULL);
		return 0;
	}
	if (argc > 1)
		return cmd_usage_error("version", "unexpected argument \"%s\"",
				       argv[1]);
	printf("reef %s\nfabrics: shm tcp sim%s\nwire protocol: %d to %d\n",
	       REEF_VERSION, REEF_HAVE_VERBS ? " verbs" : " (verbs: not built)",
	       REEF_WIRE_VERSION_MIN, REEF_WIRE_VERSION_MAX);
	return 0;
}

/* absent.c - what a build without rdma-core says. */
#include "fabric/provider.h"

int reef_verbs_open(const struct reef_fabric_options *options,
		    struct reef_fabric **out)
{
	(void)options;
	(void)out;
	return -ENOSYS;
}

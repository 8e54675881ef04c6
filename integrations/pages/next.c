/* next.c - libc's own functions. */
#include "integrations/pages/preload.h"

#include <dlfcn.h>

void *next_function(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

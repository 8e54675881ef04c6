/* settings_internal.h - checks of single settings, for their table
 * (settings_check.c).
 *
 * Thread: any. */
#ifndef REEF_POOL_SETTINGS_INTERNAL_H
#define REEF_POOL_SETTINGS_INTERNAL_H

#include <stdbool.h>

/* Characters of a node's name, which is an identity on the wire, too. */
#define NAME_MOST 63

/* What is wrong with a text that is to be that; NULL: nothing. */
const char *settings_check_address(const char *text);
const char *settings_check_redis_listen(const char *text);
const char *settings_check_http(const char *text);
const char *settings_check_fabric(const char *text);
const char *settings_check_keep(const char *text);
const char *settings_check_pool(const char *text);
const char *settings_check_name(const char *text);
/* What stands before an address that has no fabric. */
const char *settings_prefix_address(const char *text);

#endif

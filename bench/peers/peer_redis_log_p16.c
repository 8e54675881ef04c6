/* peer_redis_log_p16.c - the same with 16 commands under way at once. */
#define LOG_PIPELINE 16
#include "redis_log.h"

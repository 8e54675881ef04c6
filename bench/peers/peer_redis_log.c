/* peer_redis_log.c - a stream of Redis, one command at a time. */
#define LOG_PIPELINE 1
#include "redis_log.h"

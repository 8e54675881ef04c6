/* log.c - the sink that messages go to, and the end on a failed assertion. */
#include "base/log.h"

#include <inttypes.h>
#include <reef/fiber.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line is built on a fiber's stack, so it stays small; a longer text ends in
 * "...". */
#define TEXT_SIZE 1024

static struct {
	reef_log_sink *sink;
	void *context;
	enum reef_log_level lowest;
} log_to;

void reef_log_set(reef_log_sink *sink, void *context,
		  enum reef_log_level lowest)
{
	log_to.sink = sink;
	log_to.context = context;
	log_to.lowest = lowest;
}

void reef_log(enum reef_log_level level, const char *area, const char *format,
	      ...)
{
	char text[TEXT_SIZE];
	va_list arguments;
	int size;

	if (!log_to.sink || level < log_to.lowest)
		return;
	va_start(arguments, format);
	size = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (size < 0)
		return;
	if ((size_t)size >= sizeof(text))
		memcpy(text + sizeof(text) - 4, "...", 4);
	log_to.sink(log_to.context, level, area, text);
}

void reef_log_to_stream(void *context, enum reef_log_level level,
			const char *area, const char *text)
{
	static const char *const names[] = {
		[REEF_LOG_DEBUG] = "debug",
		[REEF_LOG_INFO] = "info",
		[REEF_LOG_WARNING] = "warning",
		[REEF_LOG_ERROR] = "error",
	};
	/* By the fiber's clock the same seed logs the same lines. */
	uint64_t now_us = reef_now_ns() / 1000;

	/* The line is one call, so that those of several threads do not mix. */
	fprintf(context, "%" PRIu64 ".%06" PRIu64 " %s %s: %s\n",
		now_us / 1000000, now_us % 1000000, names[level], area, text);
}

noreturn void reef_assert_failed(const char *condition, const char *file,
				 int line)
{
	/* This goes straight to the descriptor: a sink may be what is broken,
	 * and the process ends here in any case. */
	dprintf(STDERR_FILENO, "reef: %s:%d: assertion failed: %s\n", file,
		line, condition);
	abort();
}

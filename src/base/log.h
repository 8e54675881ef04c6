/* log.h - libraries log through a callback; they never print or exit.
 *
 * (1) An error is logged once, where it is first decided.
 * (2) Secrets are never logged.
 *
 * Thread: any; the sink is set once, before other threads start. */
#ifndef REEF_BASE_LOG_H
#define REEF_BASE_LOG_H

#include <stdnoreturn.h>

enum reef_log_level {
	REEF_LOG_DEBUG,
	REEF_LOG_INFO,
	REEF_LOG_WARNING,
	REEF_LOG_ERROR
};

typedef void reef_log_sink(void *context, enum reef_log_level level,
			   const char *area, const char *text);

/* NULL drops everything, which is the default. */
void reef_log_set(reef_log_sink *sink, void *context,
		  enum reef_log_level lowest);

__attribute__((format(printf, 3, 4))) void reef_log(enum reef_log_level level,
						    const char *area,
						    const char *format, ...);

/* A sink that writes "time level area: text" lines to the FILE * in context. */
reef_log_sink reef_log_to_stream;

/* reef_assert is on in every build; no side effects in its condition. It is for
 * our own bugs, never for what the world sends. */
#define reef_assert(condition)                                                 \
	do {                                                                   \
		if (__builtin_expect(!(condition), 0))                         \
			reef_assert_failed(#condition, __FILE__, __LINE__);    \
	} while (0)

noreturn void reef_assert_failed(const char *condition, const char *file,
				 int line);

#endif
